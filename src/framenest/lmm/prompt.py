"""The text of a request, the times in the form that each model reads, and the frames that an answer cites.

Qwen3-VL and Qwen3.5 fuse frames in pairs and compute one marker "<12.3 seconds>" per pair, the mean of its
two times, from frame numbers and a frame rate. For frames far apart that is a time at which neither was
taken, so this module decides which frames are paired. If frame number / rate is not a frame's true time
(variable rate, a file that starts late), frames are numbered in milliseconds, at 1,000 frames per second.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from framenest.config import must_be
from framenest.errors import BadSetting, ConfigError
from framenest.method.prefix import Prefix
from framenest.text import seconds_of

CHARACTERS = 4  # of English text per token
TOKENS = 2000  # of all transcript lines of a request
DIRECTLY = "Answer with the option's letter from the given choices directly."
CITE = "After each statement give the times of the frames that show it in square brackets, as [12.3s]."
CANNOT_TELL = "CANNOT TELL"
OTHERWISE = f"If these frames do not show the answer, reply only with: {CANNOT_TELL}"

_LETTERED = re.compile(r"^\(?([A-Z])[.):]\s*")
_UNIT = r"s(?:ec(?:ond)?s?)?\b"
_ONE = r"(?<![\d.:])\d+(?::[0-5]?\d){0,2}(?:\.\d+)?(?![\d:])"
_TIME = re.compile(rf"(?P<number>{_ONE})(?:\s*{_UNIT})?", re.IGNORECASE)
_TIMES = re.compile(
    rf"[\[<](?P<inside>[^\[\]<>]*\d[^\[\]<>]*)[\]>]|(?P<bare>{_ONE})(?:\s*{_UNIT}|(?<=:\d\d)|(?<=:\d\d\.\d))",
    re.IGNORECASE,
)
"""Times in brackets, and times in running text: with a unit, or as a clock shows them."""
_IS_TIME = re.compile(rf"\d\s*{_UNIT}|\d:\d\d", re.IGNORECASE)
TENTH, WHOLE = 0.06, 0.55
"""Tolerance in seconds of a time in running text: given in tenths, or in whole seconds."""
CITED_WITHIN = 2.0  # seconds within which a time in brackets cites the nearest frame
_CANNOT_TELL = re.compile(r"\W*cannot\W+tell[^\w\s,]*[ \t]*(?:[^\w\s,(]|\n|$)", re.IGNORECASE)
"""A whole sentence at the start of the answer."""


def full_question(question: str, options: Sequence[str] = ()) -> str:
    """The question; if it has options, also the options with letters and the paper's instruction.

    >>> print(full_question("What is it?", ["(A) a cup", "(B) a kiln"]))
    What is it?
    A. a cup
    B. a kiln
    Answer with the option's letter from the given choices directly.
    """
    must_be("question", question, str, "a string")
    if not question.strip():
        raise ConfigError("the question is empty")
    if not options:
        return question
    if len(options) > len(string.ascii_uppercase):
        raise ConfigError(f"{len(options)} options, but only {len(string.ascii_uppercase)} letters")
    letters = string.ascii_uppercase[: len(options)]
    found = [_LETTERED.match(option) for option in options]
    if [match and match.group(1) for match in found] == list(letters):
        options = [_LETTERED.sub("", option) for option in options]
    lettered = (f"{letter}. {option}" for letter, option in zip(letters, options, strict=True))
    return "\n".join([question, *lettered, DIRECTLY])


def cannot_tell(answer: str) -> bool:
    """Whether a model said that the frames do not show the answer.

    >>> cannot_tell("Cannot tell. They show a shelf."), cannot_tell("I cannot tell why, but it is a kiln.")
    (True, False)
    """
    return _CANNOT_TELL.match(answer) is not None


def may_cannot_tell(begun: str) -> bool:
    """Whether an answer that begins so may still become one of which `cannot_tell` is true.

    >>> may_cannot_tell("**Cannot te"), may_cannot_tell("Cannot say")
    (True, False)
    """
    return CANNOT_TELL.lower().startswith(" ".join(re.findall(r"\w+", begun.lower())))


def cited_places(answer: str, times: Sequence[float]) -> list[int]:
    """Places of the frames whose times an answer gives, ascending; see `citations`.

    >>> cited_places("A kiln <12.3 seconds>, then shelves [82s].", [12.34, 50.0, 81.0])
    [0, 2]
    >>> cited_places("A kiln at 12.3 s; it burns for 30 s, see [1].", [12.34, 50.0, 81.0])
    [0]
    """
    return sorted({place for _, _, places in citations(answer, times) for place in places})


def citations(answer: str, times: Sequence[float]) -> list[tuple[int, int, list[int]]]:
    """Find the frame times in an answer, in order: start and end in the string, and the frames' places.

    Recognised forms: `<9.9 seconds>`, `[9.9s]`, `9.9 s`, `[1:21]`. In brackets, a time refers to the nearest
    frame, or to none if that is more than CITED_WITHIN away. In running text it may be a length ("for 30 s"),
    and a bare number in brackets a footnote; those count only if they equal a frame's time, rounded. times:
    in seconds, one for each frame as the model read it; equal for fused frames.

    >>> citations("A kiln [12.3s], a shelf [20:54].", [12.34, 50.0])
    [(8, 13, [0]), (25, 30, [])]
    """
    tenths = [round(second, 1) for second in times]
    made = []
    for found in _TIMES.finditer(answer):
        inside = found["inside"]
        sure = inside is not None and _IS_TIME.search(inside) is not None
        for time in _TIME.finditer(answer, *found.span()):
            second = seconds_of(time["number"])
            nearest = min(sorted(tenths), key=lambda tenth: abs(tenth - second), default=second)
            near = TENTH if "." in time["number"] or inside is not None else WHOLE
            shown = abs(nearest - second) <= (CITED_WITHIN if sure else near)
            places = [place for place, tenth in enumerate(tenths) if shown and tenth == nearest]
            if sure or places:
                made.append((*time.span(), places))
    return made


def not_shown(answer: str, times: Sequence[float]) -> list[str]:
    """The times that an answer cites although no frame of about that time was shown, as it writes them.

    >>> not_shown("A kiln [12.3s], a shelf [20:54].", [12.34, 50.0])
    ['20:54']
    """
    cited = citations(answer, times)
    return list(dict.fromkeys(answer[start:end] for start, end, places in cited if not places))


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
    return [marker(second) for second in model_seconds("pairs", sent)[::PAIR]]


def model_seconds(pairing: Pairing, seconds: Sequence[float]) -> list[float]:
    """For each frame, the time that the model reads for it: the mean of its pair.

    >>> model_seconds("pairs", [1.0, 2.0, 30.0]), model_seconds("auto", [1.0, 9.0, 10.0])
    ([1.5, 1.5, 30.0], [1.0, 9.5, 9.5])
    """
    return [
        (seconds[first] + seconds[second]) / PAIR
        for first, second in fused(pairing, seconds)
        for _ in range(first, second + 1)
    ]
