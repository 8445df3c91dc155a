"""Frames that were chosen before: a file of AKS, WFS-SB, ToolMerge or Framenest as a selector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from framenest.errors import BudgetError, ConfigError, IndexMismatch, VideoError
from framenest.method.prefix import Prefix
from framenest.protocols import Decoder
from framenest.selectors.frame_lists import find_frames, read_rows
from framenest.selectors.selection import Selection, check_budgets, load_result, prefix_of
from framenest.session import Session, Video


class FileSelector:
    """`file:PATH`, or `file:PATH#3` for the row with that number.

    {k} in the path stands for the budget, for selectors that write one file per budget.
    """

    def __init__(self, session: Session, where: str) -> None:
        self._session = session
        path, mark, row = where.rpartition("#")
        self._row = int(row) if mark and row.isdigit() else None
        self._path = path if self._row is not None else where
        self.name = f"file:{Path(where).name}"

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """The frames that the file lists for this question."""
        decoder = self._session.open(video)
        prefixes = {budget: self._prefix(decoder, question, budget) for budget in check_budgets(budgets)}
        stats = {"candidates": 0, "runs": 0, "wall_seconds": 0.0}
        return Selection(decoder.info, question, self.name, "none", prefixes, stats)

    def _prefix(self, decoder: Decoder, question: str | None, budget: int) -> Prefix:
        path = self._path.replace("{k}", str(budget))
        entries = read_rows(path)
        if len(entries) == 1 and isinstance(entries[0], dict) and "kind" in entries[0]:
            result = load_result(path)
            if result.video.fingerprint != decoder.info.fingerprint:
                raise IndexMismatch(f"{path}: was made from another video")
            return result.prefix(budget)
        frames = find_frames(entries, question, decoder.info.path, decoder.seconds, where=path, row=self._row)
        if not frames:
            raise ConfigError(f"{path}: lists no frame for this question")
        total = decoder.info.num_frames
        if frames[-1] >= total:
            raise VideoError(f"{path}: lists frame {frames[-1]}, and this video has {total} frames")
        if len(frames) > budget:
            raise BudgetError(f"{path}: lists {len(frames)} frames, more than a budget of {budget}")
        return prefix_of(decoder, budget, np.array(frames, dtype=np.int64))
