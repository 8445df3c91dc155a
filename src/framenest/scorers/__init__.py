"""Scorers: how well a frame matches a question."""

from __future__ import annotations

from framenest.errors import ScorerError
from framenest.protocols import Scorer
from framenest.scorers.table import TableScorer
from framenest.store import DirectoryStore

SCORERS = ("tags",)
"""Scorers by name, best first; "auto" takes the first whose weights are here."""


def load_scorer(wanted: str | Scorer, store: DirectoryStore) -> Scorer:
    """A scorer by name ("auto", "tags", "table:FILE"), or the one given."""
    if not isinstance(wanted, str):
        if not isinstance(wanted, Scorer):
            raise ScorerError(f"{wanted!r} is not a scorer: it needs name, version, inputs, encode, match")
        return wanted
    if wanted.startswith("table:"):
        return TableScorer.load(wanted.removeprefix("table:"))
    if wanted in ("auto", "tags"):
        from framenest.scorers.tags import TagScorer

        return TagScorer(store)
    raise ScorerError(f"there is no scorer {wanted!r}; choose from auto, {', '.join(SCORERS)}, table:FILE")
