"""What Framenest warns of; the commands print these as notes."""

from __future__ import annotations


class CacheWarning(UserWarning):
    """The cache fails in part; work goes on without it."""


class ScorerWarning(UserWarning):
    """Something about a scorer's numbers that whoever uses them should know."""
