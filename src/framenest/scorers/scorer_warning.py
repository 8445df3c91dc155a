"""ScorerWarning: what scorers have to tell; the commands print it as notes."""

from __future__ import annotations


class ScorerWarning(UserWarning):
    """Something about a scorer's numbers that whoever uses them should know."""
