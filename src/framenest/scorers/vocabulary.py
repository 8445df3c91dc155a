"""Which words of a question the labels know."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framenest.scorers.question_text import COMMON, SentenceEncoder, label_words

PROMPT = "a photo of a "
SAME_THING = 0.8
"""Cosine of word and label from which they mean the same."""
SAME_KIND, OTHER_KIND = 0.76, 0.85
"""The same if the label ends with the word (rabbit, wood rabbit); the second if the word is a label itself
(dog, hot dog)."""
SPELLING = 4  # letters; the encoder thinks that words with the same start are related (cockatoo, cockroach)
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
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class KnownWord:
    """A word or a name of several words in a question, and the labels that mean it: places by kind."""

    text: str
    labels: Mapping[str, tuple[int, ...]]


class Vocabulary:
    """The names of labels, to look up the content words of a question.

    Args:
        names: of each kind of labels; "-" where there is none.
        vectors: (n, d) each: sentence vectors of the names, after PROMPT.
        sentences: makes vectors of words.
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[str]],
        vectors: Mapping[str, NDArray[np.float32]],
        sentences: SentenceEncoder,
    ) -> None:
        self._vectors, self._sentences = vectors, sentences
        self._words = {
            kind: [tuple(map(_singular, _WORD.findall(name.casefold()))) for name in listed]
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
        found = [text for text in dict.fromkeys(self._texts(question)) if text not in IDLE]
        vectors = self._sentences.many([PROMPT + text for text in found])
        labels = [
            {}
            if _singular(text) in MISLEADING
            else _grouped(text, self._wider.get(text) or self._labels(text, vector))
            for text, vector in zip(found, vectors, strict=True)
        ]
        pairs = list(zip(found, labels, strict=True))
        known = tuple(KnownWord(text, mine) for text, mine in pairs if any(mine.values()))
        return known, tuple(text for text, mine in pairs if not any(mine.values()))

    def _texts(self, question: str) -> list[str]:
        """The names of several words in a question, and its other words that are not common."""
        words, texts = _WORD.findall(question.casefold()), []
        while words:
            length = next(
                (n for n in (3, 2) if tuple(map(_singular, words[:n])) in self._several and len(words) >= n),
                1,
            )
            text = " ".join(words[:length])
            single = (_singular(text),)
            short = len(text) < 3 and text.isascii() and not any(single in w for w in self._words.values())
            if length > 1 or text in self._wider or not (text in COMMON or short):
                texts.append(text)
            words = words[length:]
        return texts

    def _labels(self, text: str, vector: NDArray[np.float32]) -> dict[str, tuple[int, ...]]:
        """The places of labels that mean a text, by kind."""
        asked = tuple(map(_singular, text.split()))
        start, verb = asked[0][:SPELLING], text.endswith(("ing", "ed"))
        found = {}
        for kind, listed in self._words.items():
            close = self._vectors[kind] @ vector
            kin = OTHER_KIND if asked in listed else SAME_KIND

            def means(words: tuple[str, ...], cosine: float, kin: float = kin) -> bool:
                if words == asked:
                    return True
                if words[-len(asked) :] == asked:
                    return cosine >= kin
                if len(words) == 1 and text.startswith(words[0]):  # skateboarding, skateboard
                    return cosine >= SAME_THING
                alike = any(word.startswith(start) for word in words)
                return cosine >= SAME_THING and not alike and not verb

            found[kind] = tuple(
                place for place, words in enumerate(listed) if words and means(words, float(close[place]))
            )
        return found


def _grouped(text: str, labels: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    """Labels of a text with those of its group."""
    group = GROUPS.get(_singular(text), [])
    return {
        kind: tuple({*places, *group}) if kind == "classes" else places for kind, places in labels.items()
    }


def _singular(word: str) -> str:
    """A noun without the ending of its plural.

    >>> [_singular(word) for word in ("cups", "benches", "knives", "ponies", "bus", "glass")]
    ['cup', 'bench', 'knife', 'pony', 'bus', 'glass']
    """
    for ending, instead in (("ies", "y"), ("ives", "ife"), ("ches", "ch"), ("shes", "sh"), ("xes", "x")):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word.removesuffix(ending) + instead
    return word[:-1] if word.endswith("s") and word[-2:] not in ("ss", "us", "is") and len(word) > 3 else word
