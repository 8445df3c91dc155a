"""Selection, one list of frames per budget; Selector, the protocol that makes it; frame lists of other tools.

The lists are those of AKS, WFS-SB and ToolMerge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from msgspec import Meta

from framenest.cache.files import write_atomic
from framenest.config import CheckedSettings, MECConfig
from framenest.errors import BudgetError, ConfigError, IndexMismatch, StoreError, VideoError
from framenest.frames import Ints, VideoInfo
from framenest.image_tokens import TokenBudget
from framenest.method.prefix import Prefix
from framenest.method.ranking import RANKING_FORMAT, Ranking
from framenest.rank_request import Budget
from framenest.records import (
    Amount,
    BadField,
    Whole,
    convert,
    load_file,
    parse_json,
    read_object,
    read_result,
)
from framenest.session import Session
from framenest.video.decoder import Decoder
from framenest.video.opening import Video
from framenest.video.source import VIDEO_SUFFIXES

SELECTION_FORMAT = 2
FRAME_FIELDS = ("keyframe_indices", "frame_idx")  # of a row: WFS-SB's name for the frames, then AKS's
SECONDS_FIELD = "timestamps_used"  # ToolMerge's; its `frames_used` are frame numbers of a sampled video


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
    def frames(self) -> Ints:
        """(n,) every frame of any budget, ascending."""
        return np.unique(np.concatenate([prefix.frames for prefix in self.prefixes.values()]))

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems with the video and, if the selector uses one, its transcript, for people."""
        return tuple(self.stats.get("notes", self.video.notes))

    def prefix(self, budget: int | TokenBudget | None) -> Prefix:
        """The frames chosen for a budget; BudgetError if it was not one of those selected for."""
        if not isinstance(budget, int):
            raise BudgetError("a selection has no budgets in tokens; give a number of frames (-k)")
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
        convert(file.stats.get("notes", []), list[str], "stats.notes")
        for name, entry in file.budgets.items():
            if not name.isascii() or not name.isdecimal() or len(name) > 15 or int(name) < 1:
                raise BadField(f"budgets.{name[:40]!r} is not a budget: a whole number, 1 or more")
            prefixes[int(name)] = Prefix.from_json(video, entry, f"budgets.{name}")
        return cls(video, file.question, file.selector, file.scorer, prefixes, file.stats)


class SelectionFile(msgspec.Struct):
    video: VideoInfo
    question: str | None
    selector: str
    scorer: str
    stats: dict[str, Any]
    budgets: Annotated[dict[str, Any], Meta(min_length=1)]


@runtime_checkable
class Selector(Protocol):
    """Chooses frames for several budgets at once.

    Made with a Session and, if it has settings, with these. A subclass inherits the attributes that it does
    not declare; they are read before it is made.
    """

    name: str
    ranks: bool = False
    """Whether it takes frames one after another, so that each budget extends the smaller ones."""
    needs_scorer: bool = True
    """Whether it chooses by relevance."""
    settings: CheckedSettings | MECConfig | None = None
    """Its settings by default, to which `NAME:setting=value` gives other values; None if it has none."""

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """Choose frames of a video for a question; a Selection with a Prefix for each budget."""


def load_result(path: str | Path) -> Ranking | Selection:
    """Read a ranking or a selection, whichever the file holds."""
    if Path(path).suffix.lower() in VIDEO_SUFFIXES and Path(path).is_file():
        raise StoreError(f"{path}: this is a video; rank it first: framenest rank {path} QUESTION -o FILE")
    data = read_object(path)
    if data.get("kind") == "selection":
        return read_result(data, path, "selection", SELECTION_FORMAT, Selection.from_json)
    return read_result(data, path, "ranking", RANKING_FORMAT, Ranking.from_json)


def prefix_of(
    decoder: Decoder, budget: int, frames: Ints, ranks: Ints | None = None, why: str = ""
) -> Prefix:
    """The Prefix of some frames (n,), ascending, of an open video. why: why there may be too few."""
    few = len(frames) < budget
    complete = few and len(frames) == decoder.info.num_frames
    return Prefix(decoder.info, budget, frames, decoder.seconds[frames], ranks, complete, why if few else "")


def ranked_prefix(decoder: Decoder, budget: int, frames: Ints, order: Ints) -> Prefix:
    """The first `budget` of an order, in time order with their ranks. frames: (n,); order: positions."""
    place = np.argsort(order[:budget], kind="stable")
    return prefix_of(decoder, budget, frames[order[place]], place + 1)


def _read_entries(path: str | Path) -> list[Any]:
    """The entries of a JSON list, or of a file with one JSON value per line."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read ({error})") from error
    with suppress(ValueError):
        data = parse_json(text)
        return data if isinstance(data, list) else [data]
    try:
        return [parse_json(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise StoreError(f"{path}: neither JSON nor JSON lines ({error})") from error


def _frames(entries: Sequence[Any], question: str | None, decoder: Decoder, where: str) -> list[int]:
    """The frames that a file lists for a question: its only list, or the row with the question.

    Seconds, which ToolMerge lists, mean the nearest frames. where: the file, for error messages.
    """
    if entries and all(isinstance(entry, int) for entry in entries):
        entries = [list(entries)]
    if len(entries) == 1 and not isinstance(entries[0], dict):
        row = {FRAME_FIELDS[0]: entries[0]}
    else:
        row = _row(entries, question, decoder.info.path, where)
    try:
        if SECONDS_FIELD in row:
            times, wanted = decoder.seconds, convert(row[SECONDS_FIELD], list[Amount], SECONDS_FIELD)
            if wanted and max(wanted) > times[-1] + 1:
                raise VideoError(
                    f"{where}: lists {max(wanted):g} s, but this video's last frame is at {times[-1]:.2f} s"
                )
            return sorted({int(np.abs(times - second).argmin()) for second in wanted})
        frames = next((row[name] for name in FRAME_FIELDS if name in row), None)
        return sorted(set(convert(frames, list[Whole], " or ".join(FRAME_FIELDS))))
    except BadField as error:
        raise StoreError(f"{where}: has no list of frames for this question: {error}") from error


def _row(entries: Sequence[Any], question: str | None, video: str, where: str) -> dict[str, Any]:
    """The row of a question; if several rows ask the same, the one that names the video."""
    rows = [entry for entry in entries if isinstance(entry, dict)]
    if not rows:
        raise ConfigError(
            f"{where}: has {len(entries)} lists without questions; give rows with question and frame_idx"
        )
    same = [row for row in rows if str(row.get("question", "")).strip() == (question or "").strip()]
    if len(same) > 1:
        names = {Path(video).name, Path(video).stem}
        same = [row for row in same if any(Path(v).name in names for v in row.values() if isinstance(v, str))]
    if len(same) != 1:
        raise ConfigError(f"{where}: {len(same)} rows match this question and video; it must be one")
    return same[0]


class FileSelector(Selector):
    """`file:PATH`: frames chosen earlier or by another tool.

    {k} in the path stands for the budget, for selectors that write one file per budget.
    """

    needs_scorer = False

    def __init__(self, session: Session, path: str) -> None:
        self._session, self._path = session, path
        self.name = f"file:{Path(path).name}"

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        decoder = self._session.open(video)
        prefixes = {budget: self._prefix(decoder, question, budget) for budget in Budget.ladder(budgets)}
        stats = {"candidates": 0, "runs": 0, "wall_seconds": 0.0}
        return Selection(decoder.info, question, self.name, "none", prefixes, stats)

    def _prefix(self, decoder: Decoder, question: str | None, budget: int) -> Prefix:
        path, total = self._path.replace("{k}", str(budget)), decoder.info.num_frames
        entries = _read_entries(path)
        if len(entries) == 1 and isinstance(entries[0], dict) and "kind" in entries[0]:
            result = load_result(path)
            if result.video.fingerprint != decoder.info.fingerprint:
                raise IndexMismatch(f"{path}: was made from another video")
            return result.prefix(budget)
        frames = _frames(entries, question, decoder, path)
        if not frames:
            raise ConfigError(f"{path}: lists no frame for this question")
        if frames[-1] >= total:
            raise VideoError(f"{path}: lists frame {frames[-1]}, but this video has {total} frames")
        if len(frames) > budget:
            raise BudgetError(f"{path}: lists {len(frames)} frames, more than a budget of {budget}")
        return prefix_of(decoder, budget, np.array(frames, dtype=np.int64))
