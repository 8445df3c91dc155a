"""Files of a benchmark below a folder: its videos, or its subtitles."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from framenest.errors import StoreError, VideoError
from framenest.video.formats import VIDEO_SUFFIXES


class MediaFolder:
    """Files below a folder by the names that annotations use: a path, a file name, or one without suffix.

    suffixes: which files may stand for a name without one; subtitles and notes often lie beside a video.
    """

    def __init__(self, root: str | Path, suffixes: Collection[str] = VIDEO_SUFFIXES) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise StoreError(f"{self.root}: no such folder")
        self._by_name: dict[str, Path] = {}
        for file in sorted(f for f in self.root.rglob("*") if f.is_file()):
            self._by_name.setdefault(file.name, file)
            if file.suffix.lower() in suffixes:
                self._by_name.setdefault(file.stem, file)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those that are not here, each once."""
        return [name for name in dict.fromkeys(names) if self._path(name) is None]

    def find(self, name: str) -> Path:
        """The file that a name means; VideoError where there is none.

        >>> MediaFolder(".").find("kiln").name
        'kiln.mp4'
        """
        found = self._path(name)
        if found is None:
            raise VideoError(f"{name}: no such file in {self.root}")
        return found

    def _path(self, name: str) -> Path | None:
        direct = self.root / name
        return direct if direct.is_file() else self._by_name.get(Path(name).name)
