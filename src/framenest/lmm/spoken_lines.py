"""What is said around each frame, for messages, within a number of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

from framenest.lmm.tokens import CHARACTERS
from framenest.transcript.transcript import Transcript

AROUND = 10.0
"""Seconds from a frame within which something said is sent beside it."""
TOKENS = 2000


def spoken_lines(transcript: Transcript, seconds: Sequence[float], tokens: int = TOKENS) -> list[str]:
    """What is said around each frame: every line once, beside the nearest frame, within ten seconds of it.

    Args:
        transcript: what is said in the video.
        seconds: the frames' times.
        tokens: how many all lines together may take, by estimate; those farthest from a frame are left out.

    Returns:
        A text for each frame, empty where nothing is said.

    >>> from framenest.transcript.transcript import Line
    >>> said = Transcript("kiln.srt", (Line(7.0, 9.0, "Now we fire it."), Line(60.0, 62.0, "It cools.")))
    >>> spoken_lines(said, [2.0, 8.0, 30.0])
    ['', 'Now we fire it.', '']
    """
    found: list[tuple[float, int, str, int]] = []  # seconds away, place, words, place of its frame
    for place, (start, end, text) in enumerate(transcript.lines):
        away = [max(start - second, second - end, 0.0) for second in seconds]
        middle = (start + end) / 2
        frame = min(range(len(away)), key=lambda i: (away[i], abs(seconds[i] - middle)))
        if away[frame] <= AROUND:
            found.append((away[frame], place, text, frame))
    kept, left = [], tokens
    for entry in sorted(found):
        left -= math.ceil(len(entry[2]) / CHARACTERS) + 1
        if left < 0:
            break
        kept.append(entry)
    said: list[list[str]] = [[] for _ in seconds]
    for _, _, text, frame in sorted(kept, key=lambda entry: entry[1]):
        said[frame].append(text)
    return [" ".join(texts) for texts in said]
