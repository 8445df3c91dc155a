"""Selections kept on disk: a question is selected for once, whatever budgets are asked for later.

Of MEC the ranking is kept, which serves every budget. Of a selector that does not rank, one file per
question holds the budgets asked for so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import framenest
from framenest.cache.directory import DirectoryStore, digest, local_directory
from framenest.config import PRESETS, MECConfig
from framenest.errors import BudgetError, ConfigError, FramenestError, StoreError
from framenest.method.mec import MEC
from framenest.method.prefix import Prefix
from framenest.method.ranking import RANKING_FORMAT, Ranking
from framenest.protocols import Progress, Store
from framenest.scorers import identity
from framenest.selectors import FILE, load_selector, selector_names
from framenest.selectors.selection import Selection, load_result
from framenest.session import Session


def mec_config(settings: str) -> MECConfig:
    """MEC's configuration from what follows "mec:": a preset, settings, or both.

    >>> mec_config("no-zoom+horizon=64").ranking.horizon
    64
    """
    config = MECConfig()
    for part in filter(None, settings.split("+")):
        name, given, value = part.partition("=")
        if not given:
            if name not in PRESETS:
                raise ConfigError(f"there is no preset {name!r}; choose from {', '.join(PRESETS)}")
            config = config.with_settings(PRESETS[name])
            continue
        try:
            config = config.with_settings({name: json.loads(value)})
        except ValueError:
            config = config.with_settings({name: value})
    return config


def check_selector(wanted: str) -> None:
    """Refuse a name that no selector has, before the work. "mec:PRESET" and "file:PATH" are names too."""
    name, _, settings = wanted.partition(":")
    if name == "mec":
        mec_config(settings)
    elif not wanted.startswith(FILE) and wanted not in selector_names():
        raise ConfigError(f"there is no selector {wanted!r}; choose from {', '.join(selector_names())}")


def check_horizons(selectors: Iterable[str], budget: int) -> None:
    """Refuse a budget that MEC's rankings would not serve on a long video, before the work."""
    for selector in selectors:
        name, _, settings = selector.partition(":")
        if name == "mec" and (horizon := mec_config(settings).ranking.horizon) < budget:
            raise BudgetError(
                f"{selector} ranks {horizon} frames, too few for a budget of {budget}; give it a longer "
                f"horizon, as mec:horizon={budget}"
            )


def needs_scorer(selector: str) -> bool:
    """Whether it chooses by relevance."""
    return selector != "uniform" and not selector.startswith(FILE)


class SelectionCache:
    """Frames for questions, from disk where they were selected before.

    scorer: a scorer's name; None where no selector needs one.
    `made` counts selections that ran; the others were there.

    >>> kept = SelectionCache("tags")                                           # doctest: +SKIP
    >>> kept.prefix("kiln.mp4", "What happens after firing?", "mec", 8)         # doctest: +SKIP
    """

    def __init__(
        self,
        scorer: str | None,
        *,
        store: Store | None = None,
        progress: Progress = lambda *_: None,
    ) -> None:
        self.store = store or DirectoryStore()
        self._local = local_directory(self.store)
        self.made = 0
        self._wanted = scorer
        self._progress = progress
        self._spaces: dict[str, Session] = {}
        self._loaded: Any = scorer

    @cached_property
    def scorer(self) -> str | None:
        """What scores, with the revision of its weights: other weights make other selections."""
        return None if self._wanted is None else identity(self._wanted, self._local)

    def prefix(self, video: str, text: str, selector: str, budget: int) -> Prefix:
        """The frames that a selector chooses for a text at a budget."""
        prefix = self.result(video, text, selector, [budget]).prefix(budget)
        prefix.must_hold_frames()
        return prefix

    def result(self, video: str, text: str, selector: str, budgets: list[int]) -> Ranking | Selection:
        """A ranking, or a selection that holds at least these budgets."""
        if selector.startswith(FILE):  # chosen elsewhere, and read in no time
            self.made += 1
            return self._select(video, text, selector, budgets)
        file = self._file(video, text, selector)
        kept = self._read(file)
        if isinstance(kept, Ranking) or (kept is not None and set(budgets) <= set(kept.prefixes)):
            return kept
        self.made += 1
        made = self._select(video, text, selector, budgets)
        if isinstance(made, Selection) and isinstance(kept, Selection):
            made = replace(made, prefixes=dict(sorted((kept.prefixes | made.prefixes).items())))
        made.save(file)
        return made

    def space(self, video: str) -> Session:
        """The session of this video; that of the one before is let go."""
        if video not in self._spaces:
            self._spaces = {video: Session(self._loaded, store=self.store, progress=self._progress)}
        return self._spaces[video]

    def _select(self, video: str, text: str, selector: str, budgets: list[int]) -> Ranking | Selection:
        space = self.space(video)
        name, _, settings = selector.partition(":")
        if needs_scorer(selector):
            self._loaded = space.scorer  # loaded once, for all videos
        if name == "mec":
            return MEC(mec_config(settings), session=space).rank(video, text)
        made: Selection = load_selector(selector, space).select(video, text, budgets)
        return made

    def _file(self, video: str, text: str, selector: str) -> Path:
        name, _, settings = selector.partition(":")
        how: Any = mec_config(settings).to_json() if name == "mec" else selector
        scorer = self.scorer if needs_scorer(selector) else None
        key = digest(
            RANKING_FORMAT, framenest.__version__, self._local.fingerprint(video), text, name, how, scorer
        )
        return self._local.root / "selections" / key[:2] / f"{key}.json"

    def _read(self, file: Path) -> Ranking | Selection | None:
        if not file.exists():
            return None
        try:
            return load_result(file)
        except FramenestError as error:  # it is only a cache: a damaged or older file is made anew
            if isinstance(error, StoreError) and "cannot be read" in str(error):
                raise
            return None
