"""Model files in repositories of the Hugging Face hub, in the cache that its other tools share."""

from __future__ import annotations

import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framenest.cache.directory import DirectoryStore
from framenest.cache.hashes import digest, file_hashes
from framenest.errors import MissingExtra, ScorerError, StoreError
from framenest.models.model_file import BLOBS, ModelFile, damaged
from framenest.text import one_line

WEIGHTS = ("*.safetensors", "*.onnx")
FILES = ("*.onnx_data", "*.json", "*.txt", "*.model", "*.jinja")


@dataclass(frozen=True)
class Checkpoint:
    """A model on this machine. `revision` is the hub's commit, or a hash of a local folder's files."""

    path: Path
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name}@{self.revision[:12]}"


@dataclass(frozen=True)
class HubRepo:
    """A repository on the hub. `size` in bytes, of what is downloaded."""

    repo: str
    size: int
    licence: str
    weights: tuple[str, ...] = ()
    """Which weights, where the repository holds several; all by default."""
    revision: str | None = None
    """The commit, branch or tag that is taken; None takes the newest."""

    @property
    def what(self) -> str:
        return self.repo

    def here(self, store: DirectoryStore) -> bool:
        """Whether a revision with weights is in the hub's cache."""
        return self._snapshot() is not None

    def files(self, store: DirectoryStore) -> list[ModelFile]:
        """The files of the revision here that the hub's cache names by their hash."""
        snapshot = self._snapshot()
        return [] if snapshot is None else [known for file in self._used(snapshot) for known in _known(file)]

    def fetch(self, store: DirectoryStore) -> Path:
        """Download the revision; files that are here already and whole are not downloaded again."""
        hub, where = _hub(), f"huggingface.co/{self.repo}"
        patterns = [*(self.weights or WEIGHTS), *FILES]
        for file in damaged(self.files(store), store, anew=True):
            file.remove()
        try:
            return Path(hub.snapshot_download(self.repo, revision=self.revision, allow_patterns=patterns))
        except hub.errors.GatedRepoError as error:
            why = "its owner asks you to accept terms first; do so on its page, then run: hf auth login"
            raise StoreError(f"{where}: {why}") from error
        except hub.errors.RepositoryNotFoundError as error:
            raise StoreError(f"{where}: there is no such repository, or it is private") from error
        except hub.errors.RevisionNotFoundError as error:
            raise StoreError(
                f"{where}: there is no revision {self.revision!r}; --revision main takes the newest"
            ) from error
        except (hub.errors.LocalEntryNotFoundError, hub.errors.OfflineModeIsEnabled) as error:
            raise StoreError(f"{where}: no network, or the hub does not answer") from error
        except (hub.errors.HfHubHTTPError, OSError, ValueError) as error:
            raise StoreError(f"{where}: could not be fetched ({one_line(error)})") from error

    def locate(self, store: DirectoryStore) -> Checkpoint | None:
        """The revision, where it is here; None where it is not.

        The hub's cache names files by their hash, through links. Where it cannot link, nothing tells what a
        file must hold, and the revision is a hash of what they do hold.
        """
        path = self._snapshot()
        if path is None:
            return None
        files = self._used(path)
        if all(_known(file) for file in files):
            return Checkpoint(path, self.repo, path.name)
        return Checkpoint(path, self.repo, digest(path.name, _prints(path, files, store)))

    def _used(self, snapshot: Path) -> list[Path]:
        return _matching(snapshot, (*(self.weights or WEIGHTS), *FILES))

    def _snapshot(self) -> Path | None:
        try:
            hub = _hub()
        except MissingExtra:
            return None
        try:
            path = Path(hub.snapshot_download(self.repo, revision=self.revision, local_files_only=True))
        except (OSError, ValueError, hub.errors.LocalEntryNotFoundError):
            return None
        found = [any(path.rglob(Path(pattern).name)) for pattern in self.weights or WEIGHTS]
        return path if (all(found) if self.weights else any(found)) else None


def from_folder(folder: str | os.PathLike[str], store: DirectoryStore) -> Checkpoint:
    """A model saved in a folder; its revision is a hash of the files."""
    path = Path(folder).expanduser().resolve()
    if not _matching(path, WEIGHTS):
        raise ScorerError(f"{folder}: no model in this folder (*.safetensors or *.onnx)")
    return Checkpoint(path, path.name, digest(_prints(path, _matching(path, (*WEIGHTS, *FILES)), store)))


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files below a folder whose names fit; links that lead nowhere are left out."""
    found = {file for pattern in patterns for file in folder.rglob(Path(pattern).name)}
    return sorted(file for file in found if file.is_file())


def _prints(folder: Path, files: list[Path], store: DirectoryStore) -> list[list[str]]:
    """Names and hashes of all files that a model is loaded from."""
    hashes = file_hashes([(file, "pieces") for file in files], store)
    return [[file.relative_to(folder).as_posix(), found] for file, found in zip(files, hashes, strict=True)]


def _known(file: Path) -> list[ModelFile]:
    """The file with the hash that the hub's cache names it by: SHA-256, or git's of small files."""
    target = file.resolve()
    method = {64: "sha256", 40: "git"}.get(len(target.name))
    hashed = target.parent.name == BLOBS and set(target.name) <= set("0123456789abcdef")
    return [ModelFile(file, method, target.name)] if file.is_symlink() and hashed and method else []


def reachable() -> bool:
    """Whether the hub answers from here."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    request = urllib.request.Request(f"{address.rstrip('/')}/api/models?limit=1", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=10):
            return True
    except (OSError, ValueError):  # also an answer that refuses, as of a proxy
        return False


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise MissingExtra("onnx", "huggingface_hub") from error
    return huggingface_hub
