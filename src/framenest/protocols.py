"""The interfaces that a scorer and a store must implement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from framenest.frames import Array, FrameBatch, ImageSpec

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

    Optional attributes:
        batch (int): the number of frames that `encode` prefers at a time; 1 by default.
        relevance (str): how scores become relevance in [0, 1]; outputs show it after the scorer's name.
        match_strength(encoded, question) → MatchStrength | None: whether anything in a video matches; gets
            the probes' features.
        seen(encoded, question) → list[str]: what each frame shows, as one line, such as "coffee mug 0.81".
        tell_reach(video): warns if the scorer knows only part of a video; called once per video.
        hold(encoded) → Encoded: moves features from disk to where `match` wants them, such as a GPU.
        timing (Timing): times stages inside `encode` and `match`, such as "load".

        certainty(encoded, question) → (n,) in [0, 1]: how surely each frame matches, comparable across
            videos; `search` uses it instead of the relevance.

    `FrameEmbedder` and `Embedder` are protocols for scorers that compare frames by vectors, `Searchable` is
    the one for scorers that can search many videos at once.
    """

    name: str
    """Enters cache keys and ranking files with `version`."""
    version: str
    inputs: tuple[ImageSpec, ...]
    """The images of each frame that `encode` needs; the decoder's scaler makes them."""

    def encode(self, frames: FrameBatch) -> Encoded:
        """Question-free features of n frames; `frames.pixels` are in the order of `inputs`."""
        ...

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        """(n,) relevance in [0, 1]. `reference`: the probes' features, for scorers that normalise over
        the video."""
        ...


@dataclass(frozen=True)
class MatchStrength:
    """How strongly a video matches a question, as far as the scorer can tell in absolute terms.

    `value` is in [0, 1], comparable between videos but not between scorers. `verdict` is "none" if nothing
    clearly matches, and "cannot tell" if the scorer knows no content word of the question; `value` then says
    nothing. `known` and `unknown` are its content words; both are empty if the scorer has no vocabulary.
    """

    value: Annotated[float, Meta(ge=0, le=1)]
    verdict: Literal["strong", "weak", "none", "cannot tell"]
    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The words that the scorer knows and those that it does not, for people; empty if it does not say.

        >>> MatchStrength(0.4, "weak", ("rabbit",), ("shoot", "arrow")).words
        'knows: rabbit; does not know: shoot, arrow'
        """
        told = (("knows", self.known), ("does not know", self.unknown))
        return "; ".join(f"{which}: {', '.join(words)}" for which, words in told if words)

    @property
    def order(self) -> tuple[int, float]:
        """Sorts match strengths: a better verdict first, then by value."""
        return ("cannot tell", "none", "weak", "strong").index(self.verdict), self.value

    def __str__(self) -> str:
        return self.verdict if self.verdict == "cannot tell" else f"{self.verdict} ({self.value:.2f})"

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
        ...

    def put(self, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Store a value atomically: readers see the old value or the whole new one.

        Raises:
            StoreError: it cannot be written; the work continues without it.
        """
        ...


@runtime_checkable
class FrameEmbedder(Protocol):
    """A scorer that has a vector for each frame, for selectors that compare frames with one another."""

    def frame_vectors(self, encoded: Encoded) -> NDArray[np.floating[Any]]:
        """(n, d) unit vectors of encoded frames."""
        ...


@runtime_checkable
class Embedder(FrameEmbedder, Protocol):
    """A scorer that has vectors of frames and of questions, for selectors that compare the two."""

    def text_vector(self, question: str) -> NDArray[np.floating[Any]]:
        """(d,) vector of a question, in the same space."""
        ...


@runtime_checkable
class Searchable(Protocol):
    """A scorer that can search many videos, with frame vectors that do not depend on the query.

    The higher the dot product with the query's vector, the better a frame matches.
    """

    def search_vectors(self, encoded: Encoded) -> NDArray[np.floating[Any]]:
        """(n, d) vectors of encoded frames; (n, t, d) if a frame has several: the best match counts."""
        ...

    def search_query(self, query: str) -> NDArray[np.floating[Any]]:
        """(d,) vector of a query."""
        ...
