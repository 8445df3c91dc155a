"""Answer: a model's reply, its reasoning, and their cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from framenest.lmm.request import Request

Kind = Literal["reasoning", "answer"]
OnText = Callable[[Kind, str], None]  # called with each piece of an answer as it arrives

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class Usage:
    """The cost of one answer. Tokens are None if the server did not count them."""

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
    """A model's reply."""

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


class Splitter:
    """Separates reasoning from answer, also while the text arrives. The opening tag may be missing.

    thinking: whether the model was asked to think. Text without a tag may then turn out to be reasoning, so
    it is held back until that is known.

    >>> splitter = Splitter(lambda kind, piece: None, thinking=False)
    >>> splitter.text("It fires… </think>\\n\\nB")
    >>> splitter.end()
    ('It fires…', 'B')
    """

    def __init__(self, on_text: OnText, *, thinking: bool) -> None:
        self._on_text, self._thinking = on_text, thinking
        self._kind: Kind | None = None  # not known yet
        self._held = ""
        self.given: dict[Kind, str] = {"reasoning": "", "answer": ""}  # the pieces passed to `on_text` so far

    def reasoning(self, piece: str) -> None:
        """Take a piece that the server marked as reasoning; unmarked text after it is the answer."""
        if piece:
            self._kind = "answer"
            self._give("reasoning", piece)

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
            self._give("reasoning", before)
            self._kind, self._held = "answer", after.lstrip()
        if self._kind == "answer":
            self._give("answer", self._held)
            self._held = ""
        elif self._kind == "reasoning":
            sure = max(0, len(self._held) - len(CLOSE) + 1)  # a tag may have begun after that
            self._give("reasoning", self._held[:sure])
            self._held = self._held[sure:]

    def end(self, *, cut_off: bool = False) -> tuple[str, str]:
        """The whole reasoning and answer.

        cut_off: the model ran out of tokens, so the text held back until now is reasoning.
        """
        self._give(self._kind or ("reasoning" if cut_off else "answer"), self._held)
        self._held = ""
        inside, _, answer = self.given["answer"].rpartition(CLOSE)  # the chat template opened the tag
        return (self.given["reasoning"] + inside).strip(), answer.strip()

    def _give(self, kind: Kind, piece: str) -> None:
        if piece:
            self.given[kind] += piece
            self._on_text(kind, piece)
