"""TableScorer: your own scores instead of a model."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from framenest.cache.directory import DirectoryStore
from framenest.cache.hashes import digest
from framenest.config import Calibration, ScorerConfig
from framenest.errors import ScorerError
from framenest.frames import Floats, FrameBatch, ImageSpec
from framenest.protocols import Encoded, Progress
from framenest.records import parse_json
from framenest.scorers.calibration import Calibrated, Scores
from framenest.text import seconds_of


class TableScorer(Calibrated):
    """Relevance from a table.

    Between two rows, scores are interpolated linearly. Before the first row and after the last one, that
    row's score holds.

    Args:
        table: {frame number: score}, or {second: score} with by="seconds".
        by: "frames" or "seconds".
        calibration: "logistic" takes scores of any range, relative to the video; otherwise scores must be
            relevance, in [0, 1].

    Raises:
        ScorerError: The table is empty, or a score is not a number or outside [0, 1].

    Example:
        >>> TableScorer({0: 0.0, 120: 0.9, 480: 0.4}).version[:6]
        'frames'
    """

    name = "table"
    inputs: tuple[ImageSpec, ...] = ()
    own_calibration = "none"
    own_relevance = ""

    def __init__(
        self,
        table: Mapping[int, float] | Mapping[float, float],
        *,
        by: str = "frames",
        calibration: Calibration = "auto",
    ) -> None:
        super().__init__(calibration)
        if by not in ("frames", "seconds"):
            raise ScorerError(f"a table of scores has 'frames' or 'seconds' as keys, not {by!r}")
        if not isinstance(table, Mapping):
            raise ScorerError(f"table must be a dict of {by} and scores, not {type(table).__name__}")
        if not table:
            raise ScorerError("the table of scores is empty")
        try:
            rows = sorted(table.items())
            self._keys, scores = np.array(rows, dtype=np.float64).T
        except (TypeError, ValueError, OverflowError) as error:
            raise ScorerError(f"a table of scores must hold numbers ({error})") from error
        keys = [key for key, _ in rows]
        self._by = by
        self._scores = scores = scores.astype(np.float32)
        right = np.isfinite(scores) if self._logistic else (scores >= 0) & (scores <= 1)
        if not right.all():
            where = int(np.flatnonzero(~right)[0])
            other = "calibration='logistic' (--calibration logistic) takes any range"
            allowed = "finite" if self._logistic else f"in [0, 1]; {other}"
            raise ScorerError(f"the score of {keys[where]} is {scores[where]:g}; scores must be {allowed}")
        self.version = f"{by} {digest('linear', keys, self._scores.tolist())[:8]}"

    @classmethod
    def load(cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> Self:
        """`table:FILE`: the scores in a file."""
        if not checkpoint:
            raise ScorerError("a table of scores needs a file: table:FILE")
        return cls.read(checkpoint, config.calibration)

    @classmethod
    def read(cls, path: str | Path, calibration: Calibration = "auto") -> Self:
        """The scores in a file: CSV with columns "frame,score" or "seconds,score", or JSON.

        JSON: {"120": 0.9}, {"frames": {…}}, {"seconds": {…}}, or [{"frame": 120, "score": 0.9}, …].
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
            is_json = text.lstrip()[:1] in "[{"
            by, table = _parse(parse_json(text) if is_json else list(csv.DictReader(text.splitlines())))
        except OSError as error:
            raise ScorerError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise ScorerError(f"{path}: not a table of frame or second and score ({error})") from error
        return cls(table, by=by, calibration=calibration)

    def encode(self, frames: FrameBatch) -> Encoded:
        return {"frame": frames.frames, "second": frames.seconds}

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        where = np.asarray(encoded["frame" if self._by == "frames" else "second"], np.float64)
        return np.asarray(np.interp(where, self._keys, self._scores))

    def plain(self, scores: Scores) -> Floats:
        return np.clip(scores, 0, 1).astype(np.float32)  # interpolation may miss 0 or 1 by a rounding error


def _parse(data: Any) -> tuple[str, dict[Any, float]]:
    """ "frames" or "seconds", and the scores, from rows or a JSON object."""
    if isinstance(data, list):
        names = [*data[0]] if data and isinstance(data[0], dict) else []
        by, column = ("frames", "frame") if "frame" in names else ("seconds", "seconds")
        if data and not {column, "score"} <= {*names}:
            raise ValueError(f"columns must be frame,score or seconds,score, not {','.join(map(str, names))}")
        pairs = [(row[column], row["score"]) for row in data]
    else:
        by = next((by for by in ("frames", "seconds") if by in data), "frames")
        pairs = list(data.get(by, data).items())
    key = int if by == "frames" else seconds_of
    return by, {key(where): float(score) for where, score in pairs}
