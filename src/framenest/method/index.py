"""The sparse index: probes of a video with their question-free cues."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from framenest.cache.hashes import digest
from framenest.config import IndexConfig
from framenest.errors import ConfigError, VideoError
from framenest.frames import Array, Doubles, Floats, Ints, Pixels, VideoInfo
from framenest.method.cues import encode
from framenest.protocols import Store
from framenest.video.decoder import Decoder


def probe_count(num_frames: int, duration: float, base: int, extra: int, saturation: float) -> int:
    """Eq. probes: P = min(N, ⌊P0 + min(T/τp, 1)·P1⌋).

    >>> probe_count(num_frames=27_000, duration=900.0, base=256, extra=256, saturation=1800.0)
    384
    """
    return min(num_frames, math.floor(base + min(duration / saturation, 1.0) * extra))


def probe_grid(first: int, last: int, count: int) -> Ints:
    """`count` distinct frame numbers spread evenly over first..last, both included; `first` if count is 1.

    >>> probe_grid(0, 9, 4).tolist()
    [0, 3, 6, 9]
    """
    if count == 1:
        return np.array([first], dtype=np.int64)
    steps = np.arange(count, dtype=np.int64)
    # floor(x + 1/2) in integers, so that no rounding mode or float is involved.
    return first + (2 * steps * (last - first) + (count - 1)) // (2 * (count - 1))


def fill_gaps(grid: Ints, seconds: Doubles, max_gap: float) -> Ints:
    """The probes, and as many more as needed so that no two neighbours are more than `max_gap` seconds apart.

    grid: (P,) ascending frame numbers; seconds: (N,) of every frame of the video. A stretch without any frame
    stays a gap.

    >>> fill_gaps(np.array([0, 4, 8]), np.array([0, 1, 2, 3, 4, 5, 6, 7, 20.0]), 2.0).tolist()
    [0, 2, 4, 6, 7, 8]
    """
    probes, widest = [int(grid[0])], max_gap * (1 + 1e-9)
    for probe in grid[1:].tolist():
        while seconds[probe] - seconds[probes[-1]] > widest:
            # The last frame within reach, or the very next one if there is none.
            reach = int(np.searchsorted(seconds, seconds[probes[-1]] + widest, side="right")) - 1
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


def interior(a: int, b: int, count: int) -> Ints:
    """Uni(a, b, c): `count` frame numbers evenly spaced strictly between a and b; all if there are fewer.

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


def snap_to_keys(grid: Ints, keys: Ints, longest: float = 4.0) -> Ints:
    """Move each probe to the nearest key frame in its cell; drop probes whose cell has none.

    A cell runs between the midpoints to the neighbouring probes. If dropping would leave a gap of more than
    `longest` probe intervals, the probe nearest the gap's middle stays. If no probe would be left, all stay.

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


def _fill(a: int, b: int, dropped: Ints, widest: float) -> list[int]:
    """Dropped probes that stay, so that no gap between a and b is wider than `widest`."""
    within = dropped[(dropped > a) & (dropped < b)]
    if b - a <= widest or not len(within):
        return []
    middle = int(within[np.argmin(np.abs(within - (a + b) / 2))])
    return [*_fill(a, middle, within, widest), middle, *_fill(middle, b, within, widest)]


INDEX_FORMAT = 1


@dataclass(frozen=True, eq=False)
class SparseIndex:
    """Probes of one video with their question-free cues.

    Attributes:
        video: the video.
        frames: (P,) int64, ascending.
        seconds: (P,) float64.
        thumbnails: (P, h, w, 3) uint8.
        change: (P,) float32.
        observability: (P,) float32.
        config: the settings.
        window: first and last frame of the part of the video that was indexed.
        span: their seconds.
        substitutes: (wanted, used) frame numbers of probes that did not decode and were replaced by an
            earlier frame; used is −1 if there was none.
    """

    video: VideoInfo
    frames: Ints
    seconds: Doubles
    thumbnails: Pixels
    change: Floats
    observability: Floats
    config: IndexConfig
    window: tuple[int, int]
    span: tuple[float, float]
    substitutes: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    @cached_property
    def appearance(self) -> Floats:
        """(P, d) unit vectors f_n of the thumbnails."""
        return encode(self.thumbnails)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in self.arrays().values()) + self.appearance.nbytes

    @property
    def num_frames(self) -> int:
        """N: frames in the window that the index covers."""
        return self.window[1] - self.window[0] + 1

    @property
    def largest_gap(self) -> float:
        """The longest stretch without a probe, in seconds, including the ends of the video."""
        return float(np.diff([self.span[0], *self.seconds, self.span[1]]).max())

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        return (
            f"SparseIndex({self.video.path!r}, frames={self.frames.shape}, "
            f"thumbnails={self.thumbnails.shape}, largest_gap={self.largest_gap:.2f}s)"
        )

    def header(self) -> dict[str, Any]:
        return {
            "format": INDEX_FORMAT,
            "kind": "index",
            "video": self.video.to_json(),
            "config": asdict(self.config),
            "window": list(self.window),
            "span": list(self.span),
        }

    def arrays(self) -> dict[str, Array]:
        names = ("frames", "seconds", "thumbnails", "change", "observability", "substitutes")
        return {name: getattr(self, name) for name in names}


def window(seconds: Doubles, config: IndexConfig) -> tuple[int, int]:
    """First and last frame between config.start and config.end. seconds: (N,) of every frame."""
    first = int(np.searchsorted(seconds, config.start - 1e-9, side="left"))
    end = np.inf if config.end is None else config.end
    last = int(np.searchsorted(seconds, end + 1e-9, side="right")) - 1
    if first > last:
        until = "the end" if config.end is None else f"{config.end:g} s"
        raise VideoError(
            f"no frame between {config.start:g} s and {until}; the last frame is at {seconds[-1]:.2f} s"
        )
    return first, last


def choose_probes(decoder: Decoder, config: IndexConfig) -> tuple[tuple[int, int], Ints]:
    """The window and the frame numbers of the probes in it."""
    seconds = decoder.seconds
    first, last = window(seconds, config)
    num_frames = last - first + 1
    end = float(seconds[last + 1]) if last + 1 < len(seconds) else decoder.info.duration
    duration = end - float(seconds[first])
    count = probe_count(num_frames, duration, config.base_probes, config.extra_probes, config.saturation)
    if config.max_gap is not None:
        even = math.ceil((float(seconds[last]) - float(seconds[first])) / config.max_gap - 1e-9) + 1
        count = min(num_frames, max(count, even))
    probes = probe_grid(first, last, count)
    if config.probing == "keyframes":
        probes = snap_to_keys(probes, decoder.key_frames)
    if config.max_gap is not None:
        probes = fill_gaps(probes, seconds, config.max_gap)
    return (first, last), probes


def index_key(decoder: Decoder, config: IndexConfig) -> str:
    """The store's key for the index of a video, as this decoder decodes it."""
    name = digest(decoder.info.fingerprint, decoder.name, decoder.version, asdict(config), INDEX_FORMAT)
    return f"index/{name}"


def stored_index(store: Store, key: str) -> SparseIndex | None:
    """The index under a key; None if there is none, or another version wrote it."""
    entry = store.get(key)
    if entry is None:
        return None
    header, arrays = entry
    try:
        return SparseIndex(
            video=VideoInfo.from_json(header["video"]),
            config=IndexConfig(**header["config"]),
            window=tuple(header["window"]),
            span=tuple(header["span"]),
            **arrays,
        )
    except (KeyError, TypeError, ValueError, ConfigError):
        return None
