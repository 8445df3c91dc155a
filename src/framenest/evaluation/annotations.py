"""A benchmark on disk: its annotation file and its videos."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from framenest.errors import ConfigError, StoreError, VideoError
from framenest.evaluation.benchmarks import READERS, BenchmarkQuestion
from framenest.records import read_rows
from framenest.video import VIDEO_SUFFIXES


def load_benchmark(dataset: str, annotations: str | Path) -> list[BenchmarkQuestion]:
    """The questions of a benchmark from its own annotation file (or folder, as MLVU has it).

    >>> load_benchmark("videomme", "test-00000-of-00001.parquet")        # doctest: +SKIP
    """
    if dataset not in READERS:
        raise ConfigError(f"there is no benchmark {dataset!r}; choose from {', '.join(READERS)}")
    file = Path(annotations)
    try:
        rows = [row for row in read_rows(file) if not _open_ended(dataset, row)]
        found = [READERS[dataset](row) for row in rows]
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ConfigError(f"{file}: not the annotations of {dataset} ({error!r})") from error
    if not found:
        raise ConfigError(f"{file}: no questions in this file")
    return _unique(found)


def _open_ended(dataset: str, row: Mapping[str, Any]) -> bool:
    """MLVU has tasks without choices; its macro accuracy is over the others."""
    return dataset == "mlvu" and "video_name" not in row and not row.get("candidates")


def _unique(questions: Sequence[BenchmarkQuestion]) -> list[BenchmarkQuestion]:
    """Each with an id of its own: a repeated one gets a number."""
    seen: dict[str, int] = {}
    result = []
    for question in questions:
        count = seen[question.id] = seen.get(question.id, 0) + 1
        result.append(question if count == 1 else replace(question, id=f"{question.id} #{count}"))
    return result


class Folder:
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
        """
        >>> Folder("Video-MME/data").find("fFjv93ACGo8")                  # doctest: +SKIP
        PosixPath('Video-MME/data/fFjv93ACGo8.mp4')
        """
        found = self._path(name)
        if found is None:
            raise VideoError(f"{name}: no such file in {self.root}")
        return found

    def _path(self, name: str) -> Path | None:
        direct = self.root / name
        return direct if direct.is_file() else self._by_name.get(Path(name).name)
