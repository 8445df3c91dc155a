"""An on-disk cache of selections.

For MEC it holds a question's ranking, which serves every budget. For a selector that does not rank, it holds
the selections at the budgets requested so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import framenest
from framenest.cache.directory import local_directory
from framenest.cache.hashes import digest
from framenest.errors import FramenestError, StoreError
from framenest.method.prefix import Prefix
from framenest.method.ranking import RANKING_FORMAT, Ranking
from framenest.models import CATALOGUE
from framenest.scorers import identity
from framenest.selectors import FILE, load_selector, mec_config, needs_scorer
from framenest.selectors.built_in import MecSelector
from framenest.selectors.selection import Selection, load_result
from framenest.session import Session


class NotSelected(StoreError):
    """A selection that must be in the cache is not there."""


class SelectionCache:
    """Selects frames for questions, and reads the selections from disk.

    scorer: a scorer's name; None if no selector needs one. memory: limit for one video's features, in bytes;
    by default `Session`'s. `misses` counts the selections that were made.

    >>> cache, question = SelectionCache("table:scores.csv"), "What happens after firing?"
    >>> _ = cache.select("kiln.mp4", question, "mec", [8, 64])
    >>> [len(cache.prefix("kiln.mp4", question, "mec", k)) for k in (8, 64)], cache.misses
    ([8, 64], 1)
    """

    def __init__(self, scorer: str | None, memory: int | None = None) -> None:
        self.misses = 0
        self._name = scorer
        self._session = Session(scorer, progress=False, memory=memory)
        self._local = local_directory(self._session.store)
        self._video = ""

    @cached_property
    def scorer(self) -> str | None:
        """The scorer's name and the revision of its weights."""
        return None if self._name is None else identity(self._name, self._local)

    def prefix(self, video: str, text: str, selector: str, budget: int) -> Prefix:
        """The frames that a selector chooses for a text at a budget.

        NotSelected if the selector needs a scorer, and `select` was not called before.
        """
        result = self._cached(video, text, selector)
        if result is None or not _serves(result, budget):
            if needs_scorer(selector):
                raise NotSelected(f"{video}: no selection by {selector} with {budget} frames for {text!r}")
            result = self.select(video, text, selector, [budget])
        prefix = result.prefix(budget)
        prefix.must_hold_frames()
        return prefix

    def select(self, video: str, text: str, selector: str, budgets: Sequence[int]) -> Ranking | Selection:
        """Make a ranking, or a selection with these budgets, unless it is in the cache."""
        cached = self._cached(video, text, selector)
        missing = [k for k in budgets if cached is None or not _serves(cached, k)]
        if cached is not None and not missing:
            return cached
        self.misses += 1
        if video != self._video:  # memory holds one video at a time
            self._session.forget()
            self._video = video
        chooser = load_selector(selector, self._session)
        result: Ranking | Selection
        if isinstance(chooser, MecSelector):
            result = chooser.rank(video, text)
        else:
            result = chooser.select(video, text, missing)
            if isinstance(cached, Selection):
                result = replace(result, prefixes=dict(sorted((cached.prefixes | result.prefixes).items())))
        if not selector.startswith(FILE):  # reading such a file again is fast
            result.save(self._file(video, text, selector))
        return result

    def _cached(self, video: str, text: str, selector: str) -> Ranking | Selection | None:
        """What is on disk; None if nothing is, or only a damaged file."""
        if selector.startswith(FILE) or not (file := self._file(video, text, selector)).exists():
            return None
        with suppress(FramenestError):
            return load_result(file)
        return None

    def _file(self, video: str, text: str, selector: str) -> Path:
        name, _, settings = selector.partition(":")
        reads = CATALOGUE["ocr"].installed()  # what --ocr auto means here
        how: Any = (mec_config(settings).to_json(), reads) if name == "mec" else selector
        scorer = self.scorer if needs_scorer(selector) else None
        content = self._local.fingerprint(video)
        key = digest(RANKING_FORMAT, framenest.__version__, content, text, name, how, scorer)
        return self._local.root / "selections" / key[:2] / f"{key}.json"


def _serves(result: Ranking | Selection, budget: int) -> bool:
    """A ranking serves every budget, or says why not."""
    return isinstance(result, Ranking) or budget in result.prefixes
