"""The scorer `ocr`: the text on screen against what the question names. Meant as a cue beside another."""

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
from framenest.scorers.question_words import items, matching

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
