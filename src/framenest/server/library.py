"""Library: the videos that may be asked about, from the allowed folders, uploads and allowed hosts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from framenest.cache.directory import DOWNLOADS, local_directory
from framenest.cache.hashes import digest
from framenest.cache.remote import open_store
from framenest.errors import StoreError, VideoError
from framenest.server.guard import ConcurrencyLimit, Refusal, time_for
from framenest.server.jobs import Journal
from framenest.server.server_settings import MIB, ServerSettings
from framenest.video.guarded_opening import check_guarded
from framenest.video.source import CONTAINERS, VIDEO_SUFFIXES
from framenest.video.web_page import PAGES, fetch_page

MAX_LISTED_FILES = 2000  # of the folders
CHECK_SECONDS = 20  # of processor time, to check a file
CHECK_BYTES = 2048 * MIB
UPLOADS_AT_ONCE = 4
UPLOAD_SILENT_SECONDS = 30.0  # without a byte of an upload
UPLOAD_SECONDS = 3600.0  # for a whole file
PARTIAL = ".part"
_VIDEOS = "select *, (select count(*) from rankings where video = videos.id) as questions from videos"


@dataclass(frozen=True)
class LibraryVideo:
    """A registered video."""

    id: str  # follows from the file itself: a changed file is another video
    path: Path
    name: str
    origin: str  # folder, upload or url
    stat: list[int]
    info: dict[str, Any] | None  # VideoInfo as JSON; None before the video is indexed
    created: float
    questions: int  # how many rankings were asked for

    def check(self) -> Path:
        """The path, if the file there is still the one that was registered."""
        with suppress(OSError):
            if file_state(self.path) == self.stat and self.path.resolve() == self.path:
                return self.path
        raise Refusal(409, f"{self.name}: this file has changed or is gone; register it again")


class Library:
    """Registered videos, in the journal: from the allowed folders and hosts, and uploads."""

    def __init__(self, journal: Journal, settings: ServerSettings) -> None:
        self._journal = journal
        self._settings = settings
        self._folders = [folder.resolve() for folder in settings.videos]
        self._hosts = {host.lower() for host in settings.hosts}
        self._checks = ConcurrencyLimit(2, "too many videos are being registered at once", 5, wait=10)
        busy = f"{UPLOADS_AT_ONCE} videos are coming in already"
        self._incoming = ConcurrencyLimit(UPLOADS_AT_ONCE, busy, 10)
        self._storing = threading.Lock()  # held while bytes are counted and written
        self._cache = local_directory(open_store(settings.cache))
        for file in settings.uploads.glob(f"*{PARTIAL}"):  # of a server that was stopped
            file.unlink()

    def files(self) -> dict[str, list[Any]]:
        """FolderFiles, by paths relative to their folders; only `outside` are links to folders, too."""
        files: list[dict[str, Any]] = []
        outside: list[str] = []
        for folder in self._folders:
            for file in sorted(folder.rglob("*")):
                looks = file.suffix.lower() in VIDEO_SUFFIXES
                if len(files) == MAX_LISTED_FILES or not (looks or file.is_symlink()):
                    continue
                with suppress(OSError, RuntimeError, UnicodeEncodeError):  # removed; a name that is not text
                    str(file).encode()
                    path, target = str(file.relative_to(folder)), file.resolve()
                    video = looks and file.is_file()
                    if video and target.is_relative_to(folder):
                        files.append({"path": path, "bytes": file.stat().st_size})
                    elif (video or file.is_dir()) and not any(map(target.is_relative_to, self._folders)):
                        outside.append(path)
        return {"files": files, "outside": outside[:MAX_LISTED_FILES]}

    def add_path(self, path: str) -> LibraryVideo:
        """Register a file of the allowed folders; `..` and links are resolved before the check.

        path: below the first of the folders that has it, or absolute; also as file://…
        """
        if url := re.match(r"file:(?://[^/]*)?([^?#]*)", path, re.IGNORECASE):  # urlsplit refuses some hosts
            path = unquote(url[1])
        if not self._folders:
            raise Refusal(403, "this server offers no folder of videos (--videos FOLDER); upload the video")
        inside = False
        for folder in self._folders:
            try:
                file = (folder / path).resolve()
                if not file.is_relative_to(folder):
                    continue
                inside = True
                if file.is_file():
                    return self._add(file, str(file.relative_to(folder)), "folder")
            except (OSError, ValueError, RuntimeError) as error:
                raise Refusal(404, "no such video") from error
        if inside:
            raise Refusal(404, "no such video")
        raise Refusal(403, "this path is outside the folder of videos")

    async def upload(self, chunks: AsyncIterator[bytes], name: str) -> LibraryVideo:
        """Register a file that is sent."""
        with self._incoming(), closing(PartialFile(self._settings, self._storing)) as part:
            buffer, began = bytearray(), time.monotonic()
            while True:
                _check_time(began, part.size + len(buffer))
                try:
                    buffer += await asyncio.wait_for(anext(chunks), UPLOAD_SILENT_SECONDS)
                except StopAsyncIteration:
                    break
                except TimeoutError as error:
                    raise Refusal(422, f"the upload stood still for {UPLOAD_SILENT_SECONDS:.0f} s") from error
                if len(buffer) >= MIB:
                    await asyncio.to_thread(part.write, bytes(buffer))
                    buffer.clear()
            await asyncio.to_thread(part.write, bytes(buffer))
            return await asyncio.to_thread(self._accept, part, _plain_name(name), "upload")

    def fetch(self, url: str) -> LibraryVideo:
        """Register a file, or the video of a page, from an allowed host; redirects must lead to one."""
        self._check_address(url)
        began = time.monotonic()
        client = httpx.Client(
            timeout=UPLOAD_SILENT_SECONDS,
            headers={"user-agent": "framenest", "accept-encoding": "identity"},
            follow_redirects=True,
            event_hooks={"request": [lambda request: self._check_address(str(request.url))]},
        )
        with self._incoming(), closing(PartialFile(self._settings, self._storing)) as part, client:
            try:
                with client.stream("GET", url) as response:
                    response.raise_for_status()
                    if response.headers.get("content-type", "").partition(";")[0].lower() in PAGES:
                        return self._fetch_page(url)
                    for piece in response.iter_raw():
                        part.write(piece)
                        _check_time(began, part.size)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                raise Refusal(422, f"the address could not be fetched ({status})") from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                why = "the host broke off" if isinstance(error, httpx.RemoteProtocolError) else error
                raise Refusal(422, f"the address could not be fetched ({why})") from error
            return self._accept(part, _plain_name(unquote(urlsplit(url).path)), "url")

    def _fetch_page(self, url: str) -> LibraryVideo:
        """Register the video of a page. It is kept in the cache, and counts as stored."""

        def most(done: int) -> int:  # what others store meanwhile counts, too
            stored = _stored(self._settings.uploads) + _stored(self._cache.root / DOWNLOADS) - done
            return min(self._settings.max_upload, max(0, self._settings.max_stored - stored))

        video = fetch_page(url, self._cache, False, most, [*self._hosts]).resolve()
        return self._add(video, _plain_name(video.name), "url")

    def get(self, id_: str) -> LibraryVideo:
        """A registered video by its id."""
        row = self._journal.row(f"{_VIDEOS} where id = ?", [id_])
        if row is None:
            raise Refusal(404, "no such video")
        return _from_row(row)

    def all(self) -> list[LibraryVideo]:
        """Newest first."""
        return [_from_row(row) for row in self._journal.execute(f"{_VIDEOS} order by created desc")]

    def indexed(self, id_: str, info: dict[str, Any]) -> None:
        """Store the VideoInfo of an indexed video."""
        self._journal.execute("update videos set info = ? where id = ?", [json.dumps(info), id_])

    def remove(self, video: LibraryVideo) -> None:
        """Forget a video, its rankings, and the file if it was uploaded."""
        self._journal.execute("delete from rankings where video = ?", [video.id])
        self._journal.execute("delete from videos where id = ?", [video.id])
        if video.origin != "folder" and video.path.is_relative_to(self._settings.uploads.resolve()):
            video.path.unlink(missing_ok=True)
        elif video.path.parents[1] == (self._cache.root / DOWNLOADS).resolve():  # it came from a page
            shutil.rmtree(video.path.parent, ignore_errors=True)

    def _add(self, file: Path, name: str, origin: str, *, checked: bool = False) -> LibraryVideo:
        """Register an allowed file; refused if it is not a video."""
        try:
            stat = file_state(file)
        except OSError as error:
            raise Refusal(404, "no such video") from error
        id_ = digest(str(file), stat)[:16]
        if self._journal.row("select id from videos where id = ?", [id_]) is None:
            if not checked:
                self.check_file(file)
            values = [id_, str(file), name, origin, json.dumps(stat), time.time()]
            self._journal.execute("insert or ignore into videos values (?, ?, ?, ?, ?, null, ?)", values)
        return self.get(id_)

    def check_file(self, file: Path) -> dict[str, Any]:
        """What `check_guarded` says of a file; refused if the file is not a video."""
        try:
            with self._checks():
                return check_guarded(file, seconds=CHECK_SECONDS, memory=CHECK_BYTES)
        except VideoError as error:
            text = str(error).removeprefix(f"{file}: ").replace(str(file), "the file")
            raise Refusal(422, f"not accepted: {text}") from error
        except TimeoutError as error:
            text = "the server is too busy to look at this file; send it again later"
            raise Refusal(503, text, retry_after=60) from error
        except OSError as error:
            raise Refusal(422, f"not accepted: the file cannot be read ({error.strerror})") from error

    def _accept(self, part: PartialFile, name: str, origin: str) -> LibraryVideo:
        """Store a received file under its content's hash, if it is a video."""
        if not part.size:
            raise Refusal(422, "the file is empty")
        kind = self.check_file(part.path)
        target = self._settings.uploads.resolve() / f"{part.hash.hexdigest()}{CONTAINERS[kind['format']]}"
        new = target.is_symlink() or not target.exists()
        if new:
            with disk_errors():
                part.path.replace(target)
        try:
            return self._add(target, name, origin, checked=True)
        except StoreError:
            if new:
                target.unlink(missing_ok=True)
            raise

    def _check_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise Refusal(422, "not an address") from error
        usual = port in (None, {"http": 80, "https": 443}.get(parts.scheme))
        allowed = f"{host}:{port}" in self._hosts or (usual and host in self._hosts)
        if parts.scheme not in ("http", "https") or not allowed:
            hint = f"(--allow-host {host})"
            raise Refusal(403, f"addresses are fetched only from hosts that it was told to allow {hint}")


class PartialFile:
    """An upload, written piece by piece and hashed on the way; deleted when closed, unless it was moved."""

    def __init__(self, settings: ServerSettings, lock: threading.Lock) -> None:
        self.path = settings.uploads / f"{secrets.token_hex(8)}{PARTIAL}"
        self.hash = hashlib.blake2b(digest_size=16)
        self.size, self._settings, self._lock = 0, settings, lock
        with disk_errors():
            self._file = self.path.open("wb")

    def write(self, data: bytes) -> None:
        """Add bytes; refused beyond the limits."""
        largest = self._settings.max_upload
        if self.size + len(data) > largest:
            raise Refusal(413, f"a video may have at most {largest} bytes here")
        with self._lock, disk_errors():
            if _stored(self._settings.uploads) + len(data) > self._settings.max_stored:
                raise Refusal(413, "the server has no room left for videos")
            self._file.write(data)
            self._file.flush()  # so that it is counted, and a full disk is noticed now
        self.size += len(data)
        self.hash.update(data)

    def close(self) -> None:
        """Delete it, unless it was moved."""
        with suppress(OSError):  # the disk may be full
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _stored(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # removed just now
            total += file.stat().st_size
    return total


@contextmanager
def disk_errors() -> Iterator[None]:
    """OSError as StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"the video cannot be stored ({error.strerror})") from error


def _check_time(began: float, size: int) -> None:
    """Refuse a video that comes in too slowly. size: bytes that are here."""
    most = min(UPLOAD_SECONDS, time_for(size))
    if time.monotonic() - began > most:
        raise Refusal(422, f"the video was not here after {most:.0f} s ({size} bytes)")


def _plain_name(name: str) -> str:
    """What a file is called on the page: no folders, nothing unprintable, never used as a path."""
    base = PurePosixPath(name.replace("\\", "/")).name
    return "".join(c for c in base if c.isprintable())[:120] or "video"


def file_state(file: Path) -> list[int]:
    """What changes when a file is rewritten: size, modification time, inode, change time."""
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns]


def _from_row(row: Any) -> LibraryVideo:
    parsed = {name: json.loads(row[name] or "null") for name in ("stat", "info")}
    return LibraryVideo(**dict(row) | parsed | {"path": Path(row["path"])})
