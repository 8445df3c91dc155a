"""Frame lists of other tools: written for AKS and WFS-SB, read from AKS, WFS-SB and ToolMerge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from framenest.errors import BudgetError, ConfigError, IndexMismatch, StoreError, VideoError
from framenest.method.prefix import Prefix
from framenest.records import Amount, BadField, Whole, convert, parse_json
from framenest.selectors.selection import Selection, check_budgets, load_result, prefix_of
from framenest.session import Session
from framenest.video.decoder import Decoder
from framenest.video.opening import Video

Row = dict[str, Any]
KEYS = ("keyframe_indices", "frame_idx")
"""The field of a row that holds the frames: WFS-SB's name, then AKS's."""
SECONDS = "timestamps_used"
"""ToolMerge's field with seconds; its `frames_used` are frame numbers of a sampled video."""


def aks(prefixes: Sequence[Prefix], rows: Sequence[Row] | None = None) -> list[Any]:
    """AKS: a list of lists in the order of the dataset, or the dataset's rows with frame_idx added.

    use_topk makes its loader take the listed frames instead of a uniform grid.
    """
    if rows is None:
        return [prefix.frames.tolist() for prefix in prefixes]
    return [
        {**row, "frame_idx": prefix.frames.tolist(), "frame_num": prefix.budget, "use_topk": True}
        for row, prefix in _paired(rows, prefixes)
    ]


def wfs_sb(
    prefixes: Sequence[Prefix], questions: Sequence[str | None], rows: Sequence[Row] | None = None
) -> list[Row]:
    """WFS-SB: the dataset's rows, or rows of video and question, with keyframe_indices added."""
    if rows is None:
        rows = [
            {"video": Path(prefix.video.path).stem, "question": question}
            for prefix, question in zip(prefixes, questions, strict=True)
        ]
    return [{**row, "keyframe_indices": prefix.frames.tolist()} for row, prefix in _paired(rows, prefixes)]


def _paired(rows: Sequence[Row], prefixes: Sequence[Prefix]) -> list[tuple[Row, Prefix]]:
    if len(rows) != len(prefixes):
        raise ConfigError(f"{len(rows)} dataset rows for {len(prefixes)} rankings; give one row per ranking")
    if not all(isinstance(row, dict) for row in rows):
        raise ConfigError("the dataset's rows must be JSON objects")
    return list(zip(rows, prefixes, strict=True))


def read_entries(path: str | Path) -> list[Any]:
    """The entries of a JSON list, or of a file with one JSON value per line."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read ({error})") from error
    try:
        data = parse_json(text)
    except ValueError:
        try:
            data = [parse_json(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise StoreError(f"{path}: neither JSON nor JSON lines ({error})") from error
    return data if isinstance(data, list) else [data]


def _frames(entries: Sequence[Any], question: str | None, decoder: Decoder, where: str) -> list[int]:
    """The frames that a file lists for a question: its only list, or the row with the question.

    Seconds, which ToolMerge lists, mean the nearest frames. where: the file, for error messages.
    """
    if entries and all(isinstance(entry, int) for entry in entries):
        entries = [list(entries)]
    if len(entries) == 1 and not isinstance(entries[0], dict):
        found = entries[0]
    else:
        found = _row(entries, question, decoder.info.path, where)
    try:
        if isinstance(found, dict) and SECONDS in found:
            times, wanted = decoder.seconds, convert(found[SECONDS], list[Amount], SECONDS)
            if wanted and max(wanted) > times[-1] + 1:
                raise VideoError(
                    f"{where}: lists {max(wanted):g} s, but this video's last frame is at {times[-1]:.2f} s"
                )
            return sorted({int(np.abs(times - second).argmin()) for second in wanted})
        if isinstance(found, dict):
            found = next((found[key] for key in KEYS if key in found), None)
        return sorted(set(convert(found, list[Whole], " or ".join(KEYS))))
    except BadField as error:
        raise StoreError(f"{where}: has no list of frames for this question: {error}") from error


def _row(entries: Sequence[Any], question: str | None, video: str, where: str) -> Row:
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


class FileSelector:
    """`file:PATH`: frames chosen earlier or by another tool.

    {k} in the path stands for the budget, for selectors that write one file per budget.
    """

    def __init__(self, session: Session, path: str) -> None:
        self._session, self._path = session, path
        self.name = f"file:{Path(path).name}"

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """The frames that the file lists for this question."""
        decoder = self._session.open(video)
        prefixes = {budget: self._prefix(decoder, question, budget) for budget in check_budgets(budgets)}
        stats = {"candidates": 0, "runs": 0, "wall_seconds": 0.0}
        return Selection(decoder.info, question, self.name, "none", prefixes, stats)

    def _prefix(self, decoder: Decoder, question: str | None, budget: int) -> Prefix:
        path, total = self._path.replace("{k}", str(budget)), decoder.info.num_frames
        entries = read_entries(path)
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
