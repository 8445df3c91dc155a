"""Questions that are longer than a model reads."""

from __future__ import annotations

import warnings


class CutQuestion(UserWarning):
    """The model read only the beginning of a question."""


def tell_truncation(scorer: str, tokens: int, limit: int) -> None:
    """Say that a question of `tokens` tokens is cut to `limit`, where it is."""
    if tokens > limit:
        text = f"{scorer} reads {limit} tokens; the question has {tokens}, its end is not read"
        warnings.warn(text, CutQuestion, stacklevel=3)
