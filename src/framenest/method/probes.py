"""How many probes, where, which segments; and the points between two probes for zooming."""

from __future__ import annotations

import math
from itertools import pairwise

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


def fill_gaps(grid: NDArray[np.int64], seconds: NDArray[np.float64], max_gap: float) -> NDArray[np.int64]:
    """The probes, and as many more as it takes that none is further than `max_gap` from the one before.

    Args:
        grid: (P,) ascending frame numbers.
        seconds: (N,) of every frame of the video. A stretch in which no frame is shown stays a gap.
        max_gap: seconds.

    >>> fill_gaps(np.array([0, 4, 8]), np.array([0, 1, 2, 3, 4, 5, 6, 7, 20.0]), 2.0).tolist()
    [0, 2, 4, 6, 7, 8]
    """
    probes = [int(grid[0])]
    for probe in grid[1:].tolist():
        while seconds[probe] - seconds[probes[-1]] > max_gap * (1 + 1e-9):
            # The last frame within reach; where there is none, the very next one.
            reach = (
                int(np.searchsorted(seconds, seconds[probes[-1]] + max_gap * (1 + 1e-9), side="right")) - 1
            )
            following = max(reach, probes[-1] + 1)
            if following >= probe:
                break
            probes.append(following)
        probes.append(probe)
    return np.array(probes, dtype=np.int64)


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


def snap_to_keys(grid: NDArray[np.int64], keys: NDArray[np.int64], longest: float = 4.0) -> NDArray[np.int64]:
    """Move each probe to the key frame nearest to it in its cell; drop those whose cell has none.

    A cell runs between the midpoints to the neighbouring probes. Where dropping would leave a gap of
    more than `longest` probe intervals, the probe nearest the gap's middle stays, exact. Where nothing
    would be left, all stay.

    >>> snap_to_keys(np.array([0, 10, 20, 30]), np.array([0, 12, 14, 29])).tolist()
    [0, 12, 29]
    """
    if len(grid) < 2:
        return grid
    middles = (grid[:-1] + grid[1:]) / 2
    cells = np.searchsorted(middles, keys, side="right")
    inside = (keys >= grid[0]) & (keys <= grid[-1])
    moved: dict[int, int] = {}
    for key, cell in zip(keys[inside].tolist(), cells[inside].tolist(), strict=True):
        if cell not in moved or abs(key - grid[cell]) < abs(moved[cell] - grid[cell]):
            moved[cell] = key
    widest = longest * float(grid[-1] - grid[0]) / (len(grid) - 1)
    frames = sorted(moved.values())
    dropped = np.array([int(p) for i, p in enumerate(grid) if i not in moved], dtype=np.int64)
    edges = [int(grid[0]), *frames, int(grid[-1])]
    stay = [p for a, b in pairwise(edges) for p in _fill(a, b, dropped, widest)]
    probes = sorted({*frames, *stay})
    return np.array(probes, dtype=np.int64) if probes else grid


def _fill(a: int, b: int, dropped: NDArray[np.int64], widest: float) -> list[int]:
    """Dropped probes that stay, so that no stretch between a and b is wider than `widest`."""
    within = dropped[(dropped > a) & (dropped < b)]
    if b - a <= widest or not len(within):
        return []
    middle = int(within[np.argmin(np.abs(within - (a + b) / 2))])
    return [*_fill(a, middle, within, widest), middle, *_fill(middle, b, within, widest)]
