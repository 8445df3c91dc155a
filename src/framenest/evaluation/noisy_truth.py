"""`noisy-truth:SNR`: relevance made of the true intervals and noise, to compare selectors without a model."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import ConfigError, ScorerError
from framenest.evaluation.grounded_questions import Intervals, inside
from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Encoded, Progress
from framenest.scorers.calibration import logistic

STEP_SECONDS = 0.5  # between independent draws
NOISE_SECONDS = 8.0  # standard deviation of the Gaussian that smooths the noise


class NoisyTruthScorer:
    """A scorer of known quality: the truth times `snr`, plus smooth noise of unit variance.

    The truth is 1 inside an interval and 0 outside. The noise depends only on the question and the seed, so
    every selector sees the same scores. They are calibrated like any other score that is not a probability.

    snr: signal-to-noise ratio; 0 knows nothing, 4 finds nearly everything. intervals: where the answer is
    visible. `framenest evaluate` sets those of each question with `learn`; without them the scorer cannot
    match.

    >>> NoisyTruthScorer(2, ((7.0, 8.5),)).relevance
    'SNR 2, logistic, seed 0'
    """

    name = "noisy-truth"
    version = "1"  # the encoding does not depend on ratio and seed, so all share one cache
    inputs: tuple[ImageSpec, ...] = ()

    def __init__(self, snr: float, intervals: Intervals | None = None, seed: int = 0) -> None:
        self._snr, self._intervals, self._seed = snr, intervals, seed

    @property
    def relevance(self) -> str:
        """How scores are mapped to [0, 1]."""
        return f"SNR {self._snr:g}, logistic, seed {self._seed}"

    @classmethod
    def load(
        cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress
    ) -> NoisyTruthScorer:
        """`noisy-truth:SNR`."""
        try:
            return cls(float(checkpoint))
        except ValueError as error:
            raise ConfigError(
                f"noisy-truth needs a ratio, as in noisy-truth:2, not 'noisy-truth:{checkpoint}'"
            ) from error

    def learn(self, intervals: Intervals, seed: int = 0) -> None:
        """Switch to another question's truth, and to the noise of this seed.

        This changes the scorer in place, because a session keeps it together with its features.
        """
        self._intervals, self._seed = intervals, seed

    def encode(self, frames: FrameBatch) -> Encoded:
        """{"second": (n,) float64}."""
        return {"second": frames.seconds}

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        """(n,) relevance in [0, 1]."""
        if self._intervals is None:
            raise ScorerError("noisy-truth works only in `framenest evaluate`, where answers are known")
        both = [rows["second"] for rows in (encoded, encoded if reference is None else reference)]
        noise = self._noise(question, float(max(seconds.max(initial=0) for seconds in both)))
        times = np.arange(len(noise)) * STEP_SECONDS
        truths = [self._snr * inside(seconds, self._intervals) for seconds in both]
        scores = [truth + np.interp(at, times, noise) for truth, at in zip(truths, both, strict=True)]
        return logistic(*scores)

    def _noise(self, question: str, last: float) -> NDArray[np.float64]:
        """White noise smoothed by a Gaussian, with unit variance; longer videos extend it."""
        rng = np.random.default_rng([self._seed, zlib.crc32(question.encode())])
        half = int(3 * NOISE_SECONDS / STEP_SECONDS)
        window = np.exp(-0.5 * (np.arange(-half, half + 1) * STEP_SECONDS / NOISE_SECONDS) ** 2)
        white = rng.standard_normal(int(last / STEP_SECONDS) + 2 + 2 * half)
        smooth: NDArray[np.float64] = np.convolve(white, window / np.sqrt((window**2).sum()), mode="valid")
        return smooth
