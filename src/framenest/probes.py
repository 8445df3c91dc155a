"""How many probes, where, which segments; and the points between two probes for zooming."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def probe_count(num_frames: int, duration: float, base: int, extra: int, saturation: float) -> int:
    """Eq. probes: P = min(N, ⌊P0 + min(T/τp, 1)·P1⌋).

    >>> probe_count(num_frames=27_000, duration=900.0, base=256, extra=256, saturation=1800.0)
    384
    """
    return min(num_frames, math.floor(base + min(duration / saturation, 1.0) * extra))


def probe_grid(first: int, last: int, count: int) -> NDArray[np.int64]:
    """`count` distinct frame numbers spread evenly over first..last, both included; one probe: first.

    >>> probe_grid(0, 9, 4).tolist()
    [0, 3, 6, 9]
    """
    if count == 1:
        return np.array([first], dtype=np.int64)
    steps = np.arange(count, dtype=np.int64)
    # floor(x + 1/2) in whole numbers, so that no rounding mode or float enters.
    return first + (2 * steps * (last - first) + (count - 1)) // (2 * (count - 1))


def segments(count: int, length: int) -> list[slice]:
    """Probes 0..L-1, L..2L-1, …; the last segment may be shorter.

    >>> segments(10, 4)
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """
    return [slice(at, min(at + length, count)) for at in range(0, count, length)]


def interior(a: int, b: int, count: int) -> NDArray[np.int64]:
    """Uni(a, b, c): `count` frame numbers evenly spaced strictly between a and b; all where fewer exist.

    >>> interior(10, 20, 2).tolist()
    [13, 17]
    >>> interior(10, 12, 2).tolist()
    [11]
    """
    room = b - a - 1
    if room <= count:
        return np.arange(a + 1, b, dtype=np.int64)
    steps = np.arange(1, count + 1, dtype=np.int64)
    return a + (2 * (b - a) * steps + (count + 1)) // (2 * (count + 1))
