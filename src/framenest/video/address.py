"""Videos at a URL: http(s) with range requests, web pages, and anything that fsspec opens (s3://, gs://, …).

The fingerprint of a remote video is a hash of its URL, size and version (ETag, modification time): hashing
its content would mean downloading it.
"""

from __future__ import annotations

import http.client
import io
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from framenest.cache.directory import DOWNLOADS, DirectoryStore
from framenest.cache.files import InUse, write_and_rename
from framenest.cache.hashes import digest
from framenest.cache.remote import file_system
from framenest.errors import VideoError
from framenest.progress import ShowProgress
from framenest.video.source import Source
from framenest.video.web_page import PAGES, check_size, fetch_page

REQUEST_SECONDS = 30.0
PIECE_SECONDS = 120.0  # for a MiB
CHUNK_BYTES = 2**20


def find(url: str, stream: int | None, local: DirectoryStore, progress: ShowProgress) -> Source:
    """Look up a video at a URL. A download, if needed, goes to the local directory."""
    if url.lower().startswith(("http://", "https://")):
        return _http(url, stream, local, progress)
    system, path = file_system(url, VideoError)
    try:
        fingerprint = digest(url, str(system.ukey(path)))
    except (ImportError, OSError, ValueError) as error:
        raise VideoError(f"{url}: cannot be opened ({error})") from error

    def open_file() -> BinaryIO:
        file = system.open(path, "rb")
        # memory:// hands out one object, but every reader needs its own position.
        return io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else cast(BinaryIO, file)

    return Source(url, fingerprint, stream, None, open_file)


def _http(url: str, stream: int | None, local: DirectoryStore, progress: ShowProgress) -> Source:
    """Use range requests if the server supports them; otherwise, or for a page, download the file once."""
    with _request(url, "bytes=0-0") as answer:
        headers = answer.headers
        version = [headers.get("ETag"), headers.get("Last-Modified")]
        size = (headers.get("Content-Range") or "").rpartition("/")[2]
        page = headers.get_content_type() in PAGES
        if answer.status == 206 and size.isdecimal() and not page:
            fingerprint, length = digest(url, size, version), int(size)
            return Source(url, fingerprint, stream, url, partial(http_file, url, length))
        target = local.root / DOWNLOADS / digest(url, headers.get("Content-Length"), version)
        if page:
            target = fetch_page(url, local, progress)
        elif not target.is_file() or not any(version):
            _download(url, answer, target)
    in_use = InUse(target)
    return Source(url, local.fingerprint(str(target)), stream, str(target), in_use=in_use)


def _download(url: str, answer: Any, target: Path) -> None:
    """Download a whole file; on any error, remove the partial one."""
    promised = answer.headers.get("Content-Length")

    def pieces() -> Iterator[bytes]:
        size = 0
        while chunk := _piece(url, answer, CHUNK_BYTES):
            size += len(chunk)
            check_size(url, size)
            yield chunk
        if promised is not None and size != int(promised):
            raise VideoError(f"{url}: the connection closed after {size} of {promised} bytes")

    try:
        write_and_rename(target, pieces())
    except (OSError, http.client.HTTPException) as error:
        raise VideoError(f"{url}: could not be fetched ({error})") from error


def _piece(url: str, answer: Any, most: int) -> bytes:
    """Up to `most` bytes of a response, under one timeout for all; urllib's timeout is per read."""
    piece, until = b"", time.monotonic() + PIECE_SECONDS
    while len(piece) < most and (more := answer.read1(most - len(piece))):
        piece += more
        if time.monotonic() > until:
            raise VideoError(f"{url}: too slow ({len(piece)} bytes in {PIECE_SECONDS:g} s)")
    return piece


def _request(url: str, wanted: str) -> Any:
    address = urllib.parse.quote(url, safe=":/?#[]@!$&'()*+,;=%")
    try:
        request = urllib.request.Request(address, headers={"Range": wanted, "User-Agent": "framenest"})
        return urllib.request.urlopen(request, timeout=REQUEST_SECONDS)
    except urllib.error.HTTPError as error:
        raise VideoError(f"{url}: the server answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise VideoError(f"{url}: cannot be reached ({getattr(error, 'reason', error)})") from error


def http_file(url: str, size: int) -> BinaryIO:
    """A file of `size` bytes on a web server."""
    return io.BufferedReader(_HttpFile(url, size), 2**16)


class _HttpFile(io.RawIOBase):
    """A file on a web server, read with range requests."""

    def __init__(self, url: str, size: int) -> None:
        self._url, self._size, self._at = url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        last = min(self._at + len(buffer), self._size) - 1
        if last < self._at:
            return 0
        with _request(self._url, f"bytes={self._at}-{last}") as answer:
            data = _piece(self._url, answer, len(buffer)) if answer.status == 206 else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
