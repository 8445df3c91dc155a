"""ModelFile: a file on this machine whose content is known by its hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from framenest.cache.directory import DirectoryStore
from framenest.cache.hashes import file_hashes

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
