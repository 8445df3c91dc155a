"""Calibration: raw scores become a relevance in [0, 1].

The paper's weights are made for matching probabilities, which lie near 0 or near 1. Other scores are mapped
so that few frames of a video score high and the rest low.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from framenest.config import Calibration
from framenest.frames import Doubles, Floats
from framenest.protocols import Encoded, MatchStrength

CENTRE_PERCENTILE = 96.5
SLOPE_DEVIATIONS = 0.5
OF_CLIP, OF_SIGLIP = (0.64, 0.6), (0.565, 0.554)
"""Levels of (1 + cosine) / 2: cosines of 0.28 and 0.2, and of 0.13 and 0.108. Not measured on questions."""
SIGLIP = "sigmoid of the model's logit", (0.1, 0.01)
"""What `plain` is, and its `match_levels`: far below 0.5 even for good matches; not measured on questions."""

Scores = Doubles


def standardise(scores: Scores, reference: Scores) -> Scores:
    """Scores (n,) in standard deviations from the mean of the reference (P,); 0 if it is constant."""
    spread = reference.std()
    return (scores - reference.mean()) / spread if spread > 1e-12 else np.zeros_like(scores)


def logistic(scores: Scores, reference: Scores) -> Floats:
    """1 / (1 + exp(−(s − c) / w)): c the 96.5th percentile of the reference, w half its deviation.

    The result is relative to the video: it says which of its frames match best, not how well.
    """
    width = SLOPE_DEVIATIONS * reference.std()
    centre = np.percentile(reference, CENTRE_PERCENTILE)
    return sigmoid((scores - centre) / width if width > 1e-12 else np.zeros_like(scores))


def sigmoid(scores: Scores) -> Floats:
    """1 / (1 + exp(−s))."""
    return (1.0 / (1.0 + np.exp(-np.clip(scores, -60, 60)))).astype(np.float32)


def certain(values: NDArray[np.floating[Any]], levels: tuple[float, float] | None) -> Floats:
    """Values in [0, 1] on a common scale: the levels of a strong match and of none become 0.75 and 0.25.

    >>> certain(np.array([0.0, 0.01, 0.1, 1.0]), (0.1, 0.01)).round(2).tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    if levels is None:
        return values.astype(np.float32)
    shares = (np.clip(np.float64(values), 1e-9, 1 - 1e-9), *levels)
    odds, strong, none = (np.log(share / (1 - share)) for share in shares)
    return sigmoid(np.log(3) * (2 * (odds - none) / (strong - none) - 1))


class Calibrated(ABC):
    """A scorer that calibrates its raw scores: "none" takes the model's own relevance, `plain`; "logistic"
    maps the scores over the video's probes."""

    own_relevance: str  # what `plain` is, in words for the outputs
    own_calibration: Literal["none", "logistic"] = "logistic"  # what "auto" means for this scorer

    match_levels: tuple[float, float] | None = None
    """Thresholds of `plain` for the best frame: from the first on, the match is strong; below the second, it
    is none. None if `plain` is relative to the video."""
    search_levels: tuple[float, float] | None = None
    """The same for `certainty` only: rough thresholds that give no verdict."""

    def __init__(self, calibration: Calibration = "auto") -> None:
        self._logistic = (self.own_calibration if calibration == "auto" else calibration) == "logistic"
        self._measured: tuple[str, Encoded, Scores] | None = None

    @property
    def relevance(self) -> str:
        """How scores become relevance, for the outputs."""
        return "compares frames of this video" if self._logistic else self.own_relevance

    @property
    def is_relative(self) -> bool:
        """Whether relevance depends on the video."""
        return self._logistic or self.match_levels is None

    @abstractmethod
    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        """(n,) raw scores, higher for better matches. `reference`: the probes' features."""

    def plain(self, scores: Scores) -> Floats:
        """(n,) the model's own relevance in [0, 1] of its scores; by default their sigmoid."""
        return sigmoid(scores)

    def match_strength(self, encoded: Encoded, question: str) -> MatchStrength | None:
        """By the model's own relevance of the best frame."""
        if self.match_levels is None or not len(next(iter(encoded.values()))):
            return None
        strong, none = self.match_levels
        best = float(self.plain(self._probe_scores(encoded, question)).max())
        return MatchStrength.of(best, strong=strong, none=none)

    def certainty(self, encoded: Encoded, question: str) -> Floats:
        """(n,) how surely frames match, comparable across videos: the model's own relevance, scaled."""
        own = self.plain(self.scores(encoded, question, encoded))
        return certain(own, self.match_levels or self.search_levels)

    def match(self, encoded: Encoded, question: str, *, reference: Encoded | None = None) -> Floats:
        """(n,) relevance in [0, 1]; see `framenest.Scorer`."""
        probes = encoded if reference is None else reference
        own = probes is encoded
        scores = self._probe_scores(probes, question) if own else self.scores(encoded, question, probes)
        return (
            logistic(scores, self._probe_scores(probes, question)) if self._logistic else self.plain(scores)
        )

    def _probe_scores(self, probes: Encoded, question: str) -> Scores:
        """Scores of the probes; the last question's are cached."""
        known = self._measured
        if known is None or known[0] != question or known[1] is not probes:
            self._measured = known = (question, probes, self.scores(probes, question, probes))
        return known[2]


class DualScorer(Calibrated):
    """Raw score = scale · cosine + bias; encode → {"vector": (n, d) float32}, unit vectors."""

    own_relevance = "(1 + cosine) / 2"
    scale, bias = 1.0, 0.0
    _asked: tuple[str, Floats] | None = None  # the last question and its vector

    @abstractmethod
    def _text(self, question: str) -> Floats:
        """(d,) unit vector of a question."""

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        """(n,) scale · cosine + bias."""
        text = self.text_vector(question).astype(np.float64)
        return np.asarray(self.scale * (self.frame_vectors(encoded).astype(np.float64) @ text) + self.bias)

    def plain(self, scores: Scores) -> Floats:
        """SigLIP's own relevance if its scale and bias are known, else (1 + cosine) / 2 within [0, 1]."""
        if self.match_levels:
            return super().plain(scores)
        cosines = (scores - self.bias) / self.scale
        return ((1 + cosines) / 2).clip(0, 1).astype(np.float32)

    def frame_vectors(self, encoded: Encoded) -> Floats:
        """(n, d) unit vectors of encoded frames."""
        return np.asarray(encoded["vector"])

    def text_vector(self, question: str) -> Floats:
        """(d,) unit vector of a question; the last one is cached."""
        known = self._asked
        if known is None or known[0] != question:
            self._asked = known = (question, self._text(question))
        return known[1]

    search_vectors, search_query = frame_vectors, text_vector  # `framenest.Searchable`
