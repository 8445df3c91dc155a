"""The prompt: a question, its options by letter, and instructions for the answer."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from framenest.errors import ConfigError

DIRECTLY = "Answer with the option's letter from the given choices directly."
CITE = "After each statement give the times of the frames that show it in square brackets, as [12.3s]."
CANNOT_TELL = "CANNOT TELL"
OTHERWISE = f"If these frames do not show the answer, reply only with: {CANNOT_TELL}"

_LETTERED = re.compile(r"^\(?([A-Z])[.):]\s*")
_BRACKETS = re.compile(r"\[([^\[\]]*\d[^\[\]]*)\]")
_NUMBER = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)")
_CANNOT_TELL = re.compile(r"\W*cannot\W+tell[^\w\s,]*[ \t]*(?:[^\w\s,(]|\n|$)", re.IGNORECASE)
"""A sentence of its own at the beginning of the answer."""


def prompt(question: str, options: Sequence[str] = ()) -> str:
    """The question, with its options and the paper's instruction where there are options.

    >>> print(prompt("What is it?", ["a cup", "a kiln"]))
    What is it?
    A. a cup
    B. a kiln
    Answer with the option's letter from the given choices directly.
    """
    if not question.strip():
        raise ConfigError("the question is empty")
    if not options:
        return question
    return "\n".join([question, *lettered(options), DIRECTLY])


def lettered(options: Sequence[str]) -> list[str]:
    """Options with letters; options that already have theirs keep them.

    >>> lettered(["(A) a cup", "(B) a kiln"]), lettered(["A cup", "B"])
    (['A. a cup', 'B. a kiln'], ['A. A cup', 'B. B'])
    """
    if len(options) > len(string.ascii_uppercase):
        raise ConfigError(f"{len(options)} options are more than there are letters")
    letters = string.ascii_uppercase[: len(options)]
    found = [_LETTERED.match(option) for option in options]
    if [match and match.group(1) for match in found] == list(letters):
        options = [_LETTERED.sub("", option) for option in options]
    return [f"{letter}. {option}" for letter, option in zip(letters, options, strict=True)]


def cannot_tell(answer: str) -> bool:
    """Whether a model said that the frames do not show the answer.

    >>> cannot_tell("Cannot tell. They show a shelf."), cannot_tell("I cannot tell why, but it is a kiln.")
    (True, False)
    """
    return _CANNOT_TELL.match(answer) is not None


def cited(answer: str, seconds: Sequence[float], within: float = 0.06) -> list[int]:
    """Places of the frames whose times an answer gives in brackets, ascending.

    >>> cited("A kiln [12.3s, 81.0 seconds]; nothing at [99s].", [12.34, 50.0, 81.0])
    [0, 2]
    >>> cited("A kiln [1:21].", [12.34, 50.0, 81.0])
    [2]
    """
    named = [
        3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds)
        for inside in _BRACKETS.findall(answer)
        for hours, minutes, seconds in _NUMBER.findall(inside)
    ]
    return [place for place, value in enumerate(seconds) if any(abs(value - n) <= within for n in named)]
