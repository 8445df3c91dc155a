"""SparseIndex: what MEC keeps of a video, independent of any question."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.archive import DamagedFile, pack, unpack
from framenest.cache.atomic_file import write_atomic
from framenest.config import IndexConfig
from framenest.errors import ConfigError, IndexMismatch, StoreError, VideoError
from framenest.frames import Pixels, VideoInfo
from framenest.method import appearance
from framenest.method.observability import observability
from framenest.method.probes import fill_gaps, probe_count, probe_grid, snap_to_keys
from framenest.protocols import Decoder

INDEX_FORMAT = 1


@dataclass(frozen=True, eq=False)
class SparseIndex:
    """Probes of one video with their question-free cues.

    frames: (P,) int64 ascending; seconds: (P,) float64; thumbnails: (P, h, w, 3) uint8;
    change, observability: (P,) float32. `substitutes` holds (asked, used) pairs of frame numbers
    where a probe would not decode and an earlier frame stands in; used is −1 where none could.
    """

    video: VideoInfo
    frames: NDArray[np.int64]
    seconds: NDArray[np.float64]
    thumbnails: Pixels
    change: NDArray[np.float32]
    observability: NDArray[np.float32]
    config: IndexConfig
    window: tuple[int, int]
    """First and last frame looked at."""
    span: tuple[float, float]
    """Their seconds."""
    substitutes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    @classmethod
    def from_thumbnails(
        cls,
        video: VideoInfo,
        config: IndexConfig,
        window: tuple[int, int],
        span: tuple[float, float],
        frames: NDArray[np.int64],
        seconds: NDArray[np.float64],
        thumbnails: Pixels,
        substitutes: NDArray[np.int64],
    ) -> SparseIndex:
        """The index of decoded probes: their cues follow from the thumbnails."""
        vectors = appearance.encode(thumbnails)
        index = cls(
            video=video,
            frames=frames,
            seconds=seconds,
            thumbnails=thumbnails,
            change=appearance.change(frames, vectors, frames, vectors),
            observability=observability(thumbnails, config),
            config=config,
            window=window,
            span=span,
            substitutes=substitutes,
        )
        index.__dict__["appearance"] = vectors  # as the property would derive it again
        return index

    @cached_property
    def appearance(self) -> NDArray[np.float32]:
        """(P, d) unit vectors f_n, derived from the thumbnails."""
        return appearance.encode(self.thumbnails)

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
        """The longest stretch without a probe, in seconds, the ends of the video included."""
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

    def arrays(self) -> dict[str, NDArray[Any]]:
        names = ("frames", "seconds", "thumbnails", "change", "observability", "substitutes")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_parts(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> SparseIndex:
        if header.get("kind") != "index":
            raise IndexMismatch("this file is not a Framenest index")
        if header.get("format") != INDEX_FORMAT:
            raise IndexMismatch(
                f"this index has format {header.get('format')}, this Framenest reads format {INDEX_FORMAT}"
            )
        try:
            return cls(
                video=VideoInfo.from_json(header["video"]),
                config=IndexConfig(**header["config"]),
                window=tuple(header["window"]),
                span=tuple(header["span"]),
                **arrays,
            )
        except (KeyError, TypeError, ConfigError) as error:
            raise IndexMismatch(f"this index lacks something or has too much ({error!r})") from error

    def save(self, path: str | Path) -> None:
        """Write the index to a file."""
        write_atomic(Path(path), pack(self.header(), self.arrays()))

    @classmethod
    def load(cls, path: str | Path) -> SparseIndex:
        """Read an index written by `save`."""
        try:
            made = cls.from_parts(*unpack(Path(path).read_bytes()))
            return replace(made, video=replace(made.video, from_file=True))
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
        except DamagedFile as error:
            raise StoreError(f"{path}: damaged or foreign file: {error}") from error


def window(seconds: NDArray[np.float64], config: IndexConfig) -> tuple[int, int]:
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


def choose_probes(decoder: Decoder, config: IndexConfig) -> tuple[tuple[int, int], NDArray[np.int64]]:
    """The window and the frame numbers of the probes in it."""
    video, seconds = decoder.info, decoder.seconds
    first, last = window(seconds, config)
    end = float(seconds[last + 1]) if last + 1 < len(seconds) else video.duration
    duration = end - float(seconds[first])
    count = probe_count(
        last - first + 1, duration, config.base_probes, config.extra_probes, config.saturation
    )
    if config.max_gap is not None:
        even = math.ceil((float(seconds[last]) - float(seconds[first])) / config.max_gap - 1e-9) + 1
        count = min(last - first + 1, max(count, even))
    probes = probe_grid(first, last, count)
    if config.probing == "keyframes":
        probes = snap_to_keys(probes, decoder.key_frames)
    if config.max_gap is not None:
        probes = fill_gaps(probes, seconds, config.max_gap)
    return (first, last), probes
