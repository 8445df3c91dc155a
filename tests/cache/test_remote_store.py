"""A store at an address: the same entries as in a directory, whole or not there, on several file systems."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from framenest import MEC, IndexConfig, MECConfig, StoreError, open_video
from framenest.cache.directory import DamagedEntry, DirectoryStore, collect, verify
from framenest.cache.remote import RemoteStore, open_store
from processes import kill_in_mid_write

fsspec = pytest.importorskip("fsspec", reason="needs the extra `remote`")
SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))


@pytest.fixture(params=["memory", "file", "s3"])
def url(request, tmp_path):
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path}/shared"


def test_the_same_entries_as_in_a_directory(clip, tmp_path, url):
    local, shared = DirectoryStore(tmp_path / "local"), RemoteStore(url)
    first = MEC(SMALL, None, store=local).rank(clip, None)
    MEC(SMALL, None, store=shared).index(clip)
    again = MEC(SMALL, None, store=RemoteStore(url)).rank(clip, None)
    assert (again.frames == first.frames).all()
    open_video(clip, store=shared)
    keys = {entry.key for entry in shared.entries()}
    assert keys == {entry.key for entry in local.entries() if not entry.key.startswith("fingerprints/")}
    system, root = fsspec.core.url_to_fs(url)
    for key in (key for key in keys if key.startswith(("index/", "timeline/"))):
        name = local.path(key).relative_to(local.root).as_posix()
        assert system.cat_file(f"{root}/{name}") == local.path(key).read_bytes()
    assert "fingerprints" in DirectoryStore().size(), "what only this machine knows stays on it"
    assert not [path for path in system.find(root) if path.endswith(".tmp")]
    assert not any(verify(shared).values())


def test_damage_is_found(url):
    store = RemoteStore(url)
    store.put("index/ab00", {"n": 1}, {"x": np.arange(100)})
    system, root = fsspec.core.url_to_fs(url)
    path = f"{root}/index/ab/ab00.safetensors"
    whole = bytearray(system.cat_file(path))
    whole[-3] ^= 1
    system.pipe_file(path, bytes(whole))
    assert [entry.key for entry, wrong in verify(store).items() if wrong] == ["index/ab00"]
    with pytest.warns(DamagedEntry):
        assert store.get("index/ab00") is None
    store.put("index/ab00", {"n": 2}, {})
    assert store.get("index/ab00")[0] == {"n": 2}


def test_nothing_young_is_removed(url, monkeypatch):
    store = RemoteStore(url)
    store.put("index/ab00", {}, {"x": np.arange(100)})
    assert collect(store, max_bytes=0).in_use == 1
    assert store.has("index/ab00")
    monkeypatch.setattr("framenest.cache.remote.MIN_AGE_SECONDS", -1e9)
    assert sum(collect(store, max_bytes=0).removed.values()) == 1
    assert not store.has("index/ab00")


def test_it_travels_between_processes_and_clears(url):
    store = pickle.loads(pickle.dumps(RemoteStore(url)))
    store.put("index/ab00", {"n": 1}, {})
    assert pickle.loads(pickle.dumps(store)).get("index/ab00")[0] == {"n": 1}
    size = store.size()["index"][1]
    assert store.clear(("index",)) == size > 0
    assert store.get("index/ab00") is None


def test_an_address_that_cannot_be_is_a_clear_error():
    with pytest.raises(StoreError, match="cannot be written"):
        RemoteStore("file:///proc/nowhere").put("index/ab00", {}, {})
    with pytest.raises(StoreError, match="nosuch://x"):
        open_store("nosuch://x").get("index/ab00")


def test_an_entry_is_renamed_into_place_and_never_copied(tmp_path, monkeypatch):
    local = type(fsspec.filesystem("file"))
    monkeypatch.setattr(local, "cp_file", lambda *_, **__: pytest.fail("copied"))
    store = RemoteStore(f"file://{tmp_path}")
    store.put("index/ab00", {"n": 1}, {})
    assert store.get("index/ab00") == ({"n": 1}, {})


WRITER = """
import sys, numpy as np
from framenest.cache.remote import RemoteStore
store, value = RemoteStore(sys.argv[1]), np.full(150_000_000, 7, np.uint8)
for _ in range(1000):
    store.put("features/ab00", {}, {"x": value})
"""


def test_a_killed_writer_publishes_nothing_by_half(tmp_path):
    with subprocess.Popen([sys.executable, "-c", WRITER, f"file://{tmp_path}"]) as writer:
        kill_in_mid_write(writer, tmp_path)
    found = RemoteStore(f"file://{tmp_path}").get("features/ab00")  # damage would warn, and so fail here
    assert found is None or (found[1]["x"] == 7).all()
