"""An on-disk cache of selections.

For MEC it holds a question's ranking, which serves every budget. For a selector that does not rank, it holds
the selections at the budgets requested so far.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import framenest
from framenest.cache.directory import local_directory
from framenest.cache.hashes import digest
from framenest.config import ScorerConfig
from framenest.errors import FramenestError
from framenest.method.prefix import Prefix
from framenest.method.ranking import RANKING_FORMAT, Ranking
from framenest.models import CATALOGUE
from framenest.scorers import identity
from framenest.selectors import FILE, load_selector, mec_config, needs_scorer
from framenest.selectors.built_in import MecSelector
from framenest.selectors.selection import Selection, load_result
from framenest.session import Session


class SelectionCache:
    """Selects frames for questions, or reads them from disk on a cache hit.

    scorer: a scorer's name; None if no selector needs one. device: of the scorer. `misses` counts what was
    not in the cache.

    >>> cache = SelectionCache("table:scores.csv")
    >>> prefixes = [cache.prefix("kiln.mp4", "What happens after firing?", "mec", k) for k in (8, 64)]
    >>> [len(prefix) for prefix in prefixes], cache.misses
    ([8, 64], 1)
    """

    def __init__(self, scorer: str | None, device: str = "auto") -> None:
        self.misses = 0
        self._name = scorer
        self._session = Session(scorer, scoring=ScorerConfig(device=device), progress=False)
        self._local = local_directory(self._session.store)
        self._video = ""

    @cached_property
    def scorer(self) -> str | None:
        """The scorer's name and the revision of its weights."""
        return None if self._name is None else identity(self._name, self._local, "")

    def prefix(self, video: str, text: str, selector: str, budget: int) -> Prefix:
        """The frames that a selector chooses for a text at a budget."""
        prefix = self._result(video, text, selector, budget).prefix(budget)
        prefix.must_hold_frames()
        return prefix

    def _result(self, video: str, text: str, selector: str, budget: int) -> Ranking | Selection:
        """A ranking, or a selection with at least this budget."""
        if selector.startswith(FILE):  # reading it again is fast
            self.misses += 1
            return self._select(video, text, selector, budget)
        file = self._file(video, text, selector)
        cached: Ranking | Selection | None = None
        if file.exists():
            with suppress(FramenestError):  # a damaged file is written again
                cached = load_result(file)
        if isinstance(cached, Ranking) or (cached is not None and budget in cached.prefixes):
            return cached
        self.misses += 1
        result = self._select(video, text, selector, budget)
        if isinstance(result, Selection) and isinstance(cached, Selection):
            result = replace(result, prefixes=dict(sorted((cached.prefixes | result.prefixes).items())))
        result.save(file)
        return result

    def _select(self, video: str, text: str, selector: str, budget: int) -> Ranking | Selection:
        if video != self._video:  # memory holds one video at a time
            self._session.forget()
            self._video = video
        chooser = load_selector(selector, self._session)
        if isinstance(chooser, MecSelector):
            return chooser.rank(video, text)
        return chooser.select(video, text, [budget])

    def _file(self, video: str, text: str, selector: str) -> Path:
        name, _, settings = selector.partition(":")
        reads = CATALOGUE["ocr"].installed()  # what --ocr auto means here
        how: Any = (mec_config(settings).to_json(), reads) if name == "mec" else selector
        scorer = self.scorer if needs_scorer(selector) else None
        content = self._local.fingerprint(video)
        key = digest(RANKING_FORMAT, framenest.__version__, content, text, name, how, scorer)
        return self._local.root / "selections" / key[:2] / f"{key}.json"
