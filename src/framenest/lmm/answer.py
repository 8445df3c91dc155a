"""Answer: a model's reply, its reasoning, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from framenest.lmm.request import Request

Kind = Literal["reasoning", "answer"]
OnText = Callable[[Kind, str], None]
"""Called with each piece of an answer as it arrives."""

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class Usage:
    """What one answer cost. Tokens are None if the server did not count them."""

    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float
    """From the request to the last word."""
    first_seconds: float | None = None
    """To the first word, if it was streamed."""
    retries: int = 0
    """Retries of a busy or failing server."""

    def to_json(self) -> dict[str, Any]:
        """The fields; seconds are rounded to milliseconds."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Answer:
    """What a model answered."""

    text: str
    """The answer without its reasoning."""
    reasoning: str
    model: str
    finish_reason: str
    """"stop", or "length" if it was cut off."""
    usage: Usage


class Answerer(Protocol):
    """Anything that answers a request: `Client`, or a class of yours.

    >>> class Parrot:
    ...     def answer(self, request, *, on_text=None):
    ...         return Answer("A kiln.", "", "parrot", "stop", Usage(None, None, 0.0))
    """

    def answer(self, request: Request, *, on_text: OnText | None = None) -> Answer:
        """Answer a request.

        Args:
            request: the question with its frames, from `messages`.
            on_text: called with ("reasoning" or "answer", piece) as the answer arrives, unless None.

        Returns:
            The whole answer, with its reasoning separate.

        Raises:
            ModelError: the model gave no answer.
        """
        ...


def split_reasoning(text: str, *, cut_off: bool = False) -> tuple[str, str]:
    """Split a reply into (reasoning, answer). The opening tag may be missing: some chat templates write it.

    cut_off: the model was asked to think and ran out of tokens, so a reply without a closing tag is all
    reasoning.

    >>> split_reasoning("It fires… </think>\\n\\nB")
    ('It fires…', 'B')
    >>> split_reasoning("B")
    ('', 'B')
    >>> split_reasoning("It fires…", cut_off=True)
    ('It fires…', '')
    """
    before, closed, after = text.rpartition(CLOSE)
    if closed:
        return before.replace(OPEN, "").strip(), after.strip()
    if cut_off or text.lstrip().startswith(OPEN):  # it was still thinking
        return text.lstrip().removeprefix(OPEN).strip(), ""
    return "", text.strip()


class Splitter:
    """Separates reasoning from answer while the text arrives.

    Args:
        on_text: called with each piece and its kind.
        thinking: whether the model was asked to think. Text without a tag may then turn out to be reasoning,
            so it is held back until that is known.
    """

    def __init__(self, on_text: OnText, *, thinking: bool) -> None:
        self._on_text, self._thinking = on_text, thinking
        self._kind: Kind | None = None  # not known yet
        self._held = ""

    def reasoning(self, piece: str) -> None:
        """Take a piece that the server marked as reasoning; unmarked text after it is the answer."""
        if piece:
            self._kind = "answer"
            self._on_text("reasoning", piece)

    def text(self, piece: str) -> None:
        """Take a piece that is not marked."""
        self._held += piece
        if self._kind is None:
            begins = self._held.lstrip()
            if begins.startswith(OPEN):
                self._kind, self._held = "reasoning", begins.removeprefix(OPEN)
            elif not self._thinking and not OPEN.startswith(begins):
                self._kind = "answer"
        before, closed, after = self._held.partition(CLOSE)
        if closed and self._kind != "answer":
            self._give("reasoning", len(before))
            self._kind, self._held = "answer", after.lstrip()
        if self._kind == "answer":
            self._give("answer", len(self._held))
        elif self._kind == "reasoning":
            self._give("reasoning", len(self._held) - len(CLOSE) + 1)  # a tag may have begun

    def end(self, *, cut_off: bool = False) -> None:
        """Finish: text held back until now was the answer, unless it was marked or cut off."""
        self._give(self._kind or ("reasoning" if cut_off else "answer"), len(self._held))

    def _give(self, kind: Kind, length: int) -> None:
        piece, self._held = self._held[: max(0, length)], self._held[max(0, length) :]
        if piece:
            self._on_text(kind, piece)
