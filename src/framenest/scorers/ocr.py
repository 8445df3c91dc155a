"""Text on screen, read by OCR."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra
from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Encoded, Progress
from framenest.scorers.feature_store import Features
from framenest.scorers.question_text import items, matching
from framenest.scorers.video_features import FeatureCache

LONGEST = 1024
"""Bytes of text kept of a frame."""
SHORT_SIDE = 480
LEAST_SURE = 0.7
"""Lines that the reader is less sure of are noise more often than text."""


class OcrScorer:
    """Fuzzy match of the question's quoted phrases, numbers and content words with the text read.

    encode → {"text": (n, 1024) uint8}: UTF-8, padded with zeros.
    """

    name = "ocr"
    version: str
    """Of the reader, with its settings."""
    relevance = "fuzzy match of words, rarer ones count more"
    inputs: tuple[ImageSpec, ...] = (ImageSpec.short_side(SHORT_SIDE),)

    def __init__(self) -> None:
        try:
            import rapidocr
        except ImportError as error:
            raise MissingExtra("ocr", "rapidocr") from error
        self._reader: Any = rapidocr.RapidOCR(params={"Global.log_level": "critical"})
        logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
        self.version = f"rapidocr {version('rapidocr')}, {SHORT_SIDE} px, {LEAST_SURE} sure"

    @classmethod
    def load(
        cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress
    ) -> OcrScorer:
        """The scorer `ocr`; its package brings the weights."""
        return cls()

    def encode(self, frames: FrameBatch) -> Encoded:
        kept = np.zeros((len(frames), LONGEST), dtype=np.uint8)
        for row, picture in enumerate(frames.pixels[0]):
            text = self._read(picture).encode()[:LONGEST]
            kept[row, : len(text)] = np.frombuffer(text, dtype=np.uint8)
        return {"text": kept}

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        return matching(items(question), texts(encoded), texts(encoded if reference is None else reference))

    def _read(self, picture: Any) -> str:
        found = self._reader(np.ascontiguousarray(picture[:, :, ::-1]))
        lines = zip(found.txts or (), found.scores or (), strict=True)
        return "\n".join(line for line, sure in lines if sure >= LEAST_SURE)


def texts(encoded: Encoded) -> list[str]:
    """The text read on each frame."""
    return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in np.asarray(encoded["text"])]


class ScreenText:
    """How well the text on screen matches a question.

    OCR costs hundreds of milliseconds a frame, so only so many frames are read: the probes first, then zoom
    frames. They are taken in bit-reversed order, so that however few they are, they are spread over the
    video. Which frames are read depends on nothing else, so a ranking can be reproduced.

    Args:
        cache: the video as the OCR scorer sees it.
        question: what was asked.
        budget: frames to read.
    """

    def __init__(self, cache: FeatureCache, question: str, budget: int) -> None:
        self.read = 0
        """Frames read so far."""
        self._cache = cache
        self._question = question
        self._budget = budget
        self._probes: Features | None = None

    def cue(self, frames: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read what the budget still allows of the frames; the first call must be for the probes.

        Returns:
            (n,) cue in [0, 1]; 0 for a frame that was not read.
        """
        left = self._budget - self.read
        chosen = self._cache.see(np.sort(frames[spread(len(frames))[:left]]), "text")
        self.read += len(chosen.frames)
        if self._probes is None:
            self._probes = chosen  # they tell which words are everywhere
        result = np.zeros(len(frames), dtype=np.float32)
        if len(self._probes.frames):
            result[np.isin(frames, chosen.frames)] = self._cache.relevance(
                chosen, self._question, self._probes
            )
        return result


def spread(count: int) -> NDArray[np.int64]:
    """0 … count−1 in bit-reversed order: every prefix of it is spread evenly.

    >>> spread(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    bits = max(1, (count - 1).bit_length())
    numbers = np.arange(count, dtype=np.int64)
    turned = np.zeros_like(numbers)
    for bit in range(bits):
        turned |= ((numbers >> bit) & 1) << (bits - 1 - bit)
    return np.argsort(turned, kind="stable")
