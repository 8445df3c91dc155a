"""Decoders for frames that are images already: an array in memory, or a folder of numbered images."""

from __future__ import annotations

import hashlib
import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from mimetypes import guess_type
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from PIL.Image import Resampling

from framenest.errors import VideoError
from framenest.frames import MOST_PIXELS, ImageSpec, Ints, Pixels, VideoInfo, check_image_size
from framenest.images import READABLE_FORMATS
from framenest.text import size_text
from framenest.video.decoder import Picture, PictureDecoder, Sizes

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"}
DEFAULT_FPS = 1.0  # frames per second of a folder of images, unless given
_MAX_IMAGE_BYTES = 4 * MOST_PIXELS  # bytes of an image file, which Pillow may read whole

_PILLOW_FILTERS = {"area": Resampling.BOX, "bilinear": Resampling.BILINEAR, "bicubic": Resampling.BICUBIC}


class _Stills(PictureDecoder):
    """Images at a constant frame rate, each of them a key frame."""

    version = "1"

    def _describe(
        self, path: str, fingerprint: str, count: int, fps: float, size: tuple[int, int], codec: str
    ) -> None:
        check_image_size(path, *size)
        self.info = VideoInfo(path, fingerprint, count, count / fps, fps, *size, codec)
        self.seconds = np.arange(count) / fps
        self.key_frames = np.arange(count)

    def pictures(self, ascending: Ints, sizes: Sizes) -> Iterator[Picture]:
        for number in ascending.tolist():
            image = self._image(number)
            if image is not None:
                yield number, [self._resized(image, spec) for spec in sizes]

    def _resized(self, image: Image.Image, spec: ImageSpec | None) -> Pixels:
        full = self.info.width, self.info.height
        size = spec.scaled(*full) if spec else full
        if image.size != size:
            image = image.resize(size, _PILLOW_FILTERS[spec.resample if spec else "bicubic"])
        pixels: Pixels = np.asarray(image, dtype=np.uint8)
        return spec.cut(pixels) if spec else pixels

    @abstractmethod
    def _image(self, number: int) -> Image.Image | None:
        """A frame as an RGB image; None if it cannot be read."""


class ArrayDecoder(_Stills):
    """Frames in memory as a Decoder.

    Args:
        pixels: (n, H, W, 3) uint8 RGB.
        fps: frames per second.

    Raises:
        VideoError: the array is empty or has another shape or type, or fps is not above 0.

    >>> clip = np.zeros((50, 36, 64, 3), np.uint8)
    >>> ArrayDecoder(clip, fps=25).info.duration
    2.0
    """

    name = "array"
    PATH = "<array>"
    """The path of such a video."""

    def __init__(self, pixels: Pixels, fps: float) -> None:
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 4 or pixels.shape[-1] != 3:
            shape = getattr(pixels, "shape", type(pixels).__name__)
            raise VideoError(f"an array of frames must have the shape (n, H, W, 3), not {shape}")
        if pixels.dtype != np.uint8:
            raise VideoError(f"an array of frames must be uint8 RGB, not {pixels.dtype}")
        if not pixels.size:
            raise VideoError(f"an array of frames must not be empty; this one is {pixels.shape}")
        fps = _checked_fps(fps)
        self._frames = pixels
        digest = hashlib.blake2b(f"{pixels.shape} {fps}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(pixels).data)
        count, height, width = pixels.shape[:3]
        self._describe(self.PATH, digest.hexdigest(), count, fps, (width, height), "raw")

    @property
    def nbytes(self) -> int:
        """Bytes of all frames in memory."""
        return self._frames.nbytes

    def _image(self, number: int) -> Image.Image:
        return Image.fromarray(self._frames[number])


def stacked(images: Sequence[Image.Image | np.ndarray[Any, Any]]) -> Pixels:
    """A list of Pillow images or arrays (H, W, 3), all of one size, as one array (n, H, W, 3).

    >>> stacked([Image.new("RGB", (64, 36)), np.zeros((36, 64, 3), np.uint8)]).shape
    (2, 36, 64, 3)
    """
    frames = [np.asarray(one.convert("RGB")) if isinstance(one, Image.Image) else one for one in images]
    for number, frame in enumerate(frames):
        if not isinstance(frame, np.ndarray):
            kind = type(frame).__name__
            raise VideoError(f"a list of frames must hold Pillow images or arrays; number {number} is {kind}")
        if frame.shape != frames[0].shape:
            sizes = f"number 0 has {frames[0].shape}, number {number} {frame.shape}"
            raise VideoError(f"the frames of a list must have one shape (H, W, 3); {sizes}")
    return np.stack(frames) if frames else np.zeros((0, 0, 0, 3), np.uint8)


class ImageFolderDecoder(_Stills):
    """A folder of images as a video, ordered by name, frame9 before frame10."""

    name = "images"

    def __init__(self, folder: str, fps: float | None) -> None:
        try:
            files = sorted((file for file in Path(folder).iterdir() if file.is_file()), key=_natural)
            self._files = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
            videos = [file for file in files if (guess_type(file.name)[0] or "").startswith("video/")]
            if videos and not self._files:
                raise VideoError(f"{folder}: a folder of videos; name one, such as {videos[0]}")
            notes = () if fps is not None else (f"no frame rate given: {DEFAULT_FPS:g} image per second",)
            fps = _checked_fps(DEFAULT_FPS if fps is None else fps)
            digest = hashlib.blake2b(f"{fps}".encode(), digest_size=16)
            for file in self._files:
                size = file.stat().st_size
                if size > _MAX_IMAGE_BYTES:
                    most = size_text(_MAX_IMAGE_BYTES)
                    raise VideoError(f"{file}: {size_text(size)}; an image may have {most}")
                digest.update(file.name.encode(errors="surrogateescape") + b"\0")
                with file.open("rb") as opened:
                    hashlib.file_digest(opened, lambda: digest)
        except OSError as error:
            raise VideoError(f"{error.filename}: cannot be read ({error.strerror})") from error
        if not self._files:
            suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
            raise VideoError(f"{folder}: no images in this folder (looked for {suffixes})")
        first = self._image(0)
        if first is None:
            raise VideoError(f"{self._files[0]}: not an image that can be read")
        self._describe(folder, digest.hexdigest(), len(self._files), fps, first.size, "images")
        self.info = replace(self.info, notes=notes)

    def _image(self, number: int) -> Image.Image | None:
        file = self._files[number]
        try:
            with Image.open(file, formats=READABLE_FORMATS) as image:
                check_image_size(str(file), *image.size)
                return ImageOps.exif_transpose(image).convert("RGB")
        except VideoError:
            raise
        except (Image.DecompressionBombError, MemoryError) as error:
            raise VideoError(f"{file}: not an image that can be read ({error})") from error
        except Exception:  # Pillow raises almost anything on damaged data
            return None


def _natural(file: Path) -> tuple[list[tuple[int, str]], str]:
    """Sorts frame9.png before frame10.png."""
    parts = re.split(r"([0-9]+)", file.stem)
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in parts], file.name


def _checked_fps(fps: float) -> float:
    if not (isinstance(fps, Real) and math.isfinite(fps) and fps > 0):
        raise VideoError(f"fps must be a number above 0, not {fps!r}")
    return float(fps)
