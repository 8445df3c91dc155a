"""Videos that come in: uploads, and files fetched from allowed hosts. Limited in size, kept by content."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from framenest.server.library import Library, Video
from framenest.server.refusals import Busy, Forbidden, TooLarge, Unusable
from framenest.server.settings import MIB, Settings

AT_ONCE = 4
TIMEOUT = 30.0  # seconds without a byte


class Incoming:
    def __init__(self, settings: Settings, library: Library) -> None:
        self._settings = settings
        self._library = library
        self._places = threading.BoundedSemaphore(AT_ONCE)
        for left in settings.uploads.glob("*.part"):  # of a server that was stopped
            left.unlink()

    async def upload(self, chunks: AsyncIterator[bytes], name: str) -> Video:
        """Take the bytes of a file."""
        with self._place() as part:
            held: list[bytes] = []
            while True:
                try:
                    chunk = await asyncio.wait_for(anext(chunks), TIMEOUT)
                except StopAsyncIteration:
                    break
                except TimeoutError as error:
                    raise Unusable(f"the upload stood still for {TIMEOUT:.0f} s") from error
                held.append(chunk)
                if sum(map(len, held)) >= MIB:
                    await asyncio.to_thread(part.write, b"".join(held))
                    held = []
            part.write(b"".join(held))
            return await asyncio.to_thread(self._accept, part, _plain_name(name), "upload")

    def fetch(self, url: str) -> Video:
        """Get a file from an allowed host; redirects are followed only to allowed hosts."""
        self._check_address(url)
        opener = urllib.request.build_opener(_Redirects(self._check_address))
        with self._place() as part:
            try:
                request = urllib.request.Request(url, headers={"User-Agent": "framenest"})
                with opener.open(request, timeout=TIMEOUT) as answer:
                    while chunk := answer.read(MIB):
                        part.write(chunk)
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
                why = getattr(error, "code", None) or getattr(error, "reason", type(error).__name__)
                raise Unusable(f"the address could not be fetched ({why})") from error
            return self._accept(part, _plain_name(unquote(urlsplit(url).path)), "url")

    def _check_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise Unusable("not an address") from error
        names = {host, f"{host}:{port}"} if port else {host}
        if port and port != {"http": 80, "https": 443}.get(parts.scheme):
            names.discard(host)
        if parts.scheme not in ("http", "https") or not names & set(self._settings.hosts):
            raise Forbidden("addresses are fetched only from hosts that the server was told to allow")

    def _accept(self, part: _Part, name: str, origin: str) -> Video:
        """Keep what came, under its content's name, if it is a video."""
        part.file.close()
        if not part.size:
            raise Unusable("the file is empty")
        kind = self._library.inspect(part.path)
        target = (self._settings.uploads / f"{part.hash.hexdigest()}{kind['suffix']}").resolve()
        if not target.exists():
            part.path.replace(target)
        return self._library.add_file(target, name, origin)

    @contextmanager
    def _place(self) -> Iterator[_Part]:
        if not self._places.acquire(blocking=False):
            raise Busy(f"{AT_ONCE} videos are coming in already; try again later", 10)
        try:
            stored = sum(file.stat().st_size for file in self._settings.uploads.iterdir())
            part = _Part(
                self._settings.uploads, self._settings.max_upload, self._settings.max_stored - stored
            )
            try:
                yield part
            finally:
                part.close()
        finally:
            self._places.release()


class _Part:
    """A file that is still coming in; gone when closed, unless it was moved."""

    def __init__(self, folder: Path, most: int, room: int) -> None:
        self.path = folder / f"{secrets.token_hex(8)}.part"
        self.file = self.path.open("wb")
        self.hash = hashlib.blake2b(digest_size=16)
        self.size, self._most, self._room = 0, most, room

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._most:
            raise TooLarge(f"a video may have at most {self._most} bytes here")
        if self.size > self._room:
            raise TooLarge("the server has no room left for videos")
        self.hash.update(data)
        self.file.write(data)

    def close(self) -> None:
        self.file.close()
        self.path.unlink(missing_ok=True)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, check: Any) -> None:
        self._check = check

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        self._check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _plain_name(name: str) -> str:
    """What a file is called on the page: no folders, nothing unprintable, never used as a path.

    >>> _plain_name("../../etc/kiln\\x00.mp4")
    'kiln.mp4'
    """
    base = PurePosixPath(name.replace("\\", "/")).name
    return "".join(c for c in base if c.isprintable())[:120] or "video"
