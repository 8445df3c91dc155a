"""Truncated questions: a warning where a question is longer than a model reads."""

from __future__ import annotations

import warnings

from framenest.noted_warnings import ScorerWarning


class CutQuestion(ScorerWarning):
    """The model read only the beginning of a question."""


def tell_truncation(scorer: str, tokens: int, limit: int) -> None:
    """Warn where a question of `tokens` tokens is truncated to `limit`."""
    if tokens > limit:
        text = f"{scorer} reads {limit} tokens; the question has {tokens}, its end is not read"
        warnings.warn(text, CutQuestion, stacklevel=3)
