"""Prefix: the first k frames of a ranking, in time order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
from PIL import Image

from framenest.config import must_be
from framenest.errors import BudgetError, ConfigError, FramenestError, VideoError
from framenest.frames import Doubles, ImageSpec, Ints, Mask, Pixels, VideoInfo, check_length
from framenest.image_tokens import Size
from framenest.images import STRIP_HEIGHT, ImageLimits, strip_html
from framenest.progress import ShowProgress, shown
from framenest.protocols import MatchStrength, Progress, Store
from framenest.records import Amount, Count, Whole, convert
from framenest.text import clock
from framenest.video.decoder import Decoder
from framenest.video.opening import Video, reopen

STRIP_FRAMES = 32  # frames of a prefix that a notebook shows


class PrefixFrame(NamedTuple):
    """One frame of a prefix. rank: from 1, or None; second: counted from the video's first frame."""

    rank: int | None
    second: float
    frame: int


@dataclass(frozen=True, eq=False)
class Prefix:
    """A selection of frames, in time order.

    Attributes:
        video: the video.
        budget: K, the number of frames asked for.
        frames: (K,) int64 frame numbers.
        seconds: (K,) float64.
        ranks: (K,) int64 from 1; None if the selector does not rank.
        complete: the video has fewer than `budget` frames to choose from, and all of them are here.
        why: why a selector chose fewer than `budget` frames.
        question, scorer, match, notes: those of the ranking (`Ranking.question`, `Ranking.scorer`,
            `Stats.match`, `Ranking.notes`); None and "" for other selectors and prefixes read from a file.
        roles, reasons: of each frame, as in `Ranking.roles` and `Ranking.reasons`; empty likewise.
        sizes: (width, height) of each image, if the budget was in tokens; otherwise empty.

    >>> for rank, second, frame in ranking.prefix(2):
    ...     print(f"rank {rank}: frame {frame} at {second:.2f} s")
    rank 2: frame 152 at 6.08 s
    rank 1: frame 159 at 6.36 s
    """

    video: VideoInfo
    budget: int
    frames: Ints
    seconds: Doubles
    ranks: Ints | None
    complete: bool = False
    why: str = ""
    question: str | None = None
    scorer: str = ""
    match: MatchStrength | None = None
    roles: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frames)

    def __iter__(self) -> Iterator[PrefixFrame]:
        ranks = [None] * len(self) if self.ranks is None else self.ranks.tolist()
        return map(PrefixFrame, ranks, self.seconds.tolist(), self.frames.tolist())

    def __repr__(self) -> str:
        return f"Prefix({self.video.path!r}, budget={self.budget}, frames={self.frames.tolist()})"

    def _repr_html_(self) -> str:
        return self.strip([f"{len(self)} frames of {self.video.path} ({clock(self.video.duration)})"])

    def strip(self, lines: Sequence[str]) -> str:
        """Lines of text and the best frames, as HTML for notebooks."""
        best = self.best(STRIP_FRAMES)
        labels = [
            ("" if rank is None else f"#{rank} · ") + f"{clock(second)} · frame {frame}"
            for rank, second, frame in best
        ]
        notes = [*self.notes, *([f"… and {len(self) - len(best)} more"] if len(self) > len(best) else [])]
        try:
            images = best.images(ImageSpec.short_side(STRIP_HEIGHT), progress=False)
        except FramenestError as error:
            images, notes = [], [f"No images: {error}", *notes]
        return strip_html(lines, list(zip(images, labels, strict=False)), notes)

    def images(
        self,
        size: ImageSpec | None = None,
        *,
        max_side: int | None = None,
        video: Video | None = None,
        store: Store | None = None,
        progress: ShowProgress = True,
    ) -> list[Image.Image]:
        """The frames as Pillow images in RGB, in time order: exactly the frames of these numbers.

        Args:
            size: by default the prefix's sizes, or the original size.
            max_side: instead of size, the most pixels of the longer side. The aspect ratio is kept, and no
                image is enlarged.
            video: the open video, its path if it has moved, or the array of frames.
            store: the store of the video's timeline; by default the user's cache.
            progress: show a bar if it takes over a second; False for none, or a function that is called as
                progress(stage, done, total).

        Raises:
            VideoError: the video no longer exists, or a frame no longer decodes.
            IndexMismatch: the video has changed since it was ranked.
            ConfigError: max_side below 1 pixel, or both size and max_side.

        >>> [image.size for image in ranking.prefix(2).images(max_side=48)]
        [(48, 32), (48, 32)]
        """
        decoder = reopen(self.video, video, store=store)
        with shown(progress) as tell:
            decoded = self.decode(decoder, _spec(decoder, size, max_side), tell)
            return [Image.fromarray(pixels) for _, pixels in decoded]

    def read(
        self,
        size: ImageSpec | None = None,
        *,
        max_side: int | None = None,
        video: Video | None = None,
        store: Store | None = None,
        progress: ShowProgress = True,
    ) -> Pixels:
        """The frames as one array, (K, height, width, 3) uint8 RGB; arguments and errors as for `images`.

        >>> ranking.prefix(2).read().shape
        (2, 64, 96, 3)
        """
        self.must_hold_frames()
        decoder = reopen(self.video, video, store=store)
        spec = _spec(decoder, size, max_side)
        if spec is None and len(set(self.sizes)) > 1:
            raise ConfigError("these images differ in size; use images(), or give size or max_side")
        with shown(progress) as tell:
            return np.stack([pixels for _, pixels in self.decode(decoder, spec, tell)])

    def decode(
        self, decoder: Decoder, size: ImageSpec | None = None, tell: Progress | None = None
    ) -> Iterator[tuple[int, Pixels]]:
        """The places of the frames, ascending, with their pixels; VideoError if one does not decode.

        size: by default the prefix's sizes, or the original size. tell: called as tell(stage, done, total).
        """
        original = decoder.info.width, decoder.info.height
        own = [None if one == original else ImageSpec.squash(*one) for one in self.sizes]
        specs = own if own and size is None else [size] * len(self)
        distinct, done = list(dict.fromkeys(specs)), 0
        for batch in decoder.read(self.frames, sizes=tuple(distinct)):
            done += len(batch)
            if tell is not None:
                tell("decoding", done, len(self))
            for row, place in enumerate(np.searchsorted(self.frames, batch.frames).tolist()):
                yield place, batch.pixels[distinct.index(specs[place])][row]
        if done < len(self):
            raise VideoError(f"{len(self) - done} of {len(self)} frames no longer decode")

    def part(self, places: Ints | Mask) -> Prefix:
        """Some of the frames, by their places here: (n,) ascending numbers or (K,) booleans."""
        ranks = None if self.ranks is None else self.ranks[places]
        frames, seconds = self.frames[places], self.seconds[places]
        kept = np.arange(len(self))[places].tolist()
        names = [name for name in ("roles", "reasons", "sizes") if getattr(self, name)]
        known: Any = {name: tuple(getattr(self, name)[place] for place in kept) for name in names}
        chosen = replace(self, frames=frames, seconds=seconds, ranks=ranks, **known)
        return replace(chosen, complete=False, why="")

    def best(self, count: int) -> Prefix:
        """Its `count` best frames, in time order; without ranks, as many at even intervals.

        >>> ranking.prefix(8).best(2).frames.tolist() == ranking.prefix(2).frames.tolist()
        True
        """
        places = np.linspace(0, len(self) - 1, min(count, len(self))).round().astype(np.int64)
        if self.ranks is not None:
            places = np.sort(np.argsort(self.ranks, kind="stable")[:count])
        return replace(self.part(places), budget=count)

    @property
    def roles_text(self) -> str:
        """How many frames match the question, for people; empty without a question or roles.

        >>> ranking.prefix(8).roles_text
        '8 of 8 frames match the question, 0 add context'
        """
        if self.question is None or not self.roles:
            return ""
        matching, others = self.roles.count("evidence"), self.roles.count("context")
        match, add = "matches" if matching == 1 else "match", "adds" if others == 1 else "add"
        return f"{matching} of {len(self)} frames {match} the question, {others} {add} context"

    @property
    def largest_gap(self) -> float:
        """The longest stretch of the video without a frame, as a share of its duration."""
        duration = self.video.duration
        edges = np.concatenate([[0.0], np.sort(self.seconds), [duration]])
        return float(np.diff(edges).max() / duration) if duration > 0 else 0.0

    def must_hold_frames(self) -> None:
        """Raise BudgetError if there is no frame: some selectors choose none at a small budget."""
        if not len(self):
            because = f": {self.why}" if self.why else ""
            raise BudgetError(f"no frame was chosen for a budget of {self.budget}{because}")

    def to_json(self) -> dict[str, Any]:
        """Everything except the video, which a file names once."""
        return {
            "budget": self.budget,
            "frames": self.frames.tolist(),
            "seconds": self.seconds.tolist(),
            "ranks": None if self.ranks is None else self.ranks.tolist(),
            "complete": self.complete,
            "why": self.why,
        }

    @classmethod
    def from_json(cls, video: VideoInfo, data: Mapping[str, Any], where: str = "") -> Prefix:
        """Read what `to_json` wrote; BadField names a wrong field, below the field `where` of the file."""
        fields = convert(data, PrefixFields, where)
        video.check_frames(fields.frames, fields.seconds, where)
        if (ranks := fields.ranks) is not None:
            check_length(ranks, len(fields.frames), f"{where}.ranks".lstrip("."))
        frames, seconds = np.array(fields.frames, np.int64), np.array(fields.seconds, np.float64)
        places = None if ranks is None else np.array(ranks, np.int64)
        return cls(video, fields.budget, frames, seconds, places, fields.complete, fields.why)


class PrefixFields(msgspec.Struct):
    """A prefix in a file."""

    budget: Count
    frames: list[Whole]
    seconds: list[Amount]
    ranks: list[Count] | None
    complete: bool
    why: str = ""


def _spec(decoder: Decoder, size: ImageSpec | None, max_side: int | None) -> ImageSpec | None:
    if size is not None and max_side is not None:
        raise ConfigError("give a size or max_side, not both")
    must_be("size", size, ImageSpec | None, "an ImageSpec (max_side= takes pixels)")
    return size or ImageLimits(max_side).spec(decoder.info.width, decoder.info.height)
