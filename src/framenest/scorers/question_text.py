"""The words of a question, sentences as vectors, and which words the labels know."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import numpy as np

from framenest import models
from framenest.cache.directory import DirectoryStore, keep
from framenest.cache.hashes import digest
from framenest.errors import needs_extra
from framenest.frames import Floats
from framenest.protocols import Store
from framenest.scorers.checkpoint import EachProcess, token_ids, tokenizer_file
from framenest.scorers.onnx import onnx_session

_QUOTED = re.compile(r"[\"“„«]([^\"”“»]{2,})[\"”“»]|(?<!\w)['‘]([^'’]{2,})['’](?!\w)")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_WORD = re.compile(r"[^\W\d_]{3,}")
_SURE = {"phrase": 1.0, "name": 0.8, "number": 0.6, "word": 0.25}
"""The weight of each kind: plain words are on many screens that have nothing to do with the question."""

_LEAST = 75.0  # percent of similarity from which a likeness counts


def label_lines(name: str) -> list[str]:
    """The lines of a file of the folder `labels`."""
    return (resources.files("framenest.scorers") / "labels" / name).read_text("utf-8").splitlines()


def label_words(name: str) -> frozenset[str]:
    """The words of a file of the folder `labels`."""
    return frozenset(" ".join(label_lines(name)).split())


COMMON = label_words("common.txt")
"""Words that questions have and screens do not."""

_ASKS_FOR = {
    kind: re.compile("|".join(label_lines(f"asks_for_{kind}.txt")), re.IGNORECASE)
    for kind in ("text", "count")
}
_KINDS_OF_TEXT = [line.split("\t") for line in label_lines("kinds_of_text.txt")]
"""What a question has that asks for an address, a time, a name or a question, and what such a text has."""


def asks_for(what: Literal["text", "count"], question: str) -> bool:
    """Whether a question asks for something written; or how many there are, or when there is none.

    >>> asks_for("text", "Who directed the film?"), asks_for("count", "Who directed the film?")
    (True, False)
    """
    return _ASKS_FOR[what].search(question) is not None


def has_kind_of_text(text: str, question: str) -> bool:
    """Whether a text has the kind of thing that a question asks for: an address, a time, a name."""
    return any(re.search(asks, question, re.I) and re.search(has, text) for asks, has in _KINDS_OF_TEXT)


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
    phrases = [Phrase((a or b).strip().casefold(), "phrase") for a, b in _QUOTED.findall(question)]
    rest = _QUOTED.sub(" ", question)
    phrases += [Phrase(text, "number") for text in _NUMBER.findall(rest)]
    for place, word in enumerate(_WORD.findall(rest)):
        if word.casefold() not in COMMON:
            phrases.append(Phrase(word.casefold(), "name" if place and word[0].isupper() else "word"))
    return list(dict.fromkeys(phrases))


def likeness(wanted: Sequence[Phrase], texts: Sequence[str]) -> Floats:
    """(n, items) how well each text contains each item, in [0, 1]; numbers must match exactly."""
    with needs_extra("tags", "rapidfuzz"):
        from rapidfuzz import fuzz

    def like(item: Phrase, plain: str, words: set[str]) -> float:
        if item.kind == "phrase":
            return _certain(fuzz.partial_ratio(item.text, plain)) if plain else 0.0
        return max((_certain(fuzz.ratio(item.text, word)) for word in words), default=0.0)

    return _by_item(wanted, texts, like)


def mentions(wanted: Sequence[Phrase], texts: Sequence[str]) -> Floats:
    """(n, items) 1 if a text contains an item, in any form of the word, else 0.

    >>> mentions(items("When was the Tanaka kiln fired?"), ["Firing took Tanaka a day."]).tolist()
    [[1.0, 0.0, 1.0]]
    """

    def mentioned(item: Phrase, plain: str, words: set[str]) -> bool:
        return item.text in plain if item.kind == "phrase" else _stem(item.text) in map(_stem, words)

    return _by_item(wanted, texts, mentioned)


def _by_item(
    wanted: Sequence[Phrase], texts: Sequence[str], like: Callable[[Phrase, str, set[str]], float]
) -> Floats:
    """(n, items) `like(item, text, its words)`, or for a number whether the text has it."""
    result = np.zeros((len(texts), len(wanted)), dtype=np.float32)
    for row, text in enumerate(texts):
        plain = text.casefold()
        words, numbers = set(_WORD.findall(plain)), set(_NUMBER.findall(plain))
        for column, item in enumerate(wanted):
            number = item.kind == "number"
            result[row, column] = item.text in numbers if number else like(item, plain, words)
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
    like: Callable[[Sequence[Phrase], Sequence[str]], Floats] = likeness,
) -> Floats:
    """(n,) in [0, 1]: 1 − Π (1 − sure · rare · like) over the items.

    rare: the share of the texts `everywhere` that do not contain the item, so that a channel's name in the
    corner of every frame does not count. like: `likeness` for text on screen, `mentions` for a transcript.
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
    """Encodes a sentence as a unit vector (384,); sentences with the same meaning are close together."""

    name = "all-MiniLM-L6-v2"

    def __init__(self, store: DirectoryStore) -> None:
        files = models.require("tags", store)
        path = files["all-minilm-l6-v2-int8.onnx"]
        self._session = EachProcess(lambda: onnx_session(path, "tags", yielding=True))
        self._tokenizer = tokenizer_file(files["all-minilm-l6-v2-tokenizer.json"], "tags", MAX_TOKENS)

    def __call__(self, sentence: str) -> Floats:
        token_ids(self._tokenizer, sentence, "tags")  # warns if it is truncated
        vector: Floats = self.many([sentence])[0]
        return vector

    def many(self, sentences: Sequence[str]) -> Floats:
        """(n, 384); sentences of the same length run together, so that none needs padding."""
        tokens = [self._tokenizer.encode(sentence).ids for sentence in sentences]
        vectors = np.zeros((len(tokens), 384), dtype=np.float32)
        for length in sorted({len(ids) for ids in tokens}):
            rows = [row for row, ids in enumerate(tokens) if len(ids) == length]
            ids = np.array([tokens[row] for row in rows], dtype=np.int64)
            types = np.zeros_like(ids)
            inputs = {"input_ids": ids, "attention_mask": types + 1, "token_type_ids": types}
            means = self._session().run(None, inputs)[0].mean(axis=1)
            vectors[rows] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors


def text_vectors(texts: Sequence[str], encoder: SentenceEncoder, store: Store, kind: str) -> Floats:
    """(n, 384) unit vectors of texts, from the store if they are there. kind: of the key."""
    key = f"{kind}/{digest(texts, encoder.name)}"
    if (entry := store.get(key)) is not None:
        return entry[1]["vectors"]
    vectors = encoder.many(texts)
    keep(store, key, {"kind": kind.removesuffix("s"), "format": 1}, {"vectors": vectors})
    return vectors


PROMPT = "a photo of a "
SAME_THING = 0.8
"""Cosine of word and label from which they mean the same."""
SAME_KIND, OTHER_KIND = 0.76, 0.85
"""The same if the label ends with the word (rabbit, wood rabbit); the second if the word is a label itself
(dog, hot dog)."""
SAME_LETTERS = 4  # the encoder thinks that words with the same start are related (cockatoo, cockroach)
WIDER = {
    "person": "person persons people man men woman women boy boys girl girls child children kid kids baby "
    "babies lady guy somebody someone pedestrian pedestrians crowd",
    "bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe": "animal animals creature creatures",
    "bicycle,car,motorcycle,airplane,bus,train,truck,boat": "vehicle vehicles",
}
"""Labels, and words that mean any of them."""
GROUPS = {
    "animal": [*range(398)],
    "bird": [*range(7, 25), *range(80, 101), *range(127, 147)],
    "dog": [*range(151, 269)],
    "fish": [*range(7), *range(389, 398)],
    "insect": [*range(300, 327)],
}
"""Places of ImageNet's labels ("classes") whose names do not say what they are, such as poodle."""
IDLE = frozenset({*PROMPT.split(), "visible", "nobody", "somewhere", "anything", "anyone"})
"""Words that no label knows and that nobody would look for."""
MISLEADING = label_words("misleading.txt")
"""Words in names of labels that mean something else in most questions: book jacket, African grey, stole."""
_LETTERS = re.compile(r"[^\W\d_]+")
Places = Mapping[str, tuple[int, ...]]
"""Places of labels by kind."""


@dataclass(frozen=True)
class KnownWord:
    """A word or a name of several words in a question, and the labels that mean it."""

    text: str
    labels: Places


class Vocabulary:
    """The names of labels by kind ("-": none), to look up the content words of a question.

    vectors: (n, d) each, of the names after PROMPT.
    """

    def __init__(
        self, names: Mapping[str, Sequence[str]], vectors: Mapping[str, Floats], sentences: SentenceEncoder
    ) -> None:
        self._vectors, self._sentences = vectors, sentences
        self._words = {
            kind: [tuple(map(_singular, _LETTERS.findall(name.casefold()))) for name in listed]
            for kind, listed in names.items()
        }
        self._several = {words for listed in self._words.values() for words in listed if len(words) > 1}
        self._wider = {
            word: {
                kind: tuple(listed.index(name) for name in labels.split(",") if name in listed)
                for kind, listed in names.items()
            }
            for labels, words in WIDER.items()
            for word in words.split()
        }
        self.read = functools.lru_cache(maxsize=64)(self._read)

    def _read(self, question: str) -> tuple[tuple[KnownWord, ...], tuple[str, ...]]:
        """The terms of a question that labels know, and the content words that none knows."""
        texts = [text for text in dict.fromkeys(self._texts(question)) if text not in IDLE]
        vectors = self._sentences.many([PROMPT + text for text in texts])
        labels = [
            {} if _singular(text) in MISLEADING else self._wider.get(text) or self._labels(text, vector)
            for text, vector in zip(texts, vectors, strict=True)
        ]
        pairs = [
            (text, _grouped(text, mine) if any(mine.values()) else self._parts(text, vector, labels))
            for text, vector, mine in zip(texts, vectors, labels, strict=True)
        ]
        known = tuple(KnownWord(text, mine) for text, mine in pairs if any(mine.values()))
        return known, tuple(text for text, mine in pairs if not any(mine.values()))

    def _parts(self, text: str, vector: Floats, labels: Sequence[Places]) -> Places:
        """The labels of other words of the question that name this one, too: beer, in a glass of beer."""
        word = _singular(text)
        return {
            kind: tuple(
                place
                for place in sorted({place for mine in labels for place in mine.get(kind, ())})
                if word in self._words[kind][place] and vectors[place] @ vector >= SAME_KIND
            )
            for kind, vectors in self._vectors.items()
        }

    def _texts(self, question: str) -> list[str]:
        """The names of several words in a question, and its other words that are not common."""
        words, texts = _LETTERS.findall(question.casefold()), []
        while words:
            length = next((n for n in (3, 2) if tuple(map(_singular, words[:n])) in self._several), 1)
            text = " ".join(words[:length])
            single = (_singular(text),)
            short = len(text) < 3 and text.isascii() and not any(single in w for w in self._words.values())
            if length > 1 or text in self._wider or not (text in COMMON or short):
                texts.append(text)
            words = words[length:]
        return texts

    def _labels(self, text: str, vector: Floats) -> Places:
        """The places of labels that mean a text, by kind."""
        mine = tuple(map(_singular, text.split()))
        start, verb = mine[0][:SAME_LETTERS], text.endswith(("ing", "ed"))

        def least(words: tuple[str, ...], kin: float) -> float:
            """The cosine from which a label means the text."""
            if words == mine:
                return -np.inf
            if words[-len(mine) :] == mine:
                return kin
            begins = len(words) == 1 and text.startswith(words[0])  # skateboarding, skateboard
            unlike = not verb and not any(word.startswith(start) for word in words)
            return SAME_THING if begins or unlike else np.inf

        labels = {}
        for kind, listed in self._words.items():
            close = (self._vectors[kind] @ vector).tolist()
            kin = OTHER_KIND if mine in listed else SAME_KIND
            pairs = enumerate(zip(listed, close, strict=True))
            labels[kind] = tuple(at for at, (words, c) in pairs if words and c >= least(words, kin))
        return labels


def _grouped(text: str, labels: Places) -> Places:
    """Labels of a text with those of its group."""
    return {**labels, "classes": tuple({*labels["classes"], *GROUPS.get(_singular(text), [])})}


def _singular(word: str) -> str:
    """A noun without the ending of its plural.

    >>> [_singular(word) for word in ("cups", "benches", "knives", "ponies", "bus", "glass")]
    ['cup', 'bench', 'knife', 'pony', 'bus', 'glass']
    """
    for ending, instead in (("ies", "y"), ("ives", "ife"), ("ches", "ch"), ("shes", "sh"), ("xes", "x")):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word.removesuffix(ending) + instead
    return word[:-1] if word.endswith("s") and word[-2:] not in ("ss", "us", "is") and len(word) > 3 else word
