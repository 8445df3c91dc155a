"""package_server: a package index on this machine, as PyPI is one, and archives for it."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from local_http import local_http


@contextmanager
def package_server(archives: Mapping[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """The URL of an index with these files, {project/file name: content}, and the paths it was asked for."""
    asked: list[str] = []

    class Index(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            project = self.path.removeprefix("/simple/").rstrip("/")
            links = [
                f'<a href="../../{path}#sha256=ab&amp;x">{path}</a>'
                for path in archives
                if path.startswith(f"{project}/")
            ]
            body = archives.get(self.path[1:]) or "".join(links).encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with local_http(Index) as port:
        yield f"http://127.0.0.1:{port}/simple", asked


def zipped(members: Mapping[str, bytes]) -> bytes:
    """A wheel, or another ZIP file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tarred(members: Mapping[str, bytes]) -> bytes:
    """A source distribution."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()
