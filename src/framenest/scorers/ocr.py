"""Text on screen, read by OCR."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Encoded, Progress
from framenest.scorers.checkpoint import InBackground
from framenest.scorers.feature_store import Features
from framenest.scorers.question_text import items, matching
from framenest.scorers.video_features import VideoFeatures

TEXT_BYTES = 1024
"""Bytes of text kept per frame."""
OCR_PIXELS = 480
LEAST_SURE = 0.7
"""Lines below this OCR confidence are more often noise than text."""


class OcrScorer:
    """Fuzzy match of the question's quoted phrases, numbers and content words with the text on screen.

    encode → {"text": (n, 1024) uint8}: UTF-8, padded with zeros.
    """

    name = "ocr"
    relevance = "fuzzy match of words, rarer ones count more"
    inputs: tuple[ImageSpec, ...] = (ImageSpec.short_side(OCR_PIXELS),)

    def __init__(self) -> None:
        self.version = f"rapidocr {version('rapidocr')}, {OCR_PIXELS} px, {LEAST_SURE} sure"
        self._reader = InBackground(_load)
        self.timing = self._reader.timing

    @classmethod
    def load(
        cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress
    ) -> OcrScorer:
        """The scorer `ocr`; its package holds the weights."""
        return cls()

    def encode(self, frames: FrameBatch) -> Encoded:
        """The text on each frame; see `framenest.Scorer`."""
        reader = self._reader()
        texts = np.zeros((len(frames), TEXT_BYTES), dtype=np.uint8)
        for row, image in enumerate(frames.pixels[0]):
            reading = reader(np.ascontiguousarray(image[:, :, ::-1]))
            lines = zip(reading.txts or (), reading.scores or (), strict=True)
            text = "\n".join(line for line, sure in lines if sure >= LEAST_SURE).encode()[:TEXT_BYTES]
            texts[row, : len(text)] = np.frombuffer(text, dtype=np.uint8)
        return {"text": texts}

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        """(n,) relevance in [0, 1]; see `framenest.Scorer`."""
        return matching(items(question), texts(encoded), texts(encoded if reference is None else reference))


def _load() -> Any:
    import rapidocr

    reader = rapidocr.RapidOCR(params={"Global.log_level": "critical"})
    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    return reader


def texts(encoded: Encoded) -> list[str]:
    """The text on each frame."""
    return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in np.asarray(encoded["text"])]


class ScreenText:
    """The cue of text on screen: how well it matches a question.

    OCR costs hundreds of milliseconds a frame, so only `budget` frames are read: the probes first, then zoom
    frames, both in bit-reversed order, which spreads any number of them evenly over the video. Which frames
    are read depends on nothing else, so rankings are reproducible. features: from the OCR scorer.
    """

    def __init__(self, features: VideoFeatures, question: str, budget: int) -> None:
        self.read = 0
        """Frames read so far."""
        self._features, self._question, self._budget = features, question, budget
        self._probes: Features | None = None

    def cue(self, frames: NDArray[np.int64]) -> NDArray[np.float32]:
        """(n,) cue in [0, 1], 0 for a frame beyond the budget; the first call must be for the probes."""
        left = self._budget - self.read
        chosen = self._features.get(np.sort(frames[spread(len(frames))[:left]]), "text")
        self.read += len(chosen.frames)
        if self._probes is None:
            self._probes = chosen  # they say which words are on every frame
        result = np.zeros(len(frames), dtype=np.float32)
        if len(self._probes.frames):
            result[np.isin(frames, chosen.frames)] = self._features.relevance(
                chosen, self._question, self._probes
            )
        return result


def spread(count: int) -> NDArray[np.int64]:
    """0 … count−1 in bit-reversed order, so that every prefix is spread evenly.

    >>> spread(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    bits = max(1, (count - 1).bit_length())
    numbers = np.arange(count, dtype=np.int64)
    turned = np.zeros_like(numbers)
    for bit in range(bits):
        turned |= ((numbers >> bit) & 1) << (bits - 1 - bit)
    return np.argsort(turned, kind="stable")
