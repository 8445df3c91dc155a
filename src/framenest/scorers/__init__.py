"""Scorers: how well a frame matches a question."""

from __future__ import annotations

import importlib
import importlib.util

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra, ScorerError
from framenest.models import CATALOGUE, entry_of, locate
from framenest.protocols import Progress, Scorer
from framenest.scorers.table import TableScorer

BEST_FIRST = ("blip2", "siglip2", "onnx", "clip", "tags")
"""The order in which "auto" looks."""
GPU_ONLY = ("blip2",)


def load_scorer(
    wanted: str | Scorer,
    store: DirectoryStore,
    config: ScorerConfig | None = None,
    progress: Progress = lambda *_: None,
) -> Scorer:
    """A scorer by name, or the one given.

    "auto", a name of `framenest models`, a name with a checkpoint ("clip:org/name", "blip2:FOLDER"),
    or "table:FILE".
    """
    if not isinstance(wanted, str):
        if not isinstance(wanted, Scorer):
            raise ScorerError(f"{wanted!r} is not a scorer: it needs name, version, inputs, encode, match")
        return wanted
    if wanted.startswith("table:"):
        return TableScorer.load(wanted.removeprefix("table:"))
    if wanted == "auto":
        wanted, _ = choose(store)
    entry, checkpoint = entry_of(wanted, "auto", "table:FILE")
    for package in entry.packages:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(entry.extra, package)
    module, _, kind = entry.loader.partition(":")
    loaded: Scorer = getattr(importlib.import_module(module), kind).load(
        checkpoint, store, config or ScorerConfig(), progress
    )
    return loaded


def identity(wanted: str, store: DirectoryStore) -> str:
    """What a scorer's numbers come from, by name and revision of its weights, without loading it.

    >>> identity("blip2", DirectoryStore())                                     # doctest: +SKIP
    'blip2 Salesforce/blip2-itm-vit-g@4b2c1f0a9d3e'
    """
    if wanted.startswith("table:"):
        return f"table {store.fingerprint(wanted.removeprefix('table:'))}"
    if wanted == "auto":
        wanted, _ = choose(store)
    entry, checkpoint = entry_of(wanted, "auto", "table:FILE")
    if entry.repo is not None:
        return f"{entry.name} {locate(entry.name, checkpoint, store)}"
    with_all = all(importlib.util.find_spec(package) is not None for package in entry.optional)
    return entry.name if with_all else f"{entry.name} without {', '.join(entry.optional)}"


def choose(store: DirectoryStore) -> tuple[str, str]:
    """The best scorer for this machine, and why, in one line."""
    passed = []
    for name in BEST_FIRST:
        entry = CATALOGUE[name]
        if not entry.installed():
            passed.append(f"{name} is not installed")
        elif not entry.here(store):
            passed.append(f"no weights of {name}")
        elif name in GPU_ONLY and not _gpu():
            passed.append(f"no GPU for {name}")
        else:
            why = f" ({'; '.join(passed)})" if passed else ""
            return name, f"scorer {name}, the best one that is ready here{why}"
    raise ScorerError(
        "no scorer is ready: run `framenest models fetch tags`, or see `framenest models` for better ones"
    )


def runs_on_gpu(wanted: str) -> bool:
    """Whether a scorer, as it would be loaded here, is a torch model beside a CUDA GPU."""
    entry = CATALOGUE.get(wanted.partition(":")[0])
    return entry is not None and "torch" in entry.packages and entry.installed() and _gpu()


def _gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())
