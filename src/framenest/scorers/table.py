"""TableScorer: one's own scores instead of a model."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import digest
from framenest.errors import ScorerError
from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Encoded


class TableScorer:
    """Relevance from a table: {frame: score}, or {second: score} with by="seconds".

    A frame that is not in the table scores 0. By seconds, a frame takes the score of the nearest
    time in the table. Scores lie in [0, 1].

    >>> TableScorer({120: 0.9, 480: 0.4}).version[:6]
    'frames'
    """

    name = "table"
    inputs: tuple[ImageSpec, ...] = ()

    def __init__(self, table: Mapping[int, float] | Mapping[float, float], *, by: str = "frames") -> None:
        if by not in ("frames", "seconds"):
            raise ScorerError(f"a table of scores goes by 'frames' or 'seconds', not {by!r}")
        if not table:
            raise ScorerError("the table of scores is empty")
        keys = sorted(table)
        self._by = by
        self._keys = np.array(keys, dtype=np.int64 if by == "frames" else np.float64)
        self._scores = np.array([table[k] for k in keys], dtype=np.float32)  # type: ignore[index]  # either kind of key
        wrong = ~((self._scores >= 0) & (self._scores <= 1))
        if wrong.any():
            where = int(np.flatnonzero(wrong)[0])
            raise ScorerError(f"scores must lie in [0, 1]; {keys[where]} has {self._scores[where]}")
        self.version = f"{by} {digest(keys, self._scores.tolist())[:8]}"

    @classmethod
    def load(cls, path: str | Path) -> TableScorer:
        """From CSV with columns "frame,score" or "seconds,score", or the same as a JSON list or object.

        JSON: {"120": 0.9}, {"frames": {…}}, {"seconds": {…}}, or [{"frame": 120, "score": 0.9}, …].
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
            by, table = _from_json(json.loads(text)) if text.lstrip()[:1] in "[{" else _from_csv(text)
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
        if self._by == "seconds":
            times = encoded["second"]
            right = np.searchsorted(self._keys, times).clip(1, max(1, len(self._keys) - 1))
            if len(self._keys) == 1:
                return np.full(len(times), self._scores[0])
            closer = times - self._keys[right - 1] <= self._keys[right] - times
            return self._scores[np.where(closer, right - 1, right)]
        at = np.searchsorted(self._keys, encoded["frame"]).clip(0, len(self._keys) - 1)
        found = self._keys[at] == encoded["frame"]
        return np.where(found, self._scores[at], np.float32(0))


def _from_json(data: Any) -> tuple[str, dict[Any, float]]:
    if isinstance(data, list):
        return _from_rows(data)
    for by in ("frames", "seconds"):
        if by in data:
            return by, {_key(by, k): float(v) for k, v in data[by].items()}
    return "frames", {_key("frames", k): float(v) for k, v in data.items()}


def _from_csv(text: str) -> tuple[str, dict[Any, float]]:
    return _from_rows(list(csv.DictReader(text.splitlines())))


def _from_rows(rows: list[dict[str, Any]]) -> tuple[str, dict[Any, float]]:
    if not rows:
        return "frames", {}
    by, column = ("frames", "frame") if "frame" in rows[0] else ("seconds", "seconds")
    return by, {_key(by, row[column]): float(row["score"]) for row in rows}


def _key(by: str, text: Any) -> int | float:
    return int(text) if by == "frames" else float(text)
