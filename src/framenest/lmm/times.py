"""The frames' times, in the form that each model reads.

Qwen3-VL and Qwen3.5 fuse frames in pairs and compute one marker "<12.3 seconds>" per pair, the mean of its
two times, from frame numbers and a frame rate. For frames far apart that is a time at which neither was
taken, so this module decides which frames are paired. If frame number / rate is not a frame's true time
(variable rate, a file that starts late), frames are numbered in milliseconds, at 1,000 frames per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from framenest.errors import BadSetting
from framenest.method.prefix import Prefix

Pairing = Literal["auto", "pairs", "duplicate", "images"]
PAIRINGS: tuple[Pairing, ...] = get_args(Pairing)
PAIR = 2  # frames that Qwen3-VL and Qwen3.5 fuse
NEAR = 2.0  # most seconds between two frames that `auto` pairs
CLOSE = 0.005  # seconds by which frame number / rate may differ from the true time


def marker(seconds: float) -> str:
    """Format a time as Qwen3-VL does.

    >>> marker(83.25)
    '<83.2 seconds>'
    """
    return f"<{seconds:.1f} seconds>"


def fused(pairing: Pairing, seconds: Sequence[float]) -> list[tuple[int, int]]:
    """Places of the two frames under each time marker; a lone frame is paired with itself.

    "pairs" fuses every two frames, "auto" those within NEAR seconds, the others none. seconds: ascending.

    >>> fused("auto", [10.0, 90.0, 92.0, 300.4]), fused("pairs", [10.0, 90.0, 92.0])
    ([(0, 0), (1, 2), (3, 3)], [(0, 1), (2, 2)])
    """
    if pairing not in PAIRINGS:
        raise BadSetting("pairing", pairing, f"one of {', '.join(PAIRINGS)}")
    reach = {"pairs": np.inf, "auto": NEAR + 1e-6}.get(pairing, -1.0)
    found: list[tuple[int, int]] = []
    place = 0
    while place < len(seconds):
        other = min(place + 1, len(seconds) - 1)
        second = other if seconds[other] - seconds[place] <= reach else place
        found.append((place, second))
        place = second + 1
    return found


def sent_places(pairing: Pairing, seconds: Sequence[float]) -> list[int]:
    """Places of the frames in the order they are sent, two for each marker.

    With "pairs" the processor repeats an odd last frame. A single frame is sent twice, because a Qwen3-VL
    processor refuses a video of one frame.

    >>> sent_places("auto", [10.0, 90.0, 92.0]), sent_places("pairs", [10.0, 90.0, 92.0])
    ([0, 0, 1, 2], [0, 1, 2])
    """
    every = [place for pair in fused(pairing, seconds) for place in pair]
    return every[: len(seconds)] if pairing == "pairs" and len(seconds) > 1 else every


def video_metadata(prefix: Prefix, places: Sequence[int]) -> dict[str, Any]:
    """The metadata that a transformers video processor needs for frames that were already chosen.

    fps, frames_indices (integers, one for each of `places`), total_num_frames, duration. frames_indices / fps
    are the frames' true seconds.
    """
    video = prefix.video
    fps, indices, total = video.fps, prefix.frames, video.num_frames
    if not fps > 0 or np.abs(prefix.frames / fps - prefix.seconds).max() > CLOSE:
        fps, indices = 1000.0, np.floor(prefix.seconds * 1000 + 0.5).astype(np.int64)
        total = max(int(video.duration * 1000 + 0.5), int(indices[-1]) + 1)
    return {
        "fps": float(fps),
        "frames_indices": indices[list(places)].tolist(),
        "total_num_frames": int(total),
        "duration": float(video.duration),
    }


def paired_markers(metadata: dict[str, Any]) -> list[str]:
    """The markers that a Qwen3-VL processor writes: the mean time of each pair sent.

    An odd last frame is paired with itself.

    >>> paired_markers({"fps": 10.0, "frames_indices": [10, 20, 300]})
    ['<1.5 seconds>', '<30.0 seconds>']
    """
    sent = [index / metadata["fps"] for index in metadata["frames_indices"]]
    return [marker(second) for second in told_seconds("pairs", sent)[::PAIR]]


def told_seconds(pairing: Pairing, seconds: Sequence[float]) -> list[float]:
    """For each frame, the time that the model reads for it: the mean of its pair.

    >>> told_seconds("pairs", [1.0, 2.0, 30.0]), told_seconds("auto", [1.0, 9.0, 10.0])
    ([1.5, 1.5, 30.0], [1.0, 9.5, 9.5])
    """
    return [
        (seconds[first] + seconds[second]) / PAIR
        for first, second in fused(pairing, seconds)
        for _ in range(first, second + 1)
    ]


def times_sentence(seconds: Sequence[float], duration: float) -> str:
    """The times as one sentence, for models whose video input carries none.

    >>> times_sentence([1.04, 81.0], 380)
    'The video lasts 380.0 seconds. The 2 frames shown were taken at 1.0s, 81.0s.'
    """
    times = ", ".join(f"{value:.1f}s" for value in seconds)
    what = "frame shown was" if len(seconds) == 1 else f"{len(seconds)} frames shown were"
    return f"The video lasts {duration:.1f} seconds. The {what} taken at {times}."
