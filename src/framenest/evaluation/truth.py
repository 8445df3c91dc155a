"""`noisy-truth:SNR`: relevance from the true intervals and noise, to compare selectors without a model."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Encoded
from framenest.scorers.calibration import logistic

STEP = 0.5  # seconds between independent draws
MEMORY = 8.0  # seconds over which the noise is alike


class NoisyTruthScorer:
    """1 inside an interval and 0 outside, times `snr`, plus noise of unit variance that changes slowly.

    The noise depends on the question and the seed alone, so every selector sees the same scores. It is
    calibrated like any other score that is no probability.
    """

    name = "noisy-truth"
    inputs: tuple[ImageSpec, ...] = ()

    def __init__(self, intervals: Sequence[tuple[float, float]], snr: float, seed: int = 0) -> None:
        self._intervals = intervals
        self._snr = snr
        self._seed = seed
        self.version = f"{snr:g} (logistic, seed {seed})"

    def encode(self, frames: FrameBatch) -> Encoded:
        return {"second": frames.seconds}

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        probes = encoded if reference is None else reference
        last = float(max(encoded["second"].max(initial=0), probes["second"].max(initial=0)))
        noise = self._noise(question, last)
        return logistic(self._score(encoded["second"], noise), self._score(probes["second"], noise))

    def _score(self, seconds: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
        inside = np.zeros(len(seconds))
        for start, end in self._intervals:
            inside[(start <= seconds) & (seconds <= end)] = 1.0
        result: NDArray[np.float64] = self._snr * inside + np.interp(
            seconds, np.arange(len(noise)) * STEP, noise
        )
        return result

    def _noise(self, question: str, last: float) -> NDArray[np.float64]:
        """White noise smoothed by a Gaussian in time, of unit variance; longer videos extend it."""
        rng = np.random.default_rng([self._seed, zlib.crc32(question.encode())])
        half = int(3 * MEMORY / STEP)
        window = np.exp(-0.5 * (np.arange(-half, half + 1) * STEP / MEMORY) ** 2)
        white = rng.standard_normal(int(last / STEP) + 2 + 2 * half)
        smooth: NDArray[np.float64] = np.convolve(white, window / np.sqrt((window**2).sum()), mode="valid")
        return smooth
