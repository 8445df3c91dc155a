"""The seams: what a decoder, a scorer and a store must offer to be used by the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from framenest.frames import Array, FrameBatch, ImageSpec, VideoInfo

Encoded = Mapping[str, Any]
"""A scorer's question-free features: named arrays whose first axis is the frame, or what stands for arrays
that lie elsewhere, such as on a GPU (`scorers/torch_devices.py`: Rows)."""

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) while long work goes on."""


@runtime_checkable
class Decoder(Protocol):
    """Exact frames of one video by number."""

    name: str
    """Of the implementation; enters cache keys with `version`."""
    version: str

    @property
    def info(self) -> VideoInfo: ...

    @property
    def seconds(self) -> NDArray[np.float64]:
        """(N,) presentation time of every frame, counted from the first; ascending."""
        ...

    @property
    def key_frames(self) -> NDArray[np.int64]:
        """Frame numbers that decode without any other frame, ascending."""
        ...

    def read(
        self, frames: Sequence[int] | NDArray[np.int64], *, sizes: Sequence[ImageSpec | None] = (None,)
    ) -> Iterator[FrameBatch]:
        """Decode frames by number, in the order asked, in batches of bounded memory.

        `sizes` names the pictures wanted of each frame; None is the original size, upright, with
        square pixels. A frame that will not decode is left out: `FrameBatch.frames` says which came.
        """
        ...


@runtime_checkable
class Scorer(Protocol):
    """How well a frame matches a question.

    Works in two steps, so that what does not depend on the question is computed once per video.
    A scorer may also have `batch`, the number of frames it likes to encode at once; `relevance`, words
    for how its numbers came into [0, 1]; `hold(encoded)`, which brings kept features to where `match`
    wants them; and `timing`, the seconds of its own stages.
    """

    name: str
    """Enters cache keys and ranking files with `version`."""
    version: str
    inputs: tuple[ImageSpec, ...]
    """The pictures `encode` wants of each frame; the decoder's scaler makes them."""

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
class StoreEntry:
    """One value in a store. `idle`: seconds since it was last used, by the store's own clock."""

    key: str
    size: int
    idle: float


@runtime_checkable
class Store(Protocol):
    """Where indexes and features are kept. Values are a JSON header and named arrays.

    The pipeline needs `get` and `put`; batches also `has`, upkeep the rest.
    """

    def get(self, key: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The value under a key such as "index/3f2a…", or None. A damaged entry is reported and None."""
        ...

    def put(self, key: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Keep a value; readers see the old value or the whole new one, never a part."""
        ...

    def has(self, key: str) -> bool:
        """Whether there is a value under a key, without reading it."""
        ...

    def entries(self) -> Iterator[StoreEntry]:
        """Everything that is kept, in no order."""
        ...

    def check(self, key: str) -> str | None:
        """What is wrong with the value under a key; None where it is whole."""
        ...

    def remove(self, key: str) -> bool:
        """Remove a value unless it is in use; whether it is gone."""
        ...

    def sweep(self, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove what interrupted writers left behind; returns files and bytes."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """What some scorers also offer, for selectors that need vectors."""

    def frame_vectors(self, encoded: Encoded) -> NDArray[np.floating[Any]]:
        """(n, d) vectors of encoded frames."""
        ...

    def text_vector(self, question: str) -> NDArray[np.floating[Any]]:
        """(d,) vector of a question, in the same space."""
        ...
