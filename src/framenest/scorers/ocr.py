"""Text on screen, read by OCR, and the cue of what is written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version
from itertools import chain
from textwrap import shorten
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import needs_extra
from framenest.frames import Doubles, Floats, FrameBatch, ImageSpec, Ints, Pixels
from framenest.protocols import Encoded, MatchStrength, Progress, Store
from framenest.scorers.checkpoint import InBackground
from framenest.scorers.question_text import SentenceEncoder, has_kind_of_text, items, matching, text_vectors
from framenest.scorers.speech import answering
from framenest.scorers.video_features import VideoFeatures

TEXT_BYTES = 1024  # bytes of text kept per frame
OCR_PIXELS = 480
LOOK_PIXELS, READ_PIXELS = 320, 640  # long sides at which text is looked for, and at which its lines are
LOOK_LEVEL = 0.3  # confidence in text from which a frame is read; at 0.5, small print is overlooked
MAX_LINES = 32  # read of a frame, the highest; walls of names in closing credits take seconds
BLOCK_PIXELS, SAME_LEVELS = 20, 2  # a picture has the text of the last one if no block differs so much
LEAST_SURE, LEAST_LETTERS = 0.7, 3
"""Lines below this OCR confidence, or with fewer letters and digits, are more often noise than text."""
FUZZY_WEIGHT, KIND_WEIGHT = 0.4, 0.1
"""What names, numbers and words of the question, and the kind of text it asks for, add to the similarity."""
STRONG_TEXT, NO_TEXT = 0.55, 0.25
"""Scores of the best line: from the first a match is strong, below the second there is none."""
WRITTEN_WEIGHT = 0.8  # of what is written in the relevance, if a line strongly answers; the rest is seen
REASON_LETTERS = 80  # shown of a line

Readings = dict[int, tuple[str, float]]  # by a hash of a line's picture: the line, and how sure OCR is of it


class OcrScorer:
    """Fuzzy match of the question's quoted phrases, numbers and content words with the text on screen.

    encode → {"text": (n, 1024) uint8}: UTF-8, padded with zeros.
    """

    name = "ocr"
    relevance = "fuzzy match of words, rarer ones count more"
    inputs: tuple[ImageSpec, ...] = (ImageSpec.short_side(OCR_PIXELS),)

    def __init__(self) -> None:
        sides = f"{LOOK_PIXELS} and {READ_PIXELS} px"
        self.version = f"3, rapidocr {version('rapidocr')}, {sides}, {LEAST_SURE} sure"
        self._readers = InBackground(_load)
        self.timing = self._readers.timing
        self._last: tuple[NDArray[np.int16], Readings] = np.zeros(0, np.int16), {}

    @classmethod
    def load(cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> Self:
        """The scorer `ocr`; its package holds the weights."""
        return cls()

    def encode(self, frames: FrameBatch) -> Encoded:
        """The text on each frame; see `framenest.Scorer`."""
        texts = np.zeros((len(frames), TEXT_BYTES), dtype=np.uint8)
        for row, image in enumerate(frames.pixels[0]):
            text = self._text(image).encode()[:TEXT_BYTES]
            texts[row, : len(text)] = np.frombuffer(text, dtype=np.uint8)
        return {"text": texts}

    def _text(self, image: Pixels) -> str:
        """The lines on a frame. What has not changed since the frame before is not read again."""
        blocks = np.asarray(Image.fromarray(image).reduce(BLOCK_PIXELS), dtype=np.int16)
        last, readings = self._last
        if last.shape != blocks.shape or np.abs(blocks - last).max() >= SAME_LEVELS:
            readings = read_lines(*self._readers(), np.ascontiguousarray(image[:, :, ::-1]), readings)
            self._last = blocks, readings
        return "\n".join(line for line, sure in readings.values() if is_line(line, sure))

    def match(self, encoded: Encoded, question: str, *, reference: Encoded | None = None) -> Floats:
        """(n,) relevance in [0, 1]; see `framenest.Scorer`."""
        return matching(items(question), texts(encoded), texts(encoded if reference is None else reference))


def _load() -> tuple[Any, Any]:
    """Two readers: one looks whether there is text, the other reads. Each loads its networks at first use."""
    with needs_extra("tags", "rapidocr"):
        import rapidocr

    def reader(side: int, **more: Any) -> Any:
        settings = {"Global.log_level": "critical", "Global.use_cls": False, "Det.limit_type": "max"}
        # Several would spin while they wait: 2.5 times the processor time, and more seconds.
        threads = {"EngineConfig.onnxruntime.intra_op_num_threads": 1}
        return rapidocr.RapidOCR(params=settings | threads | {"Det.limit_side_len": side} | more)

    readers = reader(LOOK_PIXELS, **{"Det.box_thresh": LOOK_LEVEL}), reader(READ_PIXELS)
    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    return readers


def read_lines(look: Any, reader: Any, image: Pixels, known: Readings) -> Readings:
    """What is on an image (h, w, 3) BGR: at most MAX_LINES, the highest, from top to bottom.

    known: readings of an earlier frame, of which pictures that are the same are not read again.
    """
    from rapidocr.main import RapidOCRError

    if look(image, use_cls=False, use_rec=False).boxes is None:
        return {}
    try:
        crops, boxes = reader.detect_and_crop(image, {})
    except RapidOCRError:  # it sees none
        return {}
    corners = np.asarray(boxes.boxes, dtype=np.float64)
    heights = np.linalg.norm(corners[:, 3] - corners[:, 0], axis=1)
    highest = np.sort(np.argsort(-heights, kind="stable")[:MAX_LINES])
    pictures = {hash((crops[place].shape, crops[place].tobytes())): crops[place] for place in highest}
    new = [key for key in pictures if key not in known]
    reading = reader.recognize_txt([pictures[key] for key in new]) if new else None
    lines = zip(reading.txts, reading.scores, strict=True) if reading and reading.txts else ()
    known = known | dict(zip(new, lines, strict=False))
    return {key: known[key] for key in pictures if key in known}


def is_line(text: str, sure: float) -> bool:
    """Whether what OCR returned is a line of text and no noise; two digits are, and two ideographs."""
    size = sum(1.5 if sign > "\u2e80" or sign.isdigit() else 1 for sign in text if sign.isalnum())
    return sure >= LEAST_SURE and size >= LEAST_LETTERS


def texts(encoded: Encoded) -> list[str]:
    """The text on each frame."""
    return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in np.asarray(encoded["text"])]


class ScreenText:
    """What is written on screen, for one question.

    Every line, and the whole screen, is compared with the question as passages of a transcript are; names,
    numbers and words that match add to it, and so does the kind of text that the question asks for.
    features: from the OCR scorer.
    """

    def __init__(
        self, features: VideoFeatures, question: str, encoder: SentenceEncoder, store: Store
    ) -> None:
        self._features, self._question, self._encoder, self._store = features, question, encoder, store
        self._probes: tuple[list[str], Doubles] | None = None

    def join(
        self, frames: Ints, relevance: Floats, reasons: Sequence[str]
    ) -> tuple[Floats, list[str], Floats]:
        """Relevance (n,) in which what is written decides, as far as a line answers; reasons, the line read
        if it is one; and (n,) certainty, half of which is a strong line.

        The first call must be for the probes, which the others are relative to; if they have no text, nothing
        changes. reasons: of the relevance; none at all, or n.
        """
        read = self._features.get(frames, "text")
        by_frame = dict(zip(read.frames.tolist(), texts(read.encoded), strict=True))
        screens = [by_frame.get(number, "") for number in frames.tolist()]
        everywhere = self._probes[0] if self._probes else [text.replace("\n", " ") for text in screens]
        scored = self._scored([text for text in dict.fromkeys(screens) if text], everywhere)
        raw = np.array([scored[text][0] for text in screens])
        self._probes = self._probes or (everywhere, raw[raw > -np.inf])
        reasons = list(reasons) or [""] * len(screens)
        if not len(self._probes[1]):
            return relevance, reasons, np.zeros(len(frames), dtype=np.float32)
        answers = np.clip((self._probes[1].max() - NO_TEXT) / (STRONG_TEXT - NO_TEXT), 0, 1)
        weight = np.float32(WRITTEN_WEIGHT * answers)
        written = weight * answering(raw, self._probes[1])
        joined = written + (1 - weight) * relevance
        for row in np.flatnonzero(2 * written > joined):
            line = shorten(scored[screens[row]][1], REASON_LETTERS, placeholder=" …")
            reasons[row] = f'reads "{line}"'
        certainty = np.clip(raw, 0, 1) * (0.5 / STRONG_TEXT)
        return np.asarray(joined, dtype=np.float32), reasons, certainty.astype(np.float32)

    def match_strength(self) -> MatchStrength:
        """By the best line of the probes, after `join`."""
        best = self._probes[1].max(initial=0.0) if self._probes else 0.0
        return MatchStrength.of(float(np.clip(best, 0, 1)), strong=STRONG_TEXT, none=NO_TEXT)

    def _scored(self, screens: Sequence[str], everywhere: Sequence[str]) -> dict[str, tuple[float, str]]:
        """The score of each text of a frame, and its best line with those beside it; also of no text."""
        scored, split = {"": (-np.inf, "")}, [text.split("\n") for text in screens]
        every = sorted({*chain(*split), *map(" ".join, split)})
        if every:
            vectors = text_vectors(every, self._encoder, self._store, "screens")
            raw = vectors @ self._encoder(self._question)
            raw += FUZZY_WEIGHT * matching(items(self._question), every, everywhere)
            score = dict(zip(every, raw.tolist(), strict=True))
        for text, lines in zip(screens, split, strict=True):
            whole, best = " ".join(lines), max(range(len(lines)), key=lambda place: score[lines[place]])
            kind = KIND_WEIGHT * has_kind_of_text(whole, self._question)
            shown = " / ".join(lines[max(0, best - 1) : best + 2])  # "Director", and who that is
            scored[text] = max(score[lines[best]], score[whole]) + kind, shown
        return scored
