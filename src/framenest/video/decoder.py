"""Decoder, the interface to the frames of a video, and PictureDecoder, which makes writing one easy.

A decoder of another package needs what `Decoder` has. What else it can do, it declares by having the methods
of `HasStreams`, `HasSubtitles` or `HasFile`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from framenest.errors import VideoError
from framenest.frames import Doubles, Floats, FrameBatch, ImageSpec, Ints, Pixels, VideoInfo

Sizes = Sequence[ImageSpec | None]
Picture = tuple[int, list[Pixels]]  # a frame number, and the frame at each requested size


MAX_BATCH_FRAMES = 64
MAX_BATCH_BYTES = 64 * 2**20  # bytes of pixels decoded together; a single frame may have more
BATCHES = 4  # number of batches they are split into, so that progress moves and encoding starts early
SOUND_RATE = 16_000  # samples a second


@runtime_checkable
class Decoder(Protocol):
    """Exact frames of one video by number."""

    name: str
    """Of the implementation; enters cache keys with `version`."""
    version: str

    @property
    def info(self) -> VideoInfo: ...

    @property
    def seconds(self) -> Doubles:
        """(N,) presentation time of every frame, counted from the first; ascending."""

    @property
    def key_frames(self) -> Ints:
        """Frame numbers that decode without any other frame, ascending."""

    def read(
        self, frames: Sequence[int] | Ints, *, sizes: Sequence[ImageSpec | None] = (None,)
    ) -> Iterator[FrameBatch]:
        """Decode frames by number, in the order given, in batches of bounded memory.

        `sizes` lists the images to make of each frame; None is the original size, upright, with square
        pixels. A frame that does not decode is left out: `FrameBatch.frames` lists those that decoded.
        The batches are read in a background thread while earlier ones are encoded.
        """


@runtime_checkable
class HasStreams(Decoder, Protocol):
    """A decoder that knows what else its file holds."""

    def sound(self, first: int = 0) -> Iterator[Floats]:
        """Pieces of mono samples in [-1, 1], from `first` on; 0 is at the first frame. Damage is silent."""

    def streams(self) -> list[str]:
        """The streams of the file in words, in their order: "video h264", "audio aac (eng)"."""


class SubtitleTrack(NamedTuple):
    """A subtitle track inside a video."""

    number: int
    """Of the stream in the file."""
    codec: str
    language: str | None = None
    is_text: bool = True
    """False for images."""
    forced: bool = False
    """Whether it holds only what must be translated, such as signs."""
    default: bool = False


@runtime_checkable
class HasSubtitles(Decoder, Protocol):
    """A decoder that reads the subtitle tracks of its file."""

    def subtitle_tracks(self) -> list[SubtitleTrack]: ...

    def subtitle_lines(self, track: SubtitleTrack) -> Iterator[tuple[float, float, str]]:
        """(start, end, text) of each line of a text track, in seconds from the first frame.

        The end is NaN if it is unknown. The text may have the markup of SubRip, WebVTT or SubStation.
        """


@runtime_checkable
class HasFile(Decoder, Protocol):
    """A decoder that knows the file of its video, for the subtitle files next to it."""

    @property
    def local_file(self) -> str | None:
        """The file on this machine, which may be a download of `info.path`; None if there is none."""

    def clock_start(self) -> float:
        """When a player's clock shows 0, in seconds from the first frame."""


class PictureDecoder(ABC):
    """A Decoder that needs only `pictures`: reads frames in any order, in batches of bounded memory."""

    info: VideoInfo
    seconds: Doubles
    key_frames: Ints

    def read(self, frames: Sequence[int] | Ints, *, sizes: Sizes = (None,)) -> Iterator[FrameBatch]:
        """Decode frames by number, in the order given; see `framenest.Decoder`."""
        wanted, last = np.asarray(frames, dtype=np.int64).reshape(-1), self.info.num_frames - 1
        wrong = wanted[(wanted < 0) | (wanted > last)]
        if wrong.size:
            raise VideoError(f"{self.info.path}: no frame {wrong[0]}; its frames are 0 to {last}")
        return self._batches(wanted, sizes)

    @abstractmethod
    def pictures(self, ascending: Ints, sizes: Sizes) -> Iterator[Picture]:
        """Decode ascending frame numbers; leaves out frames that cannot be decoded."""

    def _batches(self, wanted: Ints, sizes: Sizes) -> Iterator[FrameBatch]:
        most = max(1, min(MAX_BATCH_FRAMES, MAX_BATCH_BYTES // self._picture_bytes(sizes)))
        pictures = self._in_order(wanted, sizes, most)
        while rows := list(islice(pictures, -(-most // BATCHES))):
            frames = np.array([number for number, _ in rows], dtype=np.int64)
            columns = zip(*(pixels for _, pixels in rows), strict=True)
            yield FrameBatch(frames, self.seconds[frames], tuple(np.stack(column) for column in columns))

    def _in_order(self, wanted: Ints, sizes: Sizes, most: int) -> Iterator[Picture]:
        """The pictures in the order given, repeats included."""
        if len(wanted) and (np.diff(wanted) > 0).all():
            yield from self.pictures(wanted, sizes)
            return
        for at in range(0, len(wanted), most):
            some = wanted[at : at + most]
            pictures = dict(self.pictures(np.unique(some), sizes))
            yield from ((number, pictures[number]) for number in some.tolist() if number in pictures)

    def _picture_bytes(self, sizes: Sizes) -> int:
        """Bytes of one frame at all sizes, at least 1."""
        full = self.info.width, self.info.height
        return max(1, 3 * sum(int(np.prod(spec.size(*full) if spec else full)) for spec in sizes))


def one_by_one(
    decoder: Decoder, frames: Sequence[int], size: ImageSpec | None = None
) -> Iterator[tuple[int, Pixels]]:
    """(number, pixels) of frames, in ascending order; from a PictureDecoder each as soon as it is decoded."""
    ascending = np.unique(np.asarray(frames, dtype=np.int64))
    if isinstance(decoder, PictureDecoder):
        yield from ((number, pixels[0]) for number, pixels in decoder.pictures(ascending, (size,)))
        return
    for batch in decoder.read(ascending, sizes=(size,)):
        yield from zip(batch.frames.tolist(), batch.pixels[0], strict=True)
