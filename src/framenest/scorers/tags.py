"""TagScorer: the embedded scorer, label names from a classifier and a detector."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest import models
from framenest.cache.directory import DirectoryStore, keep
from framenest.cache.hashes import digest
from framenest.config import Calibration, ScorerConfig
from framenest.frames import FrameBatch, ImageSpec, Pixels
from framenest.processes import cores
from framenest.protocols import Encoded, MatchStrength, Progress
from framenest.scorers.calibration import Calibrated, Scores, sigmoid, standardise
from framenest.scorers.checkpoint import loading
from framenest.scorers.onnx import onnx_session
from framenest.scorers.question_text import SentenceEncoder

SIZES = {"classes": 1000, "objects": 90}
PICTURES = (ImageSpec.crop(256, 224, 224, "bilinear"), ImageSpec.squash(320, 320, "bilinear"))
"""What the classifier and the detector look at."""
MOST_AT_ONCE = 8
"""Pictures; a detector takes about 40 MB."""
PROMPT = "a photo of a "
SHARPNESS = 0.05  # temperature of the match between a question and label names
STRONG_MATCH, NO_MATCH = 0.685, 0.261
"""Match strengths that one in ten wrong pairs exceeds, and one in twenty right pairs falls below."""
NAMED = 10  # labels of a frame that describe it
PIXEL_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
PIXEL_DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


class TagScorer(Calibrated):
    """Relevance from labels: for machines without the weights of an image-text model.

    Three readings of a frame's labels are summed and calibrated over the video's probes:

    - the classifier's probabilities of labels close to the question,
    - the detector's confidence in objects close to the question,
    - the cosine between the question and the mean of the frame's ten best labels.

    Relevance is relative to the video. encode → {"classes": (n, 1000) float32 probabilities, "objects":
    (n, 90) float32 confidences}, the latter where the detector's runtime is installed.

    Args:
        store: Where the model files lie (`framenest models fetch tags`).
        calibration: "logistic", "none", or "auto" for the former.

    Raises:
        ScorerError: A model file is missing or damaged.
        MissingExtra: onnxruntime or tokenizers is not installed.

    Example::

        MEC(scorer=TagScorer(DirectoryStore())).rank("kiln.mp4", "Where is the dog?")
    """

    name = "tags"
    batch = 64
    """Frames that `encode` likes at once: enough for all threads."""
    own_relevance = "sigmoid of the summed standard deviations, relative to the video"

    def __init__(self, store: DirectoryStore, calibration: Calibration = "auto") -> None:
        super().__init__(calibration)
        files = models.require("tags", store)
        # One picture per thread is a third faster than one picture on all threads.
        at_once = min(cores(), MOST_AT_ONCE)
        self._threads = ThreadPoolExecutor(at_once, "framenest-tags")
        self._classifier = _Classifier(files["mobilenetv2-7.onnx"], cores() // at_once)
        self._detector = _Detector.load(files["efficientdet_lite0.tflite"], at_once, cores() // at_once)
        self._text = SentenceEncoder(store)
        self.version = "1" if self._detector else "1 without the detector"
        self.inputs: tuple[ImageSpec, ...] = PICTURES if self._detector else PICTURES[:1]
        self._labels = _label_vectors(lambda: self._text, store)

    @classmethod
    def load(
        cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress
    ) -> TagScorer:
        """The scorer `tags`, which has one set of weights."""
        return cls(store, config.calibration)

    @classmethod
    def prepare(cls, checkpoint: str, store: DirectoryStore) -> None:
        """Compute the sentence vectors of all label names, which takes seconds, unless they are there."""
        _label_vectors(lambda: SentenceEncoder(store), store)

    @classmethod
    def pictures(
        cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig
    ) -> tuple[ImageSpec, ...] | None:
        """What `inputs` will be once it is loaded."""
        return PICTURES if importlib.util.find_spec("ai_edge_litert") else PICTURES[:1]

    def encode(self, frames: FrameBatch) -> Encoded:
        begun = {"classes": self._begin(self._classifier, frames.pixels[0])}
        if self._detector:
            begun["objects"] = self._begin(self._detector, frames.pixels[1])
        return {
            kind: np.stack([*rows])[which] if len(which) else np.zeros((0, SIZES[kind]), np.float32)
            for kind, (rows, which) in begun.items()
        }

    def _begin(
        self, look: Callable[[Pixels], NDArray[np.float32]], pictures: Pixels
    ) -> tuple[Iterator[NDArray[np.float32]], NDArray[np.int64]]:
        """What a network sees in pictures, each on a thread of its own; equal neighbours are looked at once.

        Returns:
            A row for every picture that differs from the one before, and (n,) the row of each picture.
        """
        new = [i == 0 or not np.array_equal(pictures[i], pictures[i - 1]) for i in range(len(pictures))]
        return self._threads.map(look, pictures[new]), np.cumsum(new) - 1

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        asked = self._text(question)
        readings = self._readings(encoded, asked)
        probes = readings if reference is encoded else self._readings(reference, asked)
        pairs = zip(readings, probes, strict=True)
        return np.asarray(sum(standardise(mine, theirs) for mine, theirs in pairs))

    def match_strength(self, encoded: Encoded, question: str) -> MatchStrength | None:
        """A logistic model of the best label readings, fitted to right and wrong pairs of question and video.

        docs/scorers.md tells how often it is right. Readings as a share of the best label's weight tell "this
        is the thing" from "the question is vague".
        """
        if not len(encoded["classes"]):
            return None
        asked = self._text(question)
        z, terms = (3.907, (0.334, 0.597, 0.643)) if "objects" in encoded else (3.449, (0.269, 0.697))
        measures = []
        for kind in sorted(encoded):  # classes, objects
            weights = _softmax(self._labels[kind] @ asked / SHARPNESS)
            readings = np.sort(encoded[kind] @ weights)
            measures += [float(readings[-3:].mean())] if kind == "classes" else []
            measures += [float(readings[-1] / weights.max())]
        z += sum(term * math.log(measure + 1e-5) for term, measure in zip(terms, measures, strict=True))
        value = 1 / (1 + math.exp(-z))
        return MatchStrength.of(value, strong=STRONG_MATCH, none=NO_MATCH)

    def plain(self, scores: Scores) -> NDArray[np.float32]:
        return sigmoid(scores)

    def frame_vectors(self, encoded: Encoded) -> NDArray[np.float32]:
        """(n, 384) what the classifier names in each frame, in the space of sentences."""
        return _describe(encoded["classes"], self._labels["classes"])

    def text_vector(self, question: str) -> NDArray[np.float32]:
        return self._text(question)

    def _readings(self, encoded: Encoded, asked: NDArray[np.float32]) -> list[NDArray[np.float64]]:
        classes, objects = self._labels["classes"], self._labels["objects"]
        probabilities = encoded["classes"]
        readings = [
            probabilities @ _softmax(classes @ asked / SHARPNESS),
            _describe(probabilities, classes) @ asked,
        ]
        if "objects" in encoded:
            readings.append(encoded["objects"] @ _softmax(objects @ asked / SHARPNESS))
        return [reading.astype(np.float64) for reading in readings]


def _softmax(values: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), dtype=np.float32)


def _describe(probabilities: NDArray[np.float32], labels: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of each frame's best labels, weighted by probability, as unit vectors. (n, 1000) → (n, d)."""
    best = np.argpartition(-probabilities, NAMED, axis=1)[:, :NAMED]
    weights = np.take_along_axis(probabilities, best, axis=1)
    vectors = np.einsum("nk,nkd->nd", weights, labels[best])
    result: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return result


def _label_vectors(
    encoder: Callable[[], SentenceEncoder], store: DirectoryStore
) -> dict[str, NDArray[np.float32]]:
    """Sentence vectors of all label names; computed once per machine."""
    labels = resources.files("framenest.scorers") / "labels"
    files = {"classes": "imagenet.txt", "objects": "coco.txt"}
    names = {kind: (labels / file).read_text(encoding="utf-8").splitlines() for kind, file in files.items()}
    key = f"text/{digest(names, PROMPT, [file.sha256 for file in models.TAGS])}"
    kept = store.get(key)
    if kept is not None:
        return kept[1]
    text = encoder()
    vectors = {
        kind: np.where([[n != "-"] for n in listed], text.many([PROMPT + n for n in listed]), 0)
        for kind, listed in names.items()
    }
    keep(store, key, {"kind": "text", "format": 1}, vectors)
    return vectors


class _Classifier:
    """MobileNetV2: (224, 224, 3) uint8 → probabilities (1000,). Thread-safe."""

    def __init__(self, path: Any, threads: int) -> None:
        self._session = onnx_session(path, "tags", threads)
        levels = np.arange(256, dtype=np.float32)[:, None]
        self._scaled = ((levels / 255 - PIXEL_MEAN) / PIXEL_DEVIATION).T

    def __call__(self, picture: Pixels) -> NDArray[np.float32]:
        scaled = np.stack([self._scaled[colour][picture[..., colour]] for colour in range(3)])
        found: NDArray[np.float32] = self._session.run(None, {"data": scaled[None]})[0][0]
        return _softmax(found)


class _Detector:
    """EfficientDet-Lite0: (320, 320, 3) uint8 → the best confidence per class (90,).

    Thread-safe, for as many threads as there are interpreters.
    """

    def __init__(self, interpreters: list[Any]) -> None:
        self._free: SimpleQueue[Any] = SimpleQueue()
        for interpreter in interpreters:
            interpreter.allocate_tensors()
            self._free.put(interpreter)
        self._input = interpreters[0].get_input_details()[0]["index"]
        self._scores = interpreters[0].get_output_details()[0]["index"]

    @classmethod
    def load(cls, path: Any, count: int, threads: int) -> _Detector | None:
        """With so many interpreters of so many threads; None where this platform has no runtime for it."""
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError:
            return None
        with _quiet_stderr(), loading(path, "tags"):
            return cls([Interpreter(str(path), num_threads=threads) for _ in range(count)])

    def __call__(self, picture: Pixels) -> NDArray[np.float32]:
        interpreter = self._free.get()
        try:
            interpreter.set_tensor(self._input, np.ascontiguousarray(picture[None]))
            interpreter.invoke()
            # A view: get_tensor copies 7 MB. It must be gone before the next invoke.
            return _best(interpreter.tensor(self._scores)()[0])
        finally:
            self._free.put(interpreter)


def _best(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest of each column, (n, k) → (k,); long rows are compared faster than short ones.

    >>> _best(np.array([[1, 5], [3, 2], [2, 4]], np.float32)).tolist()
    [3.0, 5.0]
    """
    count, columns = scores.shape
    together = math.gcd(count, 66)
    wide = scores.reshape(count // together, together * columns).max(axis=0)
    best: NDArray[np.float32] = wide.reshape(together, columns).max(axis=0)
    return best


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """The detector's runtime greets on stderr from C, where no setting reaches it."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
