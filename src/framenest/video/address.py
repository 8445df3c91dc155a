"""Videos at a URL: http(s) with range requests, and anything that fsspec opens (s3://, gs://, …).

The fingerprint of a remote video is a hash of its URL, size and version (ETag, modification time): hashing
its content would mean downloading it.
"""

from __future__ import annotations

import http.client
import io
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, BinaryIO, cast

from framenest.cache.directory import DOWNLOADS, PART, DirectoryStore
from framenest.cache.files import InUse, share
from framenest.cache.hashes import digest
from framenest.cache.remote import file_system
from framenest.errors import VideoError
from framenest.processes import DOWNLOAD_VARIABLE, limit_in
from framenest.text import size_text
from framenest.video.source import Source, begins_a_playlist

TIMEOUT = 30.0
LARGEST_DOWNLOAD = 20 * 2**30
_CHUNK = 2**20


def find(url: str, stream: int | None, local: DirectoryStore, *, playlists: bool = False) -> Source:
    """Look up a video at a URL. A download, if needed, goes to the local directory."""
    if url.lower().startswith(("http://", "https://")):
        return _http(url, stream, local, playlists)
    system, path = file_system(url, VideoError)
    try:
        fingerprint = digest(url, str(system.ukey(path)))
    except (ImportError, OSError, ValueError) as error:
        raise VideoError(f"{url}: cannot be opened ({error})") from error

    def open_file() -> BinaryIO:
        file = system.open(path, "rb")
        # memory:// hands out one object, but every reader needs its own position.
        return io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else cast(BinaryIO, file)

    return Source(url, fingerprint, stream, None, open_file, playlists)


def _http(url: str, stream: int | None, local: DirectoryStore, playlists: bool) -> Source:
    """Use range requests if the server supports them; otherwise download the file, once."""
    with _request(url, "bytes=0-0") as answer:
        headers = answer.headers
        version = [headers.get("ETag"), headers.get("Last-Modified")]
        size = (headers.get("Content-Range") or "").rpartition("/")[2]
        if answer.status == 206 and size.isdecimal():
            fingerprint, length = digest(url, size, version), int(size)

            def open_file() -> BinaryIO:
                return io.BufferedReader(_HttpFile(url, length), 2**16)

            return Source(url, fingerprint, stream, url, open_file, playlists)
        target = local.root / DOWNLOADS / digest(url, headers.get("Content-Length"), version)
        if not target.is_file() or not any(version):
            _download(url, answer, target)
    in_use = InUse(target)
    content = local.fingerprint(str(target))
    with target.open("rb") as file:
        if playlists and begins_a_playlist(file.read(1024)):  # its segments are beside the URL, not here
            return Source(url, content, stream, url, lambda: target.open("rb"), playlists, in_use)
    return Source(url, content, stream, str(target), in_use=in_use)


def _download(url: str, answer: Any, target: Path) -> None:
    """Download a whole file; a partial one is removed, whatever went wrong."""
    given, promised = limit_in(DOWNLOAD_VARIABLE), answer.headers.get("Content-Length")
    most = LARGEST_DOWNLOAD if given is None else given
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=PART, delete=False) as part:
            try:
                share(part)  # so that `cache gc` leaves it alone
                while chunk := answer.read(_CHUNK):
                    if part.tell() + len(chunk) > most:
                        raise VideoError(
                            f"{url}: larger than {size_text(most)}, the limit for downloads; "
                            f"${DOWNLOAD_VARIABLE} sets another limit"
                        )
                    part.write(chunk)
                part.flush()
                size = part.tell()
                if promised is not None and size != int(promised):
                    raise VideoError(f"{url}: the connection closed after {size} of {promised} bytes")
                Path(part.name).replace(target)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
    except (OSError, http.client.HTTPException) as error:
        raise VideoError(f"{url}: could not be fetched ({error})") from error


def _request(url: str, wanted: str) -> Any:
    address = urllib.parse.quote(url, safe=":/?#[]@!$&'()*+,;=%")
    request = urllib.request.Request(address, headers={"Range": wanted, "User-Agent": "framenest"})
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        raise VideoError(f"{url}: the server answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise VideoError(f"{url}: cannot be reached ({getattr(error, 'reason', error)})") from error


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
            data = answer.read(len(buffer)) if answer.status == 206 else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
