"""TableScorer: your own scores instead of a model."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore
from framenest.cache.hashes import digest
from framenest.config import ScorerConfig
from framenest.errors import ScorerError
from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Encoded, Progress
from framenest.text import seconds_of


class TableScorer:
    """Relevance from a table.

    Between two rows, scores are interpolated linearly. Before the first row and after the last one, that
    row's score holds.

    Args:
        table: {frame number: score}, or {second: score} with by="seconds"; scores in [0, 1].
        by: "frames" or "seconds".

    Raises:
        ScorerError: The table is empty, or a score is outside [0, 1].

    Example:
        >>> TableScorer({0: 0.0, 120: 0.9, 480: 0.4}).version[:6]
        'frames'
    """

    name = "table"
    inputs: tuple[ImageSpec, ...] = ()

    def __init__(self, table: Mapping[int, float] | Mapping[float, float], *, by: str = "frames") -> None:
        if by not in ("frames", "seconds"):
            raise ScorerError(f"a table of scores has 'frames' or 'seconds' as keys, not {by!r}")
        if not table:
            raise ScorerError("the table of scores is empty")
        keys = sorted(table)
        self._by = by
        self._keys = np.array(keys, dtype=np.float64)
        self._scores = np.array([table[k] for k in keys], dtype=np.float32)  # type: ignore[index]  # either kind of key
        wrong = ~((self._scores >= 0) & (self._scores <= 1))
        if wrong.any():
            where = int(np.flatnonzero(wrong)[0])
            raise ScorerError(f"scores must be in [0, 1]; {keys[where]} has {self._scores[where]}")
        self.version = f"{by} {digest('linear', keys, self._scores.tolist())[:8]}"

    @classmethod
    def load(
        cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress
    ) -> TableScorer:
        """`table:FILE`: the scores in a file."""
        if not checkpoint:
            raise ScorerError("a table of scores needs a file: table:FILE")
        return cls.read(checkpoint)

    @classmethod
    def read(cls, path: str | Path) -> TableScorer:
        """The scores in a file: CSV with columns "frame,score" or "seconds,score", or JSON.

        JSON: {"120": 0.9}, {"frames": {…}}, {"seconds": {…}}, or [{"frame": 120, "score": 0.9}, …].
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
            is_json = text.lstrip()[:1] in "[{"
            by, table = _parse(json.loads(text) if is_json else list(csv.DictReader(text.splitlines())))
        except OSError as error:
            raise ScorerError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ScorerError(f"{path}: not a table of frame or second and score ({error})") from error
        return cls(table, by=by)

    def encode(self, frames: FrameBatch) -> Encoded:
        return {"frame": frames.frames, "second": frames.seconds}

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        where = np.asarray(encoded["frame" if self._by == "frames" else "second"], np.float64)
        found = np.interp(where, self._keys, self._scores)
        return np.clip(found, 0, 1).astype(np.float32)  # interpolation may miss 0 or 1 by a rounding error


def _parse(data: Any) -> tuple[str, dict[Any, float]]:
    """ "frames" or "seconds", and the scores, from rows or a JSON object."""
    if isinstance(data, list):
        by, column = ("seconds", "seconds") if data and "frame" not in data[0] else ("frames", "frame")
        pairs = [(row[column], row["score"]) for row in data]
    else:
        by = next((by for by in ("frames", "seconds") if by in data), "frames")
        pairs = list(data.get(by, data).items())
    key = int if by == "frames" else seconds_of
    return by, {key(where): float(score) for where, score in pairs}
