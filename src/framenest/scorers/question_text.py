"""The words of a question, and sentences as vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from framenest import models
from framenest.cache.directory import DirectoryStore
from framenest.errors import needs_extra
from framenest.scorers.checkpoint import token_ids, tokenizer_file
from framenest.scorers.onnx import onnx_session

_QUOTED = re.compile(r"[\"“„«]([^\"”“»]{2,})[\"”“»]|(?<!\w)['‘]([^'’]{2,})['’](?!\w)")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_WORD = re.compile(r"[^\W\d_]{3,}")
_SURE = {"phrase": 1.0, "name": 0.8, "number": 0.6, "word": 0.25}
"""The weight of each kind: plain words are on many screens that have nothing to do with the question."""

_LEAST = 75.0  # percent of similarity from which a likeness counts


def label_words(name: str) -> frozenset[str]:
    """The words of a file of the folder `labels`."""
    return frozenset((resources.files("framenest.scorers") / "labels" / name).read_text("utf-8").split())


COMMON = label_words("common.txt")
"""Words that questions have and screens do not."""


@dataclass(frozen=True)
class Phrase:
    """Something to look for: a quoted phrase, a name (a capital inside the sentence), a number, a word."""

    text: str
    kind: str


def items(question: str) -> list[Phrase]:
    """What to look for on screen.

    >>> [i.text for i in items('Who opens the "Café Lumière" at 7:30?')]
    ['café lumière', '7:30', 'opens']
    >>> items("Where does the Orient stop?")[0]
    Phrase(text='orient', kind='name')
    """
    found = [Phrase((a or b).strip().casefold(), "phrase") for a, b in _QUOTED.findall(question)]
    rest = _QUOTED.sub(" ", question)
    found += [Phrase(text, "number") for text in _NUMBER.findall(rest)]
    for place, word in enumerate(_WORD.findall(rest)):
        if word.casefold() not in COMMON:
            found.append(Phrase(word.casefold(), "name" if place and word[0].isupper() else "word"))
    return list(dict.fromkeys(found))


def likeness(wanted: Sequence[Phrase], texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, items) how well each text contains each item, in [0, 1]; numbers must match exactly."""
    with needs_extra("ocr", "rapidfuzz"):
        from rapidfuzz import fuzz
    result = np.zeros((len(texts), len(wanted)), dtype=np.float32)
    for row, text in enumerate(texts):
        plain = text.casefold()
        tokens = set(_WORD.findall(plain))
        numbers = set(_NUMBER.findall(plain))
        for column, item in enumerate(wanted):
            if item.kind == "number":
                result[row, column] = item.text in numbers
            elif item.kind == "phrase":
                result[row, column] = _certain(fuzz.partial_ratio(item.text, plain)) if plain else 0
            else:
                result[row, column] = max((_certain(fuzz.ratio(item.text, t)) for t in tokens), default=0)
    return result


def heard(wanted: Sequence[Phrase], texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, items) 1 if a text contains an item, in any form of the word, else 0.

    >>> heard(items("When was the Tanaka kiln fired?"), ["Firing took Tanaka a day."]).tolist()
    [[1.0, 0.0, 1.0]]
    """
    result = np.zeros((len(texts), len(wanted)), dtype=np.float32)
    for row, text in enumerate(texts):
        plain = text.casefold()
        words = {*map(_stem, _WORD.findall(plain))}
        numbers = set(_NUMBER.findall(plain))
        for column, item in enumerate(wanted):
            if item.kind == "number":
                result[row, column] = item.text in numbers
            else:
                result[row, column] = (
                    item.text in plain if item.kind == "phrase" else _stem(item.text) in words
                )
    return result


def _stem(word: str) -> str:
    """A word without its ending: fires, fired, firing and fire are the same."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e")


def matching(
    wanted: Sequence[Phrase],
    texts: Sequence[str],
    everywhere: Sequence[str],
    like: Callable[[Sequence[Phrase], Sequence[str]], NDArray[np.float32]] = likeness,
) -> NDArray[np.float32]:
    """(n,) in [0, 1]: 1 − Π (1 − sure · rare · like) over the items.

    rare: the share of the texts `everywhere` that do not contain the item, so that a channel's name in the
    corner of every frame does not count. like: `likeness` for text on screen, `heard` for a transcript.
    """
    if not wanted or not len(texts):
        return np.zeros(len(texts), dtype=np.float32)
    common = (like(wanted, everywhere) >= 0.5).mean(axis=0) if len(everywhere) else 0.0
    sure = np.array([_SURE[item.kind] for item in wanted])
    missed = 1 - sure * (1 - common) * like(wanted, texts)
    return np.asarray(1 - missed.prod(axis=1), dtype=np.float32)


def _certain(ratio: float) -> float:
    return max(0.0, (ratio - _LEAST) / (100 - _LEAST))


MAX_TOKENS = 256  # tokens read of a sentence


class SentenceEncoder:
    """Encodes a sentence as a unit vector (384,); sentences with the same meaning are close together.

    Args:
        store: the store with the model files (`framenest models fetch tags`).

    Raises:
        ScorerError: a model file is missing or damaged.
        MissingExtra: onnxruntime or tokenizers is not installed.
    """

    name = "all-MiniLM-L6-v2"

    def __init__(self, store: DirectoryStore) -> None:
        files = models.require("tags", store)
        self._session = onnx_session(files["all-minilm-l6-v2-int8.onnx"], "tags", yielding=True)
        path = files["all-minilm-l6-v2-tokenizer.json"]
        self._tokenizer = tokenizer_file(path, "tags", MAX_TOKENS)

    def __call__(self, sentence: str) -> NDArray[np.float32]:
        token_ids(self._tokenizer, sentence, "tags")  # warns if it is truncated
        vector: NDArray[np.float32] = self.many([sentence])[0]
        return vector

    def many(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """(n, 384); sentences of the same length run together, so that none needs padding."""
        tokens = [self._tokenizer.encode(sentence).ids for sentence in sentences]
        vectors = np.zeros((len(tokens), 384), dtype=np.float32)
        for length in sorted({len(ids) for ids in tokens}):
            rows = [row for row, ids in enumerate(tokens) if len(ids) == length]
            ids = np.array([tokens[row] for row in rows], dtype=np.int64)
            inputs = {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            }
            means = self._session.run(None, inputs)[0].mean(axis=1)
            vectors[rows] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors
