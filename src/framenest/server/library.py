"""Library: the videos that may be asked about. Paths stay inside the allowed folder."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framenest.cache.directory import digest
from framenest.server.check import check_video
from framenest.server.journal import Journal
from framenest.server.refusals import Busy, Forbidden, NotReady, Unknown
from framenest.server.settings import Settings
from framenest.video import VIDEO_SUFFIXES

LISTED = 2000  # files of the folder that are listed


@dataclass(frozen=True)
class Video:
    """A registered video. `id` follows from the file itself: a changed file is another video.

    `info` is the VideoInfo of the indexed video as JSON, None before. origin: folder, upload or url.
    """

    id: str
    path: Path
    name: str
    origin: str
    stat: list[int]
    info: dict[str, Any] | None
    created: float

    def check(self) -> Path:
        """The path, if the file there is still the one that was registered."""
        try:
            if _stat(self.path) == self.stat and self.path.resolve() == self.path:
                return self.path
        except OSError:
            pass
        raise NotReady(f"{self.name}: this file has changed or is gone; register it again")


class Library:
    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._settings = settings
        self._folder = settings.videos.resolve() if settings.videos else None
        self._checks = threading.BoundedSemaphore(2)

    def files(self) -> list[dict[str, Any]]:
        """Files of the folder that look like videos: path below the folder, and size."""
        if self._folder is None:
            return []
        found = []
        for file in sorted(self._folder.rglob("*")):
            if file.suffix.lower() in VIDEO_SUFFIXES and self._inside(file) and file.is_file():
                with suppress(
                    FileNotFoundError, UnicodeEncodeError
                ):  # removed just now; a name that is no text
                    str(file).encode()
                    found.append({"path": str(file.relative_to(self._folder)), "bytes": file.stat().st_size})
            if len(found) == LISTED:
                break
        return found

    def add_path(self, path: str) -> Video:
        """Register a file of the allowed folder; `..` and links are resolved before it is judged."""
        if self._folder is None:
            raise Forbidden("this server offers no folder of videos; upload the video")
        try:
            file = (self._folder / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise Unknown("no such video") from error
        if not file.is_relative_to(self._folder):
            raise Forbidden("this path lies outside the folder of videos")
        if not _is_file(file):
            raise Unknown("no such video")
        return self.add_file(file, str(file.relative_to(self._folder)), "folder")

    def add_file(self, file: Path, name: str, origin: str, *, inspected: bool = False) -> Video:
        """Register a file that may be used, once it has been seen to be a video."""
        try:
            stat = _stat(file)
        except OSError as error:
            raise Unknown("no such video") from error
        id_ = digest(str(file), stat)[:16]
        known = self._journal.row("select * from videos where id = ?", [id_])
        if known is None:
            if not inspected:
                self.inspect(file)
            self._journal.write(
                "insert or ignore into videos values (?, ?, ?, ?, ?, null, ?)",
                [id_, str(file), name, origin, json.dumps(stat), time.time()],
            )
        return self.get(id_)

    def inspect(self, file: Path) -> dict[str, Any]:
        """What kind of video a file is, found out in a process with limits."""
        if not self._checks.acquire(timeout=10):
            raise Busy("too many videos are being registered at once; try again later", 5)
        try:
            return check_video(file, seconds=self._settings.check_seconds, memory=self._settings.check_memory)
        finally:
            self._checks.release()

    def get(self, id_: str) -> Video:
        row = self._journal.row("select * from videos where id = ?", [id_])
        if row is None:
            raise Unknown("no such video")
        return _from_row(row)

    def all(self) -> list[Video]:
        return [_from_row(row) for row in self._journal.rows("select * from videos order by created desc")]

    def indexed(self, id_: str, info: dict[str, Any]) -> None:
        self._journal.write("update videos set info = ? where id = ?", [json.dumps(info), id_])

    def remove(self, video: Video) -> list[str]:
        """Forget a video, its rankings, and the file if it was uploaded; returns the rankings' ids."""
        rows = self._journal.rows("select id from rankings where video = ?", [video.id])
        self._journal.write("delete from rankings where video = ?", [video.id])
        self._journal.write("delete from videos where id = ?", [video.id])
        if video.origin != "folder" and video.path.is_relative_to(self._settings.uploads.resolve()):
            video.path.unlink(missing_ok=True)
        return [row["id"] for row in rows]

    def _inside(self, file: Path) -> bool:
        try:
            return self._folder is not None and file.resolve().is_relative_to(self._folder)
        except (OSError, RuntimeError):
            return False


def info_of(video: Video) -> dict[str, Any]:
    """What indexing found out; refused before that."""
    if video.info is None:
        raise NotReady(f"{video.name}: not indexed yet")
    return video.info


def frame_size(info: dict[str, Any], frame: int, size: int | None) -> int:
    """The short side of a picture: the one asked for, never more than the original has."""
    if frame >= info["num_frames"]:
        raise Unknown(f"this video has frames 0 to {info['num_frames'] - 1}")
    original = min(int(info["width"]), int(info["height"]))
    return original if size is None else min(size, original)


def plain_error(error: Exception, video: Video) -> str:
    """An error's message without where the server keeps its files."""
    return str(error).replace(str(video.path), video.name)


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except (OSError, ValueError):
        return False


def _stat(file: Path) -> list[int]:
    found = file.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _from_row(row: Any) -> Video:
    info = json.loads(row["info"]) if row["info"] else None
    return Video(
        row["id"],
        Path(row["path"]),
        row["name"],
        row["origin"],
        json.loads(row["stat"]),
        info,
        row["created"],
    )
