"""An optional decoder: torchcodec, on the CPU or with a GPU's video engine.

The timeline is Framenest's own; torchcodec decodes the pixels, and its presentation times are checked
against it, so that a frame number means the same frame with either decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from framenest.errors import MissingExtra, VideoError
from framenest.frames import FrameBatch, ImageSpec, VideoInfo
from framenest.text import one_line
from framenest.video.batches import (
    Picture,
    batch_size,
    batched,
    checked_frames,
    in_asked_order,
    picture_shapes,
)
from framenest.video.pyav import PyAVDecoder
from framenest.video.stills import resized


class TorchCodecDecoder:
    """Exact frames by number through torchcodec. device: "cpu", "cuda", "cuda:1", …

    >>> TorchCodecDecoder(open_video("kiln.mp4"), device="cuda").info.num_frames    # doctest: +SKIP
    57000
    """

    name = "torchcodec"

    def __init__(self, file: PyAVDecoder, *, device: str = "cpu") -> None:
        try:
            import torchcodec
            from torchcodec.decoders import VideoDecoder
        except ImportError as error:
            raise MissingExtra("torchcodec", "torchcodec") from error
        except (OSError, RuntimeError) as error:
            raise VideoError(f"torchcodec cannot load FFmpeg's libraries ({one_line(error)})") from error
        self.version = f"{torchcodec.__version__}-{device.partition(':')[0]}-1"
        self._file = file
        try:
            self._decoder = VideoDecoder(
                file.info.path, stream_index=file.stream_index, device=device, seek_mode="exact"
            )
            count = len(self._decoder)
        except (RuntimeError, ValueError, TypeError) as error:
            raise VideoError(f"{file.info.path}: torchcodec cannot read this ({one_line(error)})") from error
        if count != file.info.num_frames:
            raise VideoError(
                f"{file.info.path}: torchcodec sees {count} frames, the file has {file.info.num_frames}"
            )

    @property
    def info(self) -> VideoInfo:
        return self._file.info

    @property
    def seconds(self) -> NDArray[np.float64]:
        return self._file.seconds

    @property
    def key_frames(self) -> NDArray[np.int64]:
        return self._file.key_frames

    def read(
        self, frames: Sequence[int] | NDArray[np.int64], *, sizes: Sequence[ImageSpec | None] = (None,)
    ) -> Iterator[FrameBatch]:
        wanted = checked_frames(frames, self.info)
        shapes = picture_shapes(self.info.width, self.info.height, sizes)
        pictures = in_asked_order(wanted, lambda ascending: self._pictures(ascending, sizes), shapes)
        return batched(pictures, shapes, self.seconds)

    def _pictures(self, wanted: NDArray[np.int64], sizes: Sequence[ImageSpec | None]) -> Iterator[Picture]:
        step = batch_size([(self.info.height, self.info.width)])
        for at in range(0, len(wanted), step):
            some = wanted[at : at + step]
            for number, pixels in zip(some.tolist(), self._decode(some), strict=True):
                image = Image.fromarray(np.ascontiguousarray(pixels))
                yield number, [resized(image, s, self.info.width, self.info.height) for s in sizes]

    def _decode(self, numbers: NDArray[np.int64]) -> Any:
        """(n, H, W, 3) pixels as torchcodec gives them."""
        try:
            batch = self._decoder.get_frames_at(numbers.tolist())
        except (RuntimeError, ValueError, IndexError) as error:
            raise VideoError(f"{self.info.path}: torchcodec failed ({one_line(error)})") from error
        times = np.asarray(batch.pts_seconds.cpu()) - self.info.start
        wrong = np.abs(times - self.seconds[numbers]) > 1e-3
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            raise VideoError(
                f"{self.info.path}: torchcodec's frame {numbers[place]} is at {times[place]:.3f} s, "
                f"the file's at {self.seconds[numbers[place]]:.3f} s"
            )
        return np.asarray(batch.data.permute(0, 2, 3, 1).cpu())
