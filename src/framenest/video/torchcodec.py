"""An optional decoder: torchcodec, on the CPU or with a GPU's video engine.

The timeline is Framenest's own; torchcodec decodes the pixels, and its presentation times are checked
against it, so that a frame number means the same frame with either decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from framenest.errors import MissingExtra, VideoError
from framenest.text import one_line
from framenest.video.pyav import Picture, PictureDecoder, PyAVDecoder, Sizes
from framenest.video.stills import resized


class TorchCodecDecoder(PictureDecoder):
    """Exact frames through torchcodec. device: "cpu", "cuda", "cuda:1", …"""

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
        self.info, self.seconds, self.key_frames = file.info, file.seconds, file.key_frames
        self._file, self.subtitle_track = file, file.subtitle_track
        path = self.info.path
        try:
            self._decoder = VideoDecoder(
                path, stream_index=file.stream_index, device=device, seek_mode="exact"
            )
            count = len(self._decoder)
        except (RuntimeError, ValueError, TypeError) as error:
            raise VideoError(f"{path}: torchcodec cannot read this ({one_line(error)})") from error
        if count != self.info.num_frames:
            raise VideoError(f"{path}: torchcodec sees {count} frames, the file has {self.info.num_frames}")

    @property
    def begins(self) -> float:
        """Where the file begins, in seconds from its first frame."""
        return self._file.begins

    def _pictures(self, ascending: NDArray[np.int64], sizes: Sizes) -> Iterator[Picture]:
        step = self._batch_size([None])
        for at in range(0, len(ascending), step):
            some = ascending[at : at + step]
            for number, pixels in zip(some.tolist(), self._decode(some), strict=True):
                image = Image.fromarray(np.ascontiguousarray(pixels))
                yield number, [resized(image, size, self.info.width, self.info.height) for size in sizes]

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
