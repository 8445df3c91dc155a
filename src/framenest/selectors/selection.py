"""Selection, one list of frames per budget; and Selector, the protocol that makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from framenest.cache.files import write_atomic
from framenest.errors import BudgetError, StoreError
from framenest.frames import VideoInfo
from framenest.method.prefix import Prefix
from framenest.method.ranking import RANKING_FORMAT, Ranking
from framenest.records import BadField, convert, load_file, read_object, read_result
from framenest.video.decoder import Decoder
from framenest.video.opening import Video
from framenest.video.source import VIDEO_SUFFIXES

SELECTION_FORMAT = 2


@dataclass(frozen=True, eq=False)
class Selection:
    """The frames that a selector chose for a question.

    Attributes:
        video: the video, with its fingerprint.
        question: None if nothing was asked.
        selector: the selector's name.
        scorer: name and version of the scorer; "none" if no frame was scored.
        prefixes: one Prefix per budget, ascending.
        stats: `candidates`, the frames scored; `runs` of the rule; `wall_seconds`; more by selector.

    Example:
        >>> from framenest.selectors import load_selector
        >>> from framenest.session import Session
        >>> chosen = load_selector("uniform", Session(None)).select("kiln.mp4", None, [4])
        >>> chosen.save("uniform.json")
        >>> Selection.load("uniform.json").prefix(4).frames
        array([  0, 100, 199, 299])
    """

    video: VideoInfo
    question: str | None
    selector: str
    scorer: str
    prefixes: dict[int, Prefix]
    stats: dict[str, Any]

    def __repr__(self) -> str:
        return f"Selection({self.selector!r}, {self.video.path!r}, budgets={list(self.prefixes)})"

    @property
    def frames(self) -> NDArray[np.int64]:
        """(n,) every frame of any budget, ascending."""
        return np.unique(np.concatenate([prefix.frames for prefix in self.prefixes.values()]))

    def prefix(self, budget: int) -> Prefix:
        """The frames chosen for a budget; BudgetError if it was not one of those selected for."""
        if budget not in self.prefixes:
            raise BudgetError(
                f"this selection holds budgets {', '.join(map(str, self.prefixes))}, not {budget}; "
                f"select again with -k {budget}"
            )
        return self.prefixes[budget]

    def to_json(self) -> dict[str, Any]:
        """What `save` writes."""
        return {
            "format": SELECTION_FORMAT,
            "kind": "selection",
            "video": self.video.to_json(),
            "question": self.question,
            "selector": self.selector,
            "scorer": self.scorer,
            "stats": self.stats,
            "budgets": {str(budget): prefix.to_json() for budget, prefix in self.prefixes.items()},
        }

    def save(self, path: str | Path) -> None:
        """Write the selection as JSON."""
        text = json.dumps(self.to_json(), ensure_ascii=False) + "\n"
        write_atomic(Path(path), text.encode(errors="surrogatepass"))

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """Read a selection written by `save`."""
        return load_file(path, "selection", SELECTION_FORMAT, cls.from_json)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        """Read what `save` wrote; BadField names the first wrong field."""
        file = convert(data, SelectionFile)
        video, prefixes = replace(file.video, from_file=True), {}
        json.dumps(file.stats, allow_nan=False)  # ValueError: infinite, and a page could not hold it
        for name, entry in file.budgets.items():
            if not name.isascii() or not name.isdecimal() or len(name) > 15 or int(name) < 1:
                raise BadField(f"budgets.{name[:40]!r} is not a budget: a whole number, 1 or more")
            prefixes[int(name)] = Prefix.from_json(video, entry, f"budgets.{name}")
        return cls(video, file.question, file.selector, file.scorer, prefixes, file.stats)


class SelectionFile(msgspec.Struct):
    """A selection file."""

    video: VideoInfo
    question: str | None
    selector: str
    scorer: str
    stats: dict[str, Any]
    budgets: Annotated[dict[str, Any], Meta(min_length=1)]


@runtime_checkable
class Selector(Protocol):
    """Chooses frames for several budgets at once. Made with a Session."""

    name: str

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """Choose frames of a video for a question; a Selection with a Prefix for each budget."""
        ...


def load_result(path: str | Path) -> Ranking | Selection:
    """Read a ranking or a selection, whichever the file holds."""
    if Path(path).suffix.lower() in VIDEO_SUFFIXES and Path(path).is_file():
        raise StoreError(f"{path}: this is a video; rank it first: framenest rank {path} QUESTION -o FILE")
    data = read_object(path)
    if data.get("kind") == "selection":
        return read_result(data, path, "selection", SELECTION_FORMAT, Selection.from_json)
    return read_result(data, path, "ranking", RANKING_FORMAT, Ranking.from_json)


def check_budgets(budgets: Sequence[int]) -> list[int]:
    """Budgets, ascending, each once."""
    if not budgets or any(isinstance(b, bool) or int(b) != b or b < 1 for b in budgets):
        raise BudgetError(f"frame budgets must be whole numbers, 1 or more, not {list(budgets)!r}")
    return sorted({int(b) for b in budgets})


def prefix_of(
    decoder: Decoder,
    budget: int,
    frames: NDArray[np.int64],
    ranks: NDArray[np.int64] | None = None,
    why: str = "",
) -> Prefix:
    """The Prefix of some frames (n,), ascending, of an open video. why: why there may be too few."""
    few = len(frames) < budget
    complete = few and len(frames) == decoder.info.num_frames
    return Prefix(decoder.info, budget, frames, decoder.seconds[frames], ranks, complete, why if few else "")


def ranked_prefix(
    decoder: Decoder, budget: int, frames: NDArray[np.int64], order: NDArray[np.int64]
) -> Prefix:
    """The first `budget` of an order, in time order with their ranks. frames: (n,); order: positions."""
    place = np.argsort(order[:budget], kind="stable")
    return prefix_of(decoder, budget, frames[order[place]], place + 1)
