"""The scorer `tags`: label names from a classifier and a detector."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import numpy as np

from framenest import models
from framenest.cache.directory import DirectoryStore
from framenest.config import Calibration, ScorerConfig
from framenest.frames import Doubles, Floats, FrameBatch, ImageSpec, Ints, Mask, Pixels
from framenest.processes import cores
from framenest.protocols import Encoded, MatchStrength, Progress
from framenest.scorers.calibration import Calibrated, Scores, certain, standardise
from framenest.scorers.checkpoint import InBackground, load_errors
from framenest.scorers.colours import colour_shares, colours_of
from framenest.scorers.onnx import onnx_session
from framenest.scorers.question_text import (
    PROMPT,
    KnownWord,
    SentenceEncoder,
    Vocabulary,
    asks_for,
    label_lines,
    text_vectors,
)

SIZES = {"classes": 1000, "objects": 90}
IMAGES = (ImageSpec.crop(256, 224, 224, "bilinear"), ImageSpec.squash(320, 320, "bilinear"))
"""The inputs of the classifier and of the detector."""
MOST_AT_ONCE = 8  # images; a detector takes about 40 MB
SHARPNESS = 0.05  # temperature of the match between a question and label names
STRONG_LEVEL, NONE_LEVEL = 0.8, 0.261
"""Match strengths that one in fourteen wrong pairs exceed, and that one in seven right pairs fall below."""
LABEL_LEVELS = {"classes": 0.2, "objects": 0.3}
"""Probability and confidence from which a network counts as having seen what a word means."""
TRUST = 0.7  # in the network that is surest of the word it is least sure of
LARGE_ANIMALS = frozenset(("horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe"))
COVER = 0.15
"""Mean confidence in the words of a question, unknown ones as 0, from which a match can be strong."""
ABSENT = 0.2  # confidence from which a thing may be there after all
DRAWN_LEVEL, DRAWN_DOUBT = 0.045, "much of it looks drawn, or like a screen: tags knows photographs"
"""Mean probability of the class web site, into which the classifier puts drawings, screens and titles."""
LARGE_ANIMAL_LEVEL = 0.84
"""Confidence for these animals: the detector is surer if they are there, and mistakes others for them."""
CLEAR, AGREED, DETECTED, CLEAR_COVER = 0.85, 0.4, 0.9, 0.25
"""What a frame needs to be a sure result of a search: the certainty, the geometric mean of both networks for
each thing, the detector's confidence if it alone knows the word, and the mean with unknown words as 0."""
LEAST_KEPT = 1e-4  # label scores below this are stored as 0 for searches
CLOSEST_WEIGHTS = (0.05, 0.25)
"""Of the label closest to a query, if labels know its words, and if they do not."""
SURE = (0.355, 0.145)
"""Levels that one in a hundred frames of a search exceeds, and one in ten (benchmarks/search_quality.py)."""
NAMED = 10  # labels of a frame that describe it
SHOWN, LEAST_SHOWN = 2, 0.05  # labels shown for a frame, and the least confidence in them
COLOUR_WEIGHT = 0.4  # of a colour in the relevance
COLOUR_PERCENT = 99.0  # percent of the probes that have no more of a colour than a frame that fully shows it
PIXEL_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
PIXEL_DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


class TagScorer(Calibrated):
    """Relevance from labels, for machines without the weights of an image-text model.

    The scorer sums three readings of a frame's labels and calibrates them over the video's probes:

    - the classifier's probabilities of labels close to the question,
    - the detector's confidence in objects close to the question,
    - the cosine between the question and the mean of the frame's ten best labels.

    If the question names a colour and no object of the detector, the colour's share of the frame joins them.

    Relevance is relative to the video. encode → {"classes": (n, 1000) float32 probabilities, "objects":
    (n, 90) float32 confidences, "colours": (n, 11) float32 shares}; "objects" only if the detector's runtime
    is installed.

    Raises:
        ScorerError: a model file is missing or damaged.
    """

    name = "tags"
    batch = 32  # enough frames for all threads, and one or two seconds of work for two of them
    own_relevance = "compares frames of this video, without calibration"

    def __init__(self, store: DirectoryStore, calibration: Calibration = "auto") -> None:
        super().__init__(calibration)
        files = models.require("tags", store)
        detects = importlib.util.find_spec("ai_edge_litert") is not None  # not on every platform
        self.version = "2" if detects else "2 without the detector"
        self.inputs: tuple[ImageSpec, ...] = IMAGES if detects else IMAGES[:1]
        self._model = InBackground(lambda: _Models(files, store, detects=detects))
        self.timing = self._model.timing

    @classmethod
    def load(cls, checkpoint: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> Self:
        """The scorer `tags`, which has one set of weights."""
        return cls(store, config.calibration)

    def encode(self, frames: FrameBatch) -> Encoded:
        """Probabilities of labels; see `framenest.Scorer`."""
        model = self._model()
        begun = {"classes": model.begin(model.classifier, frames.pixels[0])}
        if model.detector:
            begun["objects"] = model.begin(model.detector, frames.pixels[1])
        try:
            return {"colours": colour_shares(frames.pixels[-1])} | {
                kind: np.array([row.result() for row in rows], np.float32).reshape(-1, SIZES[kind])[which]
                for kind, (rows, which) in begun.items()
            }
        finally:
            for row in chain(*(rows for rows, _ in begun.values())):
                row.cancel()  # not started at Ctrl-C

    def scores(self, encoded: Encoded, question: str, reference: Encoded) -> Scores:
        """(n,) the sum of the readings, each standardised over the probes."""
        vector = self.text_vector(question)
        readings = self._readings(encoded, vector)
        probes = readings if reference is encoded else self._readings(reference, vector)
        pairs = zip(readings, probes, strict=True)
        return np.asarray(sum(standardise(mine, theirs) for mine, theirs in pairs))

    def match(self, encoded: Encoded, question: str, *, reference: Encoded | None = None) -> Floats:
        """(n,) relevance in [0, 1]; see `framenest.Scorer`."""
        labels = super().match(encoded, question, reference=reference)
        colour = self._colour(encoded, question, encoded if reference is None else reference)
        return labels if colour is None else (1 - np.float32(COLOUR_WEIGHT)) * labels + colour

    def _colour(self, encoded: Encoded, question: str, reference: Encoded) -> Floats | None:
        """(n,) what the question's colours add to the relevance; None if they do not count.

        The share of the picture, relative to the probes that have most of it.
        """
        if not (places := self._colour_places(question)):
            return None
        mine, probes = (of["colours"][:, places].mean(axis=1) for of in (encoded, reference))
        most = max(np.percentile(probes, COLOUR_PERCENT), 1e-6)
        return np.asarray(COLOUR_WEIGHT * np.minimum(1, mine / most), dtype=np.float32)

    def _colour_places(self, question: str) -> list[int]:
        """The places of a question's colours; none if an object has them: the picture's say little of it."""
        known, _, colours = self._terms(question)
        return [] if any(word.labels["objects"] for word in known) else [*colours.values()]

    def _terms(self, question: str) -> tuple[list[KnownWord], tuple[str, ...], dict[str, int]]:
        """The terms of a question that labels know, those unknown, and its colours with their places."""
        known, unknown = self._model().vocabulary.read(question)
        colours = colours_of(question, [*(word.text for word in known), *unknown])
        others = tuple(text for text in unknown if text not in colours)
        return [word for word in known if word.text not in colours], others, colours

    def match_strength(self, encoded: Encoded, question: str) -> MatchStrength | None:
        """A logistic model of the best label readings, corrected by what is seen of the words it knows.

        It is fitted to right and wrong pairs of question and video; docs/scorers.md says how often it is
        right. Readings relative to the best label's weight distinguish "this is the thing" from "the question
        is vague".
        """
        if not len(encoded["classes"]):
            return None
        vector, labels = self.text_vector(question), self._model().labels
        z, terms = (3.907, (0.334, 0.597, 0.643)) if "objects" in encoded else (3.449, (0.269, 0.697))
        measures = []
        for kind in _kinds(encoded):
            weights = _softmax(labels[kind] @ vector / SHARPNESS)
            readings = np.sort(encoded[kind] @ weights)
            measures += [float(readings[-3:].mean())] if kind == "classes" else []
            measures += [float(readings[-1] / weights.max())]
        z += sum(term * math.log(measure + 1e-5) for term, measure in zip(terms, measures, strict=True))
        value = 1 / (1 + math.exp(-z))
        known, unknown, colours = self._terms(question)
        texts = (*(word.text for word in known), *colours)
        if not texts or asks_for("count", question):
            return MatchStrength(round(value, 4), "cannot tell", texts, unknown)
        if not known:  # most pictures have some of a colour
            return MatchStrength(round(value, 4), "weak", texts, unknown)
        things = self._things(known)
        vague, words = not things and unknown, things or known
        seen = [self._seen(encoded, word) for word in words]
        confidences = [{kind: float(values.max()) for kind, values in one.items()} for one in seen]
        sure = [max(v if v >= LABEL_LEVELS[kind] else 0.0 for kind, v in one.items()) for one in confidences]
        if max(sure) and not vague:
            value = 1 - (1 - value) * (1 - TRUST * min(sure))
        else:
            detectable = "objects" in encoded and any(word.labels["objects"] for word in words)
            value *= NONE_LEVEL if detectable and not max(sure) else STRONG_LEVEL
        strength = MatchStrength.of(value, strong=STRONG_LEVEL, none=NONE_LEVEL)
        cover = 0.0 if vague else sum(sure) / (len(sure) + len(unknown))
        perhaps = colours or max(max(one.values()) for one in confidences) >= ABSENT
        drawn = self._looks_drawn(encoded)
        doubtful = cover < COVER or drawn
        if (strength.verdict == "strong" and doubtful) or (strength.verdict == "none" and perhaps):
            strength = replace(strength, verdict="weak")
        there = [word.text for word, value in zip(words, sure, strict=True) if value]
        halves = tuple(there) if strength.verdict == "weak" and unknown else ()
        return replace(strength, known=texts, unknown=unknown, there=halves, doubt=DRAWN_DOUBT * drawn)

    def _looks_drawn(self, encoded: Encoded) -> bool:
        place = self._model().names["classes"].index("web site")
        return bool(encoded["classes"][:, place].mean() >= DRAWN_LEVEL)

    def _things(self, known: Sequence[KnownWord]) -> list[KnownWord]:
        """Known words without people, who are in most videos: they say little next to any other word."""
        person = (self._model().names["objects"].index("person"),)
        return [word for word in known if word.labels["objects"] != person]

    def labels(self, encoded: Encoded, question: str, reference: Encoded) -> list[str]:
        """What has the largest share of each frame's score, labels or a colour; "" if nothing speaks for it.

        Example::

            scorer.labels(probes, "Where is the cup?", probes)  # ['coffee mug 0.81, bowl 0.45']
        """
        share = self._shares(encoded, self.text_vector(question), reference)
        (known, _, colours), kinds = self._terms(question), self._model().names
        every = [name for kind in _kinds(encoded) for name in kinds[kind]]
        names, places = np.unique(every, return_inverse=True)  # both networks know a laptop
        shares, sure = np.zeros((2, len(share), len(names)), dtype=np.float32)
        np.add.at(shares.T, places, share.T)
        np.maximum.at(sure.T, places, _joined(encoded).T)
        shares[(sure < LEAST_SHOWN) | (names == "-")] = 0
        meant = [kinds[kind][at] for word in known for kind, mine in word.labels.items() for at in mine]
        named = shares * np.isin(names, meant)
        shares = np.where(named.max(axis=1, keepdims=True) > 0, named, shares)
        lines = []
        for mine, confidence in zip(shares, sure, strict=True):
            best = [i for i in np.argsort(-mine, kind="stable")[:SHOWN] if mine[i] > 0]
            shown = [f"{names[i]} {confidence[i]:.2f}" for i in best if mine[i] >= mine[best[0]] / 2]
            lines.append(", ".join(shown))
        colour = self._colour(encoded, question, reference)
        if colour is not None:
            least = self.match(encoded, question, reference=reference) / 2 if known else 0
            for row in np.flatnonzero(colour > least):
                parts = zip(colours, encoded["colours"][row, [*colours.values()]], strict=True)
                shown = [f"{word} {part:.0%} of the picture" for word, part in parts if part >= 0.005]
                lines[row] = ", ".join(shown)
        return lines

    def _shares(self, encoded: Encoded, question: Floats, reference: Encoded) -> Floats:
        """(n, 1090) the part of each label in `scores`, which are the sums over the labels."""
        labels = self._model().labels

        def parts(of: Encoded) -> list[Floats]:
            classes = of["classes"]
            best = np.where(classes >= np.partition(classes, -NAMED, axis=1)[:, [-NAMED]], classes, 0)
            lengths = np.linalg.norm(best @ labels["classes"], axis=1, keepdims=True)
            named = best * (labels["classes"] @ question) / np.maximum(lengths, 1e-9)
            return [named, *(of[kind] * _softmax(labels[kind] @ question / SHARPNESS) for kind in _kinds(of))]

        named, classes, *objects = (
            (mine - probes.mean(axis=0)) / max(probes.sum(axis=1).std(), 1e-9)
            for mine, probes in zip(parts(encoded), parts(reference), strict=True)
        )
        return np.concatenate([named + classes, *objects], axis=1)

    def _seen(self, encoded: Encoded, word: KnownWord) -> dict[str, Floats]:
        """(n,) the confidence of each network that has it in a word; unsure of a large animal is 0."""
        classes, objects = (list(word.labels[kind]) for kind in SIZES)
        seen = {"classes": encoded["classes"][:, classes].sum(axis=1)}
        if objects and "objects" in encoded:
            large = [self._model().names["objects"][place] in LARGE_ANIMALS for place in objects]
            values = encoded["objects"][:, objects]
            seen["objects"] = np.where(large & (values < LARGE_ANIMAL_LEVEL), 0, values).max(axis=1)
        return seen

    def frame_vectors(self, encoded: Encoded) -> Floats:
        """(n, 384) sentence vectors of what the classifier names in each frame."""
        return _describe(encoded["classes"], self._model().labels["classes"])

    def text_vector(self, question: str) -> Floats:
        """(384,) sentence vector of a question."""
        return self._model().sentences(question)

    def search_vectors(self, encoded: Encoded) -> Floats:
        """(n, 1090) scores of all labels; see `framenest.Searchable`."""
        scores = _joined(encoded)
        return np.where(scores < LEAST_KEPT, 0, scores)

    def search_query(self, query: str) -> Floats:
        """(1090,) 1 for labels that mean a word, shared by all words; a little for labels close to it."""
        model, weights = self._model(), []
        known = self._terms(query)[0]
        for kind in ("classes", "objects") if model.detector else ("classes",):
            close = _softmax(model.labels[kind] @ self.text_vector(query) / SHARPNESS)
            weights.append(close * (CLOSEST_WEIGHTS[not known] / close.max()))
            for word in known:
                weights[-1][list(word.labels[kind])] += 1 / len(known)
        return np.concatenate(weights)

    def known_words(self, query: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words that labels mean, with colours that count, and the others."""
        known, unknown, colours = self._terms(query)
        counts = self._colour_places(query)
        words, names = tuple(word.text for word in known), tuple(colours)
        return (words + names, unknown) if counts else (words, unknown + names)

    def certainty(self, encoded: Encoded, question: str) -> Floats:
        """(n,) how sure the networks are of the question's words, and of the one they are least sure of.

        At least the share of the picture that has its colours, if they count.
        """
        value = self.search_vectors(encoded) @ self.search_query(question)
        words = [np.max([*self._seen(encoded, word).values()], axis=0) for word in self._terms(question)[0]]
        value = 0.7 * value + 0.3 * np.min(words, axis=0) if words else value
        sure, places = certain(value / (1 + value), SURE), self._colour_places(question)
        return np.maximum(sure, encoded["colours"][:, places].mean(axis=1)) if places else sure

    def clearly_shows(self, encoded: Encoded, query: str) -> Mask:
        """(n,) whether both networks see the known things of a query, and few of its words are unknown.

        Of a word that both know, the geometric mean of their confidences counts. Never of what looks drawn.
        """
        known, *others = self._terms(query)
        unknown = [*chain(*others)]  # labels say nothing of colours
        things = self._things(known) or [word for word in known if not unknown]
        clear = (self.certainty(encoded, query) >= CLEAR) & (not self._looks_drawn(encoded))
        agreed = [self._agreed(encoded, word) for word in things]
        for one in agreed:
            clear &= one >= AGREED
        cover = CLEAR_COVER * (len(agreed) + len(unknown))
        return clear & (np.sum(agreed, axis=0) >= cover if agreed else False)

    def _agreed(self, encoded: Encoded, word: KnownWord) -> Floats:
        """(n,) how sure the networks that know a word are of it; the detector alone must be very sure."""
        seen = self._seen(encoded, word)
        if (detected := seen.get("objects")) is None:
            return seen["classes"]
        alone = not word.labels["classes"]
        agreed = np.where(detected >= DETECTED, detected, 0) if alone else np.sqrt(seen["classes"] * detected)
        return np.asarray(agreed, dtype=np.float32)

    def _readings(self, encoded: Encoded, question: Floats) -> list[Doubles]:
        labels, probabilities = self._model().labels, encoded["classes"]
        readings = [
            probabilities @ _softmax(labels["classes"] @ question / SHARPNESS),
            _describe(probabilities, labels["classes"]) @ question,
        ]
        if "objects" in encoded:
            readings.append(encoded["objects"] @ _softmax(labels["objects"] @ question / SHARPNESS))
        return [reading.astype(np.float64) for reading in readings]


class _Models:
    def __init__(self, files: dict[str, Path], store: DirectoryStore, *, detects: bool) -> None:
        at_once = min(cores(), MOST_AT_ONCE)  # one per thread is a third faster than one on all threads
        threads = cores() // at_once
        self._threads = ThreadPoolExecutor(at_once, "framenest-tags")
        self.sentences = SentenceEncoder(store)
        self.classifier = _Classifier(files["mobilenetv2-7.onnx"], threads)
        path = files["efficientdet_lite0.tflite"]
        self.detector = _Detector(path, at_once, threads) if detects else None
        self.names = {"classes": label_lines("imagenet.txt"), "objects": label_lines("coco.txt")}
        self.labels = {kind: self._vectors(listed, store) for kind, listed in self.names.items()}
        self.vocabulary = Vocabulary(self.names, self.labels, self.sentences)

    def _vectors(self, names: list[str], store: DirectoryStore) -> Floats:
        """Sentence vectors of label names; computed once per machine."""
        vectors = text_vectors([PROMPT + name for name in names], self.sentences, store, "text")
        return np.where([[name != "-"] for name in names], vectors, 0)

    def begin(self, network: Callable[[Pixels], Floats], images: Pixels) -> tuple[list[Future[Floats]], Ints]:
        """Run a network on images, one per thread; equal neighbours run once. → rows, and (n,) which."""
        new = [i == 0 or not np.array_equal(images[i], images[i - 1]) for i in range(len(images))]
        which = np.cumsum(new, dtype=np.int64) - 1
        return [self._threads.submit(network, image) for image in images[new]], which


def _softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), dtype=np.float32)


def _kinds(encoded: Encoded) -> list[str]:
    """The kinds of labels: classes, and objects if there is a detector."""
    return [kind for kind in SIZES if kind in encoded]


def _joined(encoded: Encoded) -> Floats:
    """(n, 1090) what the networks say of all labels."""
    return np.concatenate([encoded[kind] for kind in _kinds(encoded)], axis=1)


def _describe(probabilities: Floats, labels: Floats) -> Floats:
    """The mean of each frame's best labels, weighted by probability, as unit vectors. (n, 1000) → (n, d)."""
    best = np.argpartition(-probabilities, NAMED, axis=1)[:, :NAMED]
    weights = np.take_along_axis(probabilities, best, axis=1)
    vectors = np.einsum("nk,nkd->nd", weights, labels[best])
    result: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return result


class _Classifier:
    """MobileNetV2: (224, 224, 3) uint8 → probabilities (1000,). Thread-safe."""

    def __init__(self, path: Path, threads: int) -> None:
        self._session = onnx_session(path, "tags", threads)
        levels = np.arange(256, dtype=np.float32)[:, None]
        self._scaled = ((levels / 255 - PIXEL_MEAN) / PIXEL_DEVIATION).T

    def __call__(self, image: Pixels) -> Floats:
        scaled = np.stack([self._scaled[colour][image[..., colour]] for colour in range(3)])
        logits: Floats = self._session.run(None, {"data": scaled[None]})[0][0]
        return _softmax(logits)


class _Detector:
    """EfficientDet-Lite0: (320, 320, 3) uint8 → the best confidence per class (90,).

    Thread-safe, for `count` threads at a time: one interpreter each, with `threads` threads of its own.
    """

    def __init__(self, path: Path, count: int, threads: int) -> None:
        self._free: SimpleQueue[Any] = SimpleQueue()
        with _quiet_stderr(), load_errors(path, "tags"):
            from ai_edge_litert.interpreter import Interpreter

            interpreters = [Interpreter(str(path), num_threads=threads) for _ in range(count)]
            for interpreter in interpreters:
                interpreter.allocate_tensors()
                self._free.put(interpreter)
        self._input = interpreters[0].get_input_details()[0]["index"]
        self._scores = interpreters[0].get_output_details()[0]["index"]

    def __call__(self, image: Pixels) -> Floats:
        interpreter = self._free.get()
        try:
            interpreter.set_tensor(self._input, np.ascontiguousarray(image[None]))
            interpreter.invoke()
            # A view of (19206, 90), because get_tensor copies 7 MB. It must be gone before the next invoke.
            # Long rows compare faster.
            wide = interpreter.tensor(self._scores)()[0].reshape(291, -1).max(axis=0)
            return np.asarray(wide.reshape(-1, SIZES["objects"]).max(axis=0))
        finally:
            self._free.put(interpreter)


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Silence the banner that the detector's runtime prints from C, which no setting turns off."""
    stderr = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
