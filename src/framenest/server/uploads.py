"""Resumable uploads, and the check that a file is a video."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from framenest.errors import StoreError
from framenest.server.library import Library, LibraryVideo
from framenest.server.refusals import ConcurrencyLimit, Refusal
from framenest.server.server_settings import MIB, ServerSettings

SUFFIX = ".part"


class StorageQuota:
    """Bytes that a folder may hold: files that are there and files that are coming in, counted together."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._lock = threading.Lock()
        self._stored = self._coming = 0

    def recount(self, ended: int = 0) -> None:
        """Count the files that are there again. ended: bytes of a partial file that comes no more."""
        with self._lock:
            self._coming -= ended
            self._stored = 0
            with disk_errors():
                for file in self._folder.iterdir():
                    with suppress(FileNotFoundError):  # removed just now
                        self._stored += file.stat().st_size if file.suffix != SUFFIX else 0

    def take(self, count: int) -> None:
        """Reserve bytes; refused where there is no room for them."""
        with self._lock:
            if self._stored + self._coming + count > self._most:
                raise Refusal(413, "the server has no room left for videos")
            self._coming += count


class PartialFile:
    """Written piece by piece, hashed on the way; deleted when closed, unless it was moved."""

    def __init__(self, folder: Path, most: int, quota: StorageQuota) -> None:
        self.path = folder / f"{secrets.token_hex(8)}{SUFFIX}"
        self.hash = hashlib.blake2b(digest_size=16)
        self.size, self._most, self._quota = 0, most, quota
        quota.recount()
        with disk_errors():
            self._file = self.path.open("wb")

    def write(self, data: bytes) -> None:
        """Add bytes; refused beyond the quota."""
        if self.size + len(data) > self._most:
            raise Refusal(413, f"a video may have at most {self._most} bytes here")
        self._quota.take(len(data))
        self.size += len(data)
        self.hash.update(data)
        with disk_errors():
            self._file.write(data)
            self._file.flush()  # a full disk is told now, and the whole file is there after the last write

    def close(self) -> None:
        """Delete it, unless it was moved, and give its bytes back."""
        with suppress(OSError):  # what a full disk did not take
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._quota.recount(ended=self.size)


@contextmanager
def disk_errors() -> Iterator[None]:
    """OSError as StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"the video cannot be stored ({error.strerror})") from error


AT_ONCE = 4
TIMEOUT = 30.0  # seconds without a byte
UPLOAD_SECONDS = 3600.0  # seconds for a whole file


class Uploads:
    """Takes in files of the library that are not in the server's folder."""

    def __init__(self, settings: ServerSettings, library: Library) -> None:
        self._settings = settings
        self._library = library
        self._limit = ConcurrencyLimit(AT_ONCE, f"{AT_ONCE} videos are coming in already", 10)
        self._quota = StorageQuota(settings.uploads, settings.max_stored)
        self._hosts = {host.lower() for host in settings.hosts}
        for left in settings.uploads.glob(f"*{SUFFIX}"):  # of a server that was stopped
            left.unlink()

    async def upload(self, chunks: AsyncIterator[bytes], name: str) -> LibraryVideo:
        """Take the bytes of a file."""
        with self._partial() as part:
            held, began = bytearray(), time.monotonic()
            while True:
                _check_time(began)
                try:
                    held += await asyncio.wait_for(anext(chunks), TIMEOUT)
                except StopAsyncIteration:
                    break
                except TimeoutError as error:
                    raise Refusal(422, f"the upload stood still for {TIMEOUT:.0f} s") from error
                if len(held) >= MIB:
                    await asyncio.to_thread(part.write, bytes(held))
                    held.clear()
            await asyncio.to_thread(part.write, bytes(held))
            return await asyncio.to_thread(self._accept, part, _plain_name(name), "upload")

    def fetch(self, url: str) -> LibraryVideo:
        """Get a file from an allowed host; redirects are followed only to allowed hosts."""
        self._check_address(url)
        opener = urllib.request.build_opener(_Redirects(self._check_address))
        began = time.monotonic()
        with self._partial() as part:
            try:
                request = urllib.request.Request(url, headers={"User-Agent": "framenest"})
                with opener.open(request, timeout=TIMEOUT) as answer:
                    while chunk := answer.read1(MIB):  # what is there; a slow host is seen to be slow
                        part.write(chunk)
                        _check_time(began)
                    if part.size < int(answer.headers.get("Content-Length") or 0):
                        raise ConnectionError("the host broke off")
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
                why = getattr(error, "code", None) or getattr(error, "reason", None) or str(error)
                raise Refusal(422, f"the address could not be fetched ({why})") from error
            return self._accept(part, _plain_name(unquote(urlsplit(url).path)), "url")

    def _check_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise Refusal(422, "not an address") from error
        names = {host, f"{host}:{port}"} if port else {host}
        if port and port != {"http": 80, "https": 443}.get(parts.scheme):
            names.discard(host)
        if parts.scheme not in ("http", "https") or not names & self._hosts:
            raise Refusal(403, "addresses are fetched only from hosts that the server was told to allow")

    def _accept(self, part: PartialFile, name: str, origin: str) -> LibraryVideo:
        """Keep what came, under its content's hash, if it is a video."""
        if not part.size:
            raise Refusal(422, "the file is empty")
        kind = self._library.check_file(part.path)
        target = (self._settings.uploads / f"{part.hash.hexdigest()}{kind['suffix']}").resolve()
        new = not target.exists()
        if new:
            with disk_errors():
                part.path.replace(target)
        try:
            return self._library.add_file(target, name, origin, checked=True)
        except StoreError:
            if new:
                target.unlink(missing_ok=True)
            raise

    @contextmanager
    def _partial(self) -> Iterator[PartialFile]:
        settings = self._settings
        with self._limit(), closing(PartialFile(settings.uploads, settings.max_upload, self._quota)) as part:
            yield part


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, check: Any) -> None:
        self._check = check

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        self._check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_time(began: float) -> None:
    if time.monotonic() - began > UPLOAD_SECONDS:
        raise Refusal(422, f"the video was not here after {UPLOAD_SECONDS:.0f} s")


def _plain_name(name: str) -> str:
    """What a file is called on the page: no folders, nothing unprintable, never used as a path.

    >>> _plain_name("../../etc/kiln\\x00.mp4")
    'kiln.mp4'
    """
    base = PurePosixPath(name.replace("\\", "/")).name
    return "".join(c for c in base if c.isprintable())[:120] or "video"
