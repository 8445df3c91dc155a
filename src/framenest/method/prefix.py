"""Prefix: the first k frames of a ranking, in time order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from framenest.errors import BadSetting, BudgetError, ConfigError, FramenestError, VideoError
from framenest.frames import FrameBatch, ImageSpec, VideoInfo, check_length
from framenest.images import ImageLimits, data_url, encode_image
from framenest.progress import ShowProgress, shown
from framenest.protocols import Decoder, Progress, Store
from framenest.records import Amount, Count, Whole, convert
from framenest.text import clock

if TYPE_CHECKING:
    from PIL import Image

    from framenest.method.ranking import Ranking

MOST_FRAMES = 32
"""Frames of a prefix that are drawn."""
FIRST = 8
"""Ranks of a ranking that are drawn."""
HEIGHT = 120
"""Pixels of the short side of a frame."""
WIDE, TALL = 1000, 60
"""The timeline's own units."""


def prefix_html(prefix: Prefix) -> str:
    """A prefix as HTML: where its frames lie, and the frames in time order."""
    video = escape(prefix.video.path)
    head = f"<b>{len(prefix)} frames</b> of {video} ({clock(prefix.video.duration)})"
    return _page(head, _timeline(prefix, ""), _frames(prefix))


def ranking_html(ranking: Ranking) -> str:
    """A ranking as HTML: the evidence over time, and its first frames in time order."""
    prefix = ranking.prefix(min(FIRST, len(ranking)))
    asked = "no question" if ranking.question is None else f"“{escape(ranking.question)}”"
    head = (
        f"<b>{len(ranking)} ranks</b> of {escape(ranking.video.path)} for {asked}, {escape(ranking.scorer)}"
    )
    foot = f"The first {len(prefix)} ranks; <code>ranking.prefix(k)</code> serves any other budget."
    return _page(head, _timeline(prefix, _evidence(ranking)), _frames(prefix), foot)


def _page(*parts: str) -> str:
    return '<div style="font-family:sans-serif">' + "".join(f"<div>{part}</div>" for part in parts) + "</div>"


def _at(second: float, duration: float) -> float:
    return round(WIDE * second / duration, 1) if duration > 0 else 0.0


def _timeline(prefix: Prefix, below: str) -> str:
    """A mark for each frame, from left to right as time goes."""
    duration = prefix.video.duration
    marks = "".join(
        f'<path d="M{_at(second, duration)},4V{TALL}" stroke="#d95f02" stroke-width="3">'
        f"<title>{_label(rank, second, frame)}</title></path>"
        for rank, second, frame in prefix
    )
    base = f'<line x1="0" x2="{WIDE}" y1="{TALL}" y2="{TALL}" stroke="currentColor" stroke-width="2"/>'
    return (
        f'<svg viewBox="0 0 {WIDE} {TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="where the frames lie" style="width:100%;height:{TALL}px">{below}{base}{marks}</svg>'
    )


def _evidence(ranking: Ranking) -> str:
    pool = ranking.pool
    if not len(pool):
        return ""
    high = max(float(pool.evidence.max()), 1e-9)
    points = " ".join(
        f"{_at(second, ranking.video.duration)},{TALL * (1 - 0.9 * value / high):.1f}"
        for second, value in zip(pool.seconds.tolist(), pool.evidence.tolist(), strict=True)
    )
    return f'<polyline points="{points}" fill="none" stroke="currentColor" opacity="0.5"/>'


def _frames(prefix: Prefix) -> str:
    few = prefix
    if len(prefix) > MOST_FRAMES:
        best = np.arange(len(prefix)) if prefix.ranks is None else np.argsort(prefix.ranks, kind="stable")
        few = prefix.part(np.sort(best[:MOST_FRAMES]))
    try:
        images = few.images(ImageSpec.short_side(HEIGHT), progress=False)
    except FramenestError as error:
        return f"<i>No pictures: {escape(str(error))}</i>"
    shown = "".join(_figure(data_url(encode_image(i)), *one) for i, one in zip(images, few, strict=True))
    rest = len(prefix) - len(few)
    return shown + (f"<div>… and {rest} more</div>" if rest else "")


def _figure(url: str, rank: int | None, second: float, frame: int) -> str:
    label = _label(rank, second, frame)
    return (
        '<figure style="display:inline-block;margin:4px">'
        f'<img src="{url}" alt="{label}" style="height:{HEIGHT}px;display:block">'
        f'<figcaption style="font-size:small">{label}</figcaption></figure>'
    )


def _label(rank: int | None, second: float, frame: int) -> str:
    ranked = "" if rank is None else f"#{rank} · "
    return f"{ranked}{clock(second)} · frame {frame}"


OpenOrPath = str | os.PathLike[str] | Decoder | np.ndarray[Any, Any]
"""A video that is open already, where it is now, or the array that it was."""


class PrefixFrame(NamedTuple):
    """One frame of a prefix. rank: from 1, None where the selector does not rank; second: from the video's
    first frame."""

    rank: int | None
    second: float
    frame: int


@dataclass(frozen=True, eq=False)
class Prefix:
    """A selection of frames, in time order.

    frames: (K,) int64; seconds: (K,) float64; ranks: (K,) int64 from 1, or None where the selector
    does not rank. `complete` says that fewer than `budget` frames exist and all of them are here; `why` says
    why a selector chose fewer all the same.

    >>> for rank, second, frame in ranking.prefix(2):
    ...     print(f"rank {rank}: frame {frame} at {second:.2f} s")
    rank 2: frame 152 at 6.08 s
    rank 1: frame 159 at 6.36 s
    """

    video: VideoInfo
    budget: int
    frames: NDArray[np.int64]
    seconds: NDArray[np.float64]
    ranks: NDArray[np.int64] | None
    complete: bool = False
    why: str = ""

    def __len__(self) -> int:
        return len(self.frames)

    def __iter__(self) -> Iterator[PrefixFrame]:
        ranks = [None] * len(self) if self.ranks is None else self.ranks.tolist()
        return map(PrefixFrame, ranks, self.seconds.tolist(), self.frames.tolist())

    def __repr__(self) -> str:
        return f"Prefix({self.video.path!r}, budget={self.budget}, frames={self.frames.tolist()})"

    def _repr_html_(self) -> str:
        """In a notebook: a timeline and the frames."""

        return prefix_html(self)

    def images(
        self,
        size: ImageSpec | tuple[int, int] | None = None,
        *,
        max_side: int | None = None,
        video: OpenOrPath | None = None,
        store: Store | None = None,
        progress: ShowProgress = True,
    ) -> list[Image.Image]:
        """The frames as Pillow images in RGB, in time order: exactly the frames of these numbers.

        Args:
            size: (width, height) in pixels, or an ImageSpec; by default the original size.
            max_side: instead of size, the most pixels of the longer side; the aspect ratio is kept, and
                nothing is enlarged.
            video: the open video, where it is now if it has moved, or the array that it was.
            store: where the video's timeline is kept; by default the user's cache.
            progress: bars when it takes over a second; False for none, or a function that is called as
                progress(stage, done, total).

        Raises:
            VideoError: the video is gone, or a frame does not decode any more.
            IndexMismatch: the video has changed since it was ranked.
            ConfigError: a size below 1 pixel, or a size and max_side both.

        >>> [image.size for image in ranking.prefix(2).images(max_side=48)]
        [(48, 32), (48, 32)]
        """
        from PIL import Image

        decoder = self._reopened(video, store)
        with shown(progress) as tell:
            batches = self.batches(decoder, _spec(decoder, size, max_side), tell)
            return [Image.fromarray(pixels) for batch in batches for pixels in batch.pixels[0]]

    def read(
        self,
        size: ImageSpec | tuple[int, int] | None = None,
        *,
        max_side: int | None = None,
        video: OpenOrPath | None = None,
        store: Store | None = None,
        progress: ShowProgress = True,
    ) -> FrameBatch:
        """The frames as one array, with their numbers and times; arguments and errors as for `images`.

        Returns:
            A FrameBatch: `frames` (K,), `seconds` (K,), and `pixels[0]` (K, height, width, 3) uint8 RGB.

        >>> shown = ranking.prefix(2).read()
        >>> shown.seconds, shown.pixels[0].shape
        (array([6.08, 6.36]), (2, 64, 96, 3))
        """
        self.must_hold_frames()
        decoder = self._reopened(video, store)
        with shown(progress) as tell:
            return FrameBatch.join(list(self.batches(decoder, _spec(decoder, size, max_side), tell)))

    def _reopened(self, video: OpenOrPath | None, store: Store | None) -> Decoder:
        from framenest.video.opening import reopen  # who only reads a ranking does without decoders

        return reopen(self.video, video, store=store)

    def batches(
        self, decoder: Decoder, size: ImageSpec | None = None, tell: Progress = lambda *_: None
    ) -> Iterator[FrameBatch]:
        """The frames in time order, in batches of bounded memory, at their original size unless told
        otherwise; VideoError at the end if one did not decode. tell: called as tell(stage, done, total)."""
        done = 0
        for batch in decoder.read(self.frames, sizes=(size,)):
            done += len(batch)
            tell("decoding", done, len(self))
            yield batch
        if done < len(self):
            raise VideoError(f"{len(self) - done} of {len(self)} frames could not be decoded any more")

    def part(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> Prefix:
        """Some of the frames, by their places here: (n,) ascending numbers, or (K,) yes or no."""
        ranks = None if self.ranks is None else self.ranks[places]
        return Prefix(self.video, self.budget, self.frames[places], self.seconds[places], ranks)

    def must_hold_frames(self) -> None:
        """Refused where there is nothing to show: some selectors choose no frame at a small budget."""
        if not len(self):
            because = f": {self.why}" if self.why else ""
            raise BudgetError(f"no frame was chosen for a budget of {self.budget}{because}")

    def with_frames_of(self, other: Prefix) -> Prefix:
        """Both, in time order, under the larger budget."""
        frames, places = np.unique(np.concatenate([self.frames, other.frames]), return_index=True)
        seconds = np.concatenate([self.seconds, other.seconds])[places]
        both = self.ranks is not None and other.ranks is not None
        ranks = np.concatenate([self.ranks, other.ranks])[places] if both else None
        return Prefix(self.video, max(self.budget, other.budget), frames, seconds, ranks)

    def to_json(self) -> dict[str, Any]:
        """All but the video, which a file names once."""
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
        found = convert(data, PrefixFields, where)
        video.check_frames(found.frames, found.seconds, where)
        if found.ranks is not None:
            check_length(found.ranks, len(found.frames), f"{where}.ranks".lstrip("."))
        return cls(
            video,
            found.budget,
            np.array(found.frames, dtype=np.int64),
            np.array(found.seconds, dtype=np.float64),
            None if found.ranks is None else np.array(found.ranks, dtype=np.int64),
            found.complete,
            found.why,
        )


class PrefixFields(msgspec.Struct):
    """A prefix in a file."""

    budget: Count
    frames: list[Whole]
    seconds: list[Amount]
    ranks: list[Count] | None
    complete: bool
    why: str = ""


def _spec(
    decoder: Decoder, size: ImageSpec | tuple[int, int] | None, max_side: int | None
) -> ImageSpec | None:
    if size is None:
        return ImageLimits(max_side).spec(decoder.info.width, decoder.info.height)
    if max_side is not None:
        raise ConfigError("give a size or max_side, not both")
    if isinstance(size, ImageSpec):
        return size
    width, height = size
    if min(width, height) < 1:
        raise BadSetting("size", size, "(width, height), 1 or more each")
    return ImageSpec.squash(width, height)
