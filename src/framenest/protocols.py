"""The interfaces that a scorer and a store must implement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from framenest.config import ScorerConfig
from framenest.frames import Array, Floats, FrameBatch, ImageSpec, Mask
from framenest.progress import Timing

Encoded = Mapping[str, Any]
"""A scorer's question-free features: named arrays whose first axis is the frame, or array-likes on a device
(`scorers/torch_networks.py`: Rows)."""

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) while long work goes on."""


@runtime_checkable
class Scorer(Protocol):
    """How well a frame matches a question.

    Works in two steps, so that what does not depend on the question is computed once per video. The
    constructor should be cheap: load the weights in the background, and wait for them in `encode` and `match`
    (`framenest.scorers.checkpoint.InBackground` does both).

    What else a scorer may be able to do are protocols of their own, all optional: `Batcher`, `Explainer`,
    `Judge`, `Labeller`, `Grader`, `FrameEmbedder`, `Embedder`, `Searchable`, `Holder`, `Timer`.
    A scorer that has a name for users is loaded by `ScorerLoader.load`.
    """

    name: str
    """Enters cache keys and ranking files with `version`."""
    version: str
    inputs: tuple[ImageSpec, ...]
    """The images of each frame that `encode` needs; the decoder's scaler makes them."""

    def encode(self, frames: FrameBatch) -> Encoded:
        """Question-free features of n frames; `frames.pixels` are in the order of `inputs`."""

    def match(self, encoded: Encoded, question: str, *, reference: Encoded | None = None) -> Floats:
        """(n,) relevance in [0, 1]. `reference`: the probes' features, for scorers that normalise over
        the video."""


@runtime_checkable
class ScorerLoader(Protocol):
    """The class of a scorer that a package registers in the entry-point group `framenest.scorers`."""

    @classmethod
    def load(cls, checkpoint: str, store: Store, config: ScorerConfig, progress: Progress) -> Scorer:
        """Make the scorer `NAME:CHECKPOINT`; ScorerError if its weights, or the checkpoint, do not exist.

        checkpoint: "" for `NAME`. store: holds weights that `framenest models fetch` downloaded.
        """


@runtime_checkable
class Batcher(Protocol):
    """A scorer that is faster with several frames at a time."""

    batch: int
    """The frames that `encode` prefers at a time; others get one or a few."""


@runtime_checkable
class Explainer(Protocol):
    """A scorer that says how its scores become relevance."""

    @property
    def relevance(self) -> str:
        """In a few words, such as "matching probability"; outputs show it after the scorer's name."""


@runtime_checkable
class Judge(Protocol):
    """A scorer that can tell whether anything in a video matches."""

    def match_strength(self, encoded: Encoded, question: str) -> MatchStrength | None:
        """How strongly the probes match; None if it cannot tell for this video."""


@runtime_checkable
class Labeller(Protocol):
    """A scorer that names what frames show."""

    def labels(self, encoded: Encoded, question: str, reference: Encoded) -> list[str]:
        """Why each of n frames matches, in a line such as "coffee mug 0.81"; "" if nothing speaks for it.

        reference: the probes' features.
        """


@runtime_checkable
class Grader(Protocol):
    """A scorer whose relevance depends on the video, and that has an absolute measure, too."""

    def certainty(self, encoded: Encoded, question: str) -> Floats:
        """(n,) in [0, 1]: how surely frames match, comparable across videos; for `search`."""


@runtime_checkable
class Holder(Protocol):
    """A scorer that keeps features on a device."""

    def hold(self, encoded: Encoded) -> Encoded:
        """Move features from disk to where `match` wants them, such as a GPU."""


@runtime_checkable
class Timer(Protocol):
    """A scorer that times stages inside `encode` and `match`, such as "load"."""

    timing: Timing


@runtime_checkable
class FrameEmbedder(Protocol):
    """A scorer that has a vector for each frame, for selectors that compare frames with one another."""

    def frame_vectors(self, encoded: Encoded) -> NDArray[np.floating[Any]]:
        """(n, d) unit vectors of encoded frames."""


@runtime_checkable
class Embedder(FrameEmbedder, Protocol):
    """A scorer that has vectors of frames and of questions, for selectors that compare the two."""

    def text_vector(self, question: str) -> NDArray[np.floating[Any]]:
        """(d,) vector of a question, in the same space."""


@runtime_checkable
class Searchable(Protocol):
    """A scorer that can search many videos, with frame vectors that do not depend on the query.

    The higher the dot product with the query's vector, the better a frame matches.
    """

    def search_vectors(self, encoded: Encoded) -> NDArray[np.floating[Any]]:
        """(n, d) vectors of encoded frames; (n, t, d) if a frame has several: the best match counts."""

    def search_query(self, query: str) -> NDArray[np.floating[Any]]:
        """(d,) vector of a query."""


@runtime_checkable
class HasVocabulary(Protocol):
    """A scorer that searches for the words that it knows, and not for others."""

    def known_words(self, query: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The content words of a query that it searches for, and those that it does not know."""

    def clearly_shows(self, encoded: Encoded, query: str) -> Mask:
        """(n,) whether each frame clearly shows the things that a query names."""


GUESS = "the scorer knows no word of the question, so the ranking is a guess; see what frames show"
NO_MATCH = "nothing in this video clearly matches the question; these are the best frames"


@dataclass(frozen=True)
class MatchStrength:
    """How strongly a video matches a question, as far as the scorer can tell in absolute terms.

    `value` is in [0, 1], comparable between videos but not between scorers. `verdict` is "none" if nothing
    clearly matches, and "cannot tell" if the scorer knows no content word of the question; `value` then says
    nothing. `known` and `unknown` are its content words; both are empty if the scorer has no vocabulary.
    `there` are the known things that were seen where only unknown words tell the moment; else empty.
    `doubt` says why the scorer may be wrong about this video; else empty.
    """

    value: Annotated[float, Meta(ge=0, le=1)]
    verdict: Literal["strong", "weak", "none", "cannot tell"]
    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def words(self) -> str:
        """The words that the scorer knows and those that it does not, and its doubt, for people.

        >>> MatchStrength(0.4, "weak", ("rabbit",), ("shoot", "arrow")).words
        'knows: rabbit; does not know: shoot, arrow'
        >>> MatchStrength(0.4, "weak", ("rabbit",), ("shoot",), ("rabbit",)).words
        'seems to show: rabbit; cannot tell which of its moments (does not know: shoot)'
        """
        known, unknown = ", ".join(self.known), ", ".join(self.unknown)
        texts = [f"knows: {known}" * bool(known), f"does not know: {unknown}" * bool(unknown)]
        if self.there:
            texts = [f"seems to show: {', '.join(self.there)}"]
            texts.append(f"cannot tell which of its moments (does not know: {unknown})")
        return "; ".join(filter(None, [*texts, self.doubt]))

    @property
    def vocabulary(self) -> dict[str, list[str]]:
        """The same words for programs."""
        return {"knows": [*self.known], "does_not_know": [*self.unknown]}

    @property
    def is_guess(self) -> bool:
        """Whether the scorer knows no content word of the question."""
        return self.verdict == "cannot tell" and not self.known

    @property
    def order(self) -> tuple[int, float]:
        """Sorts match strengths: a better verdict first, then by value."""
        return ("cannot tell", "none", "weak", "strong").index(self.verdict), self.value

    @classmethod
    def of(cls, value: float, *, strong: float, none: float) -> MatchStrength:
        """Make one from a value: strong from the level `strong` on, none below the level `none`.

        >>> MatchStrength.of(0.4, strong=0.7, none=0.3).verdict
        'weak'
        """
        return cls(round(value, 4), "strong" if value >= strong else "none" if value < none else "weak")


@runtime_checkable
class Store(Protocol):
    """A cache of indexes, features and timelines. Your own store needs two methods.

    A key is a kind and a name, such as "index/3f2a9c". A value is a header of JSON values and named arrays.

    >>> class DictStore(dict):
    ...     def put(self, key, header, arrays):
    ...         self[key] = dict(header), dict(arrays)
    >>> isinstance(DictStore(), Store)
    True
    """

    def get(self, key: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The value of a key; None if there is none. A damaged value is None, with a warning."""

    def put(self, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Store a value atomically: readers see the old value or the whole new one.

        Raises:
            StoreError: it cannot be written; the work continues without it.
        """
