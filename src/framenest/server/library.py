"""Library: the videos that may be asked about. Paths stay inside the allowed folder."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framenest.cache.hashes import digest
from framenest.server.jobs import Journal
from framenest.server.refusals import ConcurrencyLimit, Refusal
from framenest.server.server_settings import ServerSettings
from framenest.server.video_check import check_video
from framenest.video.source import VIDEO_SUFFIXES

LISTED = 2000  # files of the folder that are listed


@dataclass(frozen=True)
class LibraryVideo:
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
        with suppress(OSError):
            if file_state(self.path) == self.stat and self.path.resolve() == self.path:
                return self.path
        raise Refusal(409, f"{self.name}: this file has changed or is gone; register it again")

    def image_size(self, frame: int, size: int | None) -> int:
        """The short side of a frame's image: the one asked for, never more than the original has."""
        if self.info is None:
            raise Refusal(409, f"{self.name}: not indexed yet")
        if frame >= self.info["num_frames"]:
            raise Refusal(404, f"this video has frames 0 to {self.info['num_frames'] - 1}")
        original = min(int(self.info["width"]), int(self.info["height"]))
        return original if size is None else min(size, original)


class Library:
    """Registered videos, in the journal."""

    def __init__(self, journal: Journal, settings: ServerSettings) -> None:
        self._journal = journal
        self._settings = settings
        self._folders = [folder.resolve() for folder in settings.videos]
        self._checks = ConcurrencyLimit(2, "too many videos are being registered at once", 5, wait=10)

    def files(self) -> list[dict[str, Any]]:
        """Files of the folders that look like videos: path below the folder, and size."""
        found: list[dict[str, Any]] = []
        for folder in self._folders:
            for file in sorted(folder.rglob("*")):
                if file.suffix.lower() not in VIDEO_SUFFIXES:
                    continue
                with suppress(OSError, RuntimeError, UnicodeEncodeError):  # gone; a name that is no text
                    str(file).encode()
                    if file.is_file() and file.resolve().is_relative_to(folder):
                        found.append({"path": str(file.relative_to(folder)), "bytes": file.stat().st_size})
                if len(found) == LISTED:
                    return found
        return found

    def add_path(self, path: str) -> LibraryVideo:
        """Register a file of the allowed folders; `..` and links are resolved before it is judged.

        path: below one of the folders, the first that has it; or absolute, inside one of them.
        """
        if not self._folders:
            raise Refusal(403, "this server offers no folder of videos; upload the video")
        inside = False
        for folder in self._folders:
            try:
                file = (folder / path).resolve()
                if not file.is_relative_to(folder):
                    continue
                inside = True
                if file.is_file():
                    return self.add_file(file, str(file.relative_to(folder)), "folder")
            except (OSError, ValueError, RuntimeError) as error:
                raise Refusal(404, "no such video") from error
        if not inside:
            raise Refusal(403, "this path lies outside the folder of videos")
        raise Refusal(404, "no such video")

    def add_file(self, file: Path, name: str, origin: str, *, checked: bool = False) -> LibraryVideo:
        """Register a file that may be used, once it has been seen to be a video."""
        try:
            stat = file_state(file)
        except OSError as error:
            raise Refusal(404, "no such video") from error
        id_ = digest(str(file), stat)[:16]
        if self._journal.row("select * from videos where id = ?", [id_]) is None:
            if not checked:
                self.check_file(file)
            self._journal.write(
                "insert or ignore into videos values (?, ?, ?, ?, ?, null, ?)",
                [id_, str(file), name, origin, json.dumps(stat), time.time()],
            )
        return self.get(id_)

    def check_file(self, file: Path) -> dict[str, Any]:
        """What kind of video a file is, found out in a process with limits."""
        with self._checks():
            return check_video(file, seconds=self._settings.check_seconds, memory=self._settings.check_memory)

    def get(self, id_: str) -> LibraryVideo:
        """A registered video by its id."""
        row = self._journal.row("select * from videos where id = ?", [id_])
        if row is None:
            raise Refusal(404, "no such video")
        return _from_row(row)

    def all(self) -> list[LibraryVideo]:
        """Newest first."""
        return [_from_row(row) for row in self._journal.rows("select * from videos order by created desc")]

    def indexed(self, id_: str, info: dict[str, Any]) -> None:
        """Note what indexing found out."""
        self._journal.write("update videos set info = ? where id = ?", [json.dumps(info), id_])

    def remove(self, video: LibraryVideo) -> list[str]:
        """Forget a video, its rankings, and the file if it was uploaded; returns the rankings' ids."""
        rows = self._journal.rows("select id from rankings where video = ?", [video.id])
        self._journal.write("delete from rankings where video = ?", [video.id])
        self._journal.write("delete from videos where id = ?", [video.id])
        if video.origin != "folder" and video.path.is_relative_to(self._settings.uploads.resolve()):
            video.path.unlink(missing_ok=True)
        return [row["id"] for row in rows]


def file_state(file: Path) -> list[int]:
    """What differs where a file was written again: size, modification time, inode."""
    found = file.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _from_row(row: Any) -> LibraryVideo:
    info = json.loads(row["info"]) if row["info"] else None
    made = {"path": Path(row["path"]), "stat": json.loads(row["stat"]), "info": info}
    return LibraryVideo(**dict(row) | made)
