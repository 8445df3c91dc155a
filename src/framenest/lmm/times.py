"""How a model is told when each frame was taken.

Qwen3-VL and Qwen3.5 compute a marker "<12.3 seconds>" from frame numbers and a frame rate, one for each
pair of frames. Where frame numbers over the rate are not the frames' true times (variable rate, a file that
starts late), milliseconds at 1,000 frames per second carry them as whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from framenest.errors import BadSetting
from framenest.method.prefix import Prefix

Pairing = Literal["pairs", "duplicate", "images"]
PAIRINGS: tuple[Pairing, ...] = ("pairs", "duplicate", "images")
PAIR = 2  # frames that Qwen3-VL and Qwen3.5 fuse
CLOSE = 0.005  # seconds by which frame number / rate may differ from the true time


def marker(seconds: float) -> str:
    """The time as Qwen3-VL writes it, and as Framenest writes it beside an image.

    >>> marker(83.25)
    '<83.2 seconds>'
    """
    return f"<{seconds:.1f} seconds>"


def copies(pairing: Pairing, count: int) -> int:
    """How often each frame is sent: a single one twice, since a Qwen3-VL processor refuses one frame."""
    if pairing not in PAIRINGS:
        raise BadSetting("pairing", pairing, f"one of {', '.join(PAIRINGS)}")
    return PAIR if pairing == "duplicate" or (pairing == "pairs" and count == 1) else 1


def video_metadata(prefix: Prefix, repeat: int = 1) -> dict[str, Any]:
    """The metadata that a transformers video processor needs for frames chosen beforehand.

    fps, frames_indices (whole numbers, each `repeat` times), total_num_frames, duration: such that
    frames_indices / fps are the frames' true seconds.
    """
    video = prefix.video
    fps, indices, total = video.fps, prefix.frames, video.num_frames
    if not fps > 0 or np.abs(prefix.frames / fps - prefix.seconds).max() > CLOSE:
        fps, indices = 1000.0, np.floor(prefix.seconds * 1000 + 0.5).astype(np.int64)
        total = max(int(video.duration * 1000 + 0.5), int(indices[-1]) + 1)
    return {
        "fps": float(fps),
        "frames_indices": np.repeat(indices, repeat).tolist(),
        "total_num_frames": int(total),
        "duration": float(video.duration),
    }


def paired_markers(metadata: dict[str, Any]) -> list[str]:
    """The markers of a Qwen3-VL processor: one per pair, halfway between its two frames.

    An odd last frame is paired with itself.

    >>> paired_markers({"fps": 10.0, "frames_indices": [10, 20, 300]})
    ['<1.5 seconds>', '<30.0 seconds>']
    """
    seconds = [index / metadata["fps"] for index in metadata["frames_indices"]]
    return [marker(second) for second in pair_seconds(seconds)[::PAIR]]


def pair_seconds(seconds: Sequence[float]) -> list[float]:
    """For each frame the time halfway through its pair, which the model reads for both.

    >>> pair_seconds([1.0, 2.0, 30.0])
    [1.5, 1.5, 30.0]
    """
    partners = [min(place ^ 1, len(seconds) - 1) for place in range(len(seconds))]
    return [(seconds[place] + seconds[other]) / 2 for place, other in enumerate(partners)]


def spoken(seconds: Sequence[float], duration: float) -> str:
    """The times as one sentence, for models whose video input carries none.

    >>> spoken([1.04, 81.0], 380)
    'The video lasts 380.0 seconds. The 2 frames shown were taken at 1.0s, 81.0s.'
    """
    times = ", ".join(f"{value:.1f}s" for value in seconds)
    what = "frame shown was" if len(seconds) == 1 else f"{len(seconds)} frames shown were"
    return f"The video lasts {duration:.1f} seconds. The {what} taken at {times}."
