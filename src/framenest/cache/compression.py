"""Lossless compression of arrays: a filter that makes neighbours alike, then deflate at its fastest level.

Measured by `benchmarks/storage.py`: thumbnails come to about half, timelines to less than a tenth.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.frames import Array

LEVEL = 1
Recipe = tuple[str, tuple[int, ...], str]
"""dtype, shape and filter of an array that was squeezed."""


def squeeze(array: Array) -> tuple[NDArray[np.uint8], Recipe]:
    """The array as compressed bytes, and what `restore` needs to know.

    Pictures (n, h, w, c) of uint8 become differences along the width; of anything else the first bytes
    of all numbers come first, then the second ones, and so on.

    >>> packed, recipe = squeeze(np.arange(1000))
    >>> bool((restore(packed, recipe) == np.arange(1000)).all()), len(packed) < 500
    (True, True)
    """
    array = np.ascontiguousarray(array)
    if array.dtype == np.uint8 and array.ndim == 4:
        kind, filtered = "across", np.diff(array, axis=2, prepend=np.uint8(0))
    else:
        kind = "bytes"
        filtered = np.ascontiguousarray(array.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T)
    packed = zlib.compress(filtered.data if filtered.size else b"", LEVEL)
    return np.frombuffer(packed, np.uint8), (array.dtype.str, array.shape, kind)


def restore(packed: NDArray[np.uint8], recipe: Recipe | list[Any]) -> Array:
    """The array that was squeezed. ValueError where the bytes are not those of such an array."""
    name, shape, kind = recipe
    dtype = np.dtype(name)
    size = math.prod(shape) * dtype.itemsize
    machine = zlib.decompressobj()
    try:
        data = machine.decompress(packed.tobytes(), size + 1)  # never more than was promised
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes of {size}")
    if kind not in ("across", "bytes"):
        raise ValueError(f"no filter {kind!r}")
    flat = np.frombuffer(data, np.uint8)
    if kind == "across":
        return np.cumsum(flat.reshape(shape), axis=2, dtype=np.uint8)
    restored: Array = np.ascontiguousarray(flat.reshape(dtype.itemsize, -1).T).view(dtype).reshape(shape)
    return restored
