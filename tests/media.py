"""Videos that the tests encode themselves: every frame carries its own number as a bar code."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

BITS = 12


def numbered_picture(number: int, width: int = 96, height: int = 64) -> np.ndarray:
    """A picture (height, width, 3) with a moving gradient, and `number` in 12 black and white bars on top."""
    x = np.arange(width)[None, :, None]
    y = np.arange(height)[:, None, None]
    channels = np.array([3, 5, 7])[None, None, :]
    picture = ((x * 2 + y + number * channels) % 200 + 20).astype(np.uint8)
    bar = width // BITS
    for bit in range(BITS):
        value = 235 if number >> bit & 1 else 16
        picture[: height // 3, bit * bar : (bit + 1) * bar] = value
    return np.ascontiguousarray(picture)


def number_in(picture: np.ndarray) -> int:
    """The number that `numbered_picture` drew, read back from the pixels."""
    height, width = picture.shape[:2]
    bar = width // BITS
    top = picture[: height // 3].mean(axis=(0, 2))
    bits = [top[bit * bar + bar // 4 : (bit + 1) * bar - bar // 4].mean() > 125 for bit in range(BITS)]
    return sum(1 << bit for bit, on in enumerate(bits) if on)


def encode_video(
    path: Path,
    pictures: list[np.ndarray],
    *,
    fps: int = 25,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
    ticks: list[int] | None = None,
    rotation: int | None = None,
    aspect: Fraction | None = None,
    container_options: dict[str, str] | None = None,
) -> Path:
    """Encode pictures; `ticks` are their presentation times in 1/1000 s (default: constant rate)."""
    height, width = pictures[0].shape[:2]
    with av.open(str(path), "w", options=container_options or {}) as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        stream.options = (
            {"preset": "veryfast", "crf": "18"} | (options or {}) if "264" in codec else options or {}
        )
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if ticks is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation is not None:
            stream.set_display_rotation(rotation)
        for i, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            if ticks is not None:
                frame.pts, frame.time_base = ticks[i], Fraction(1, 1000)
            else:
                frame.pts, frame.time_base = i, Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def numbered_video(path: Path, count: int, width: int = 96, height: int = 64, **settings) -> Path:
    return encode_video(path, [numbered_picture(i, width, height) for i in range(count)], **settings)


def sequential_decode(path: Path) -> list[tuple[float, np.ndarray]]:
    """(seconds in the file, pixels as the codec stores them) of every frame, decoded from start to end."""
    decoded = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for frame in container.decode(stream):
            decoded.append((float(frame.pts * frame.time_base), frame.to_ndarray(format="rgb24")))
    return sorted(decoded, key=lambda pair: pair[0])


def growing_ticks(frames: int) -> list[int]:
    """Times of a variable frame rate: every pause is longer than the one before."""
    ticks = [0]
    for i in range(frames - 1):
        ticks.append(ticks[-1] + 20 + 7 * i)
    return ticks


def talking_video(
    path: Path, samples: np.ndarray, *, rate: int = 16_000, late: float = 0.0, **settings
) -> Path:
    """A numbered video at 5 fps as long as its sound, which begins `late` seconds after the first frame.

    samples: (n,) mono in [-1, 1]. settings: `codec` and `format` of the sound.
    """
    codec, form = settings.get("codec", "pcm_s16le"), settings.get("format", "s16")
    with av.open(str(path), "w") as container:
        video, sound = container.add_stream("libx264", rate=5), container.add_stream(codec, rate=rate)
        video.width, video.height, video.pix_fmt = 96, 64, "yuv420p"
        sound.layout = "mono"
        for number in range(round(5 * (late + len(samples) / rate))):
            picture = av.VideoFrame.from_ndarray(numbered_picture(number), format="rgb24")
            picture.pts = number
            container.mux(video.encode(picture))
        container.mux(video.encode(None))
        full = samples if form.startswith("flt") else (samples * 32767).astype(np.int16)
        for start in range(0, len(full), 1024):
            block = np.ascontiguousarray(full[None, start : start + 1024])
            frame = av.AudioFrame.from_ndarray(block, format=form, layout="mono")
            frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
            frame.pts = start + round(late * rate)
            container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    return path


def voice(seconds: float) -> np.ndarray:
    """(n,) samples at 16 kHz of a made vowel, which a detector of voices takes for speech."""
    time = np.arange(round(16_000 * seconds)) / 16_000
    phase = 2 * np.pi * np.cumsum(110 + 10 * np.sin(6 * np.pi * time)) / 16_000
    formants = [
        (k, sum(np.exp(-(((110 * k - f) / 200) ** 2)) for f in (500, 1500, 2500))) for k in range(1, 30)
    ]
    sound = sum(strength * np.sin(k * phase) / k for k, strength in formants)
    loudness = 0.5 + 0.5 * np.sin(8 * np.pi * time)
    return (0.5 * sound / np.abs(sound).max() * loudness).astype(np.float32)
