"""Model files in repositories of the Hugging Face hub, in the cache that its other tools share."""

from __future__ import annotations

import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framenest.cache.directory import DirectoryStore
from framenest.cache.hashes import digest
from framenest.errors import MissingExtra, ScorerError, StoreError
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
    files: tuple[str, ...] = ()
    """Which weights, where the repository holds several; all by default."""
    revision: str | None = None
    """The commit, branch or tag that is taken; None takes the newest."""

    @property
    def what(self) -> str:
        return self.repo

    def here(self, store: DirectoryStore) -> bool:
        """Whether a revision with weights is in the hub's cache."""
        return self.locate() is not None

    def fetch(self, store: DirectoryStore) -> Path:
        """Download the revision; files that are here already are not downloaded again."""
        hub, where = _hub(), f"huggingface.co/{self.repo}"
        patterns = [*(self.files or WEIGHTS), *FILES]
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

    def locate(self) -> Checkpoint | None:
        """The revision, where it is here; None where it is not."""
        try:
            hub = _hub()
        except MissingExtra:
            return None
        try:
            path = Path(hub.snapshot_download(self.repo, revision=self.revision, local_files_only=True))
        except (OSError, ValueError, hub.errors.LocalEntryNotFoundError):
            return None
        found = [any(path.rglob(Path(pattern).name)) for pattern in self.files or WEIGHTS]
        there = all(found) if self.files else any(found)
        return Checkpoint(path, self.repo, path.name) if there else None


def from_folder(folder: str | os.PathLike[str], store: DirectoryStore) -> Checkpoint:
    """A model saved in a folder; its revision is a hash of the files."""
    path = Path(folder).expanduser().resolve()
    weights = sorted(file for pattern in (*WEIGHTS, "*.json") for file in path.rglob(pattern))
    if not any(file.suffix != ".json" for file in weights):
        raise ScorerError(f"{folder}: no model in this folder (*.safetensors or *.onnx)")
    prints = [[str(file.relative_to(path)), store.fingerprint(str(file))] for file in weights]
    return Checkpoint(path, path.name, digest(prints))


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
