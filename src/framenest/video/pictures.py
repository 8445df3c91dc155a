"""Decoders for frames that are pictures already: an array in memory, or a folder of numbered images."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from framenest.errors import VideoError
from framenest.frames import FrameBatch, ImageSpec, Pixels, VideoInfo
from framenest.video.batches import batched, checked_frames, in_asked_order

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"}

_RESAMPLE = {
    "area": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def resized(image: Image.Image, spec: ImageSpec | None, width: int, height: int) -> Pixels:
    """An RGB image at the size asked for; None is (width, height)."""
    size = spec.scaled(width, height) if spec else (width, height)
    if image.size != size:
        image = image.resize(size, _RESAMPLE[spec.resample if spec else "bicubic"])
    pixels: Pixels = np.asarray(image, dtype=np.uint8)
    return spec.cut(pixels) if spec else pixels


class ArrayDecoder:
    """Frames in memory behind the Decoder protocol.

    pixels: (n, H, W, 3) uint8 RGB; fps: frames per second.

    >>> clip = np.zeros((50, 36, 64, 3), np.uint8)
    >>> ArrayDecoder(clip, fps=25).info.duration
    2.0
    """

    name = "array"
    version = "1"

    def __init__(self, pixels: Pixels, fps: float) -> None:
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 4 or pixels.shape[-1] != 3:
            found = getattr(pixels, "shape", type(pixels).__name__)
            raise VideoError(f"an array of frames must have the shape (n, H, W, 3), not {found}")
        if pixels.dtype != np.uint8:
            raise VideoError(f"an array of frames must be uint8 RGB, not {pixels.dtype}")
        if not len(pixels) or not pixels.shape[1] or not pixels.shape[2]:
            raise VideoError(f"an array of frames must not be empty; this one is {pixels.shape}")
        _check_fps(fps)
        self._pixels = pixels
        digest = hashlib.blake2b(f"{pixels.shape} {fps}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(pixels).data)
        count, height, width = pixels.shape[:3]
        self._info = _still_info("<array>", digest.hexdigest(), count, fps, width, height, "raw")

    @property
    def info(self) -> VideoInfo:
        return self._info

    @property
    def seconds(self) -> NDArray[np.float64]:
        return np.arange(self._info.num_frames) / self._info.fps

    def read(
        self, frames: Sequence[int] | NDArray[np.int64], *, sizes: Sequence[ImageSpec | None] = (None,)
    ) -> Iterator[FrameBatch]:
        wanted = checked_frames(frames, self._info)
        shapes = _shapes(self._info, sizes)
        pictures = ((n, self._pictures(n, sizes)) for n in wanted.tolist())
        return batched(pictures, shapes, self.seconds)

    def _pictures(self, number: int, sizes: Sequence[ImageSpec | None]) -> list[Pixels]:
        image = Image.fromarray(self._pixels[number])
        return [resized(image, spec, self._info.width, self._info.height) for spec in sizes]


class ImageFolderDecoder:
    """A folder of images as a video: files in the order of their names, frame9 before frame10."""

    name = "images"
    version = "1"

    def __init__(self, folder: str, fps: float | None) -> None:
        if fps is None:
            raise VideoError(f"{folder}: a folder of images needs its frame rate; give --fps (or fps=)")
        _check_fps(fps)
        self._files = sorted(
            (f for f in Path(folder).iterdir() if f.suffix.lower() in IMAGE_SUFFIXES), key=_natural
        )
        if not self._files:
            suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
            raise VideoError(f"{folder}: no images in this folder (looked for {suffixes})")
        digest = hashlib.blake2b(f"{fps}".encode(), digest_size=16)
        for file in self._files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        first = _open_image(self._files[0])
        if first is None:
            raise VideoError(f"{self._files[0]}: not an image that can be read")
        self._info = _still_info(
            folder, digest.hexdigest(), len(self._files), fps, first.width, first.height, "images"
        )

    @property
    def info(self) -> VideoInfo:
        return self._info

    @property
    def seconds(self) -> NDArray[np.float64]:
        return np.arange(self._info.num_frames) / self._info.fps

    def read(
        self, frames: Sequence[int] | NDArray[np.int64], *, sizes: Sequence[ImageSpec | None] = (None,)
    ) -> Iterator[FrameBatch]:
        wanted = checked_frames(frames, self._info)
        pictures = in_asked_order(wanted, lambda numbers: self._pictures(numbers, sizes))
        return batched(pictures, _shapes(self._info, sizes), self.seconds)

    def _pictures(
        self, numbers: NDArray[np.int64], sizes: Sequence[ImageSpec | None]
    ) -> Iterator[tuple[int, list[Pixels]]]:
        for number in numbers.tolist():
            image = _open_image(self._files[number])
            if image is not None:
                yield number, [resized(image, s, self._info.width, self._info.height) for s in sizes]


def _open_image(file: Path) -> Image.Image | None:
    try:
        with Image.open(file) as image:
            return ImageOps.exif_transpose(image).convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError):
        return None


def _natural(file: Path) -> tuple[list[tuple[int, str]], str]:
    """Sorts frame9.png before frame10.png."""
    parts = re.split(r"([0-9]+)", file.stem)
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in parts], file.name


def _check_fps(fps: float) -> None:
    if not (np.isfinite(fps) and fps > 0):
        raise VideoError(f"a frame rate must be more than 0, not {fps!r}")


def _still_info(
    path: str, fingerprint: str, count: int, fps: float, width: int, height: int, codec: str
) -> VideoInfo:
    return VideoInfo(path, fingerprint, count, count / fps, float(fps), width, height, codec)


def _shapes(info: VideoInfo, sizes: Sequence[ImageSpec | None]) -> list[tuple[int, int]]:
    full = (info.width, info.height)
    return [(s.size(*full) if s else full)[::-1] for s in sizes]
