"""What every store must do: two methods for the pipeline, the rest for upkeep."""

import shutil
import warnings

import numpy as np
import pytest

from framenest import MEC, IndexConfig, MECConfig, Store, open_video
from framenest.cache.directory import DamagedEntry, DirectoryStore, ManagedStore, collect, entry_name, verify
from framenest.cache.remote import RemoteStore
from media import encode_video

SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))


class DictStore:
    """As small as a store of one's own can be."""

    def __init__(self):
        self.values = {}

    def get(self, key):
        return self.values.get(key)

    def put(self, key, header, arrays):
        self.values[key] = dict(header), dict(arrays)


def directory(folder):
    return DirectoryStore(folder / "store")


def memory(folder):
    pytest.importorskip("fsspec", reason="needs the extra `remote`")
    return RemoteStore(f"memory://{folder.name}")


def file(folder):
    pytest.importorskip("fsspec", reason="needs the extra `remote`")
    return RemoteStore(f"file://{folder}/store")


def two_methods(folder):
    return DictStore()


@pytest.fixture(params=[directory, memory, file, two_methods], ids=lambda make: make.__name__)
def store(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture(params=[directory, memory, file], ids=lambda make: make.__name__)
def managed(request, tmp_path, monkeypatch):
    # Otherwise nothing at an address may be removed yet.
    monkeypatch.setattr("framenest.cache.remote.MIN_AGE_SECONDS", -1e9)
    made = request.param(tmp_path)
    made.put("index/ab00", {"n": 1}, {"x": np.arange(100)})
    made.put("features/cd00", {"n": 2}, {"x": np.zeros(1000)})
    return made


class TestEveryStore:
    def test_it_keeps_the_protocol(self, store):
        assert isinstance(store, Store)

    def test_nothing_is_none(self, store):
        assert store.get("index/ab00") is None

    @pytest.mark.parametrize("key", ["index/ab00", "features/ab00"])
    def test_a_value_comes_back_as_it_was(self, store, key):
        arrays = {
            "pictures": np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3),
            "flags": np.array([True, False]),
            "half": np.linspace(0, 1, 7, dtype=np.float16),
            "none": np.zeros((0, 4)),
        }
        store.put(key, {"format": 1, "name": "ü", "list": [1, None]}, arrays)
        header, found = store.get(key)
        assert header == {"format": 1, "name": "ü", "list": [1, None]}
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert (found[name] == array).all()

    def test_the_last_value_counts(self, store):
        store.put("index/ab00", {"n": 1}, {"x": np.arange(3)})
        store.put("index/ab00", {"n": 2}, {})
        assert store.get("index/ab00") == ({"n": 2}, {})

    def test_the_method_uses_it_for_all_it_makes(self, store, clip, cache):
        first = MEC(SMALL, None, store=store).rank(clip, None)
        open_video(clip, store=store)
        again = MEC(SMALL, None, store=store).rank(clip, None)
        assert again.stats.decoded == 0
        assert (again.frames == first.frames).all()
        if not isinstance(store, DirectoryStore):  # this machine's directory keeps what only it can use
            assert not {"index", "features"} & DirectoryStore(cache).size().keys()

    def test_a_timeline_goes_to_it_and_a_fingerprint_stays_here(self, store, clip, monkeypatch):
        first = open_video(clip, store=store)
        monkeypatch.setattr("framenest.video.timeline.scan", lambda *_: pytest.fail("scanned again"))
        assert open_video(clip, store=store).info == first.info
        if isinstance(store, DictStore):
            assert {key.split("/")[0] for key in store.values} == {"timeline"}


class TestEveryManagedStore:
    def test_it_keeps_the_protocol(self, managed):
        assert isinstance(managed, ManagedStore)
        assert managed.location

    def test_entries_are_listed(self, managed):
        assert {entry.key for entry in managed.entries()} == {"index/ab00", "features/cd00"}
        assert [entry.key for entry in managed.entries("features")] == ["features/cd00"]
        assert all(entry.size > 0 and entry.idle >= 0 for entry in managed.entries())
        assert {kind: files for kind, (files, _) in managed.size().items()} == {"index": 1, "features": 1}

    def test_a_header_is_read_without_the_arrays(self, managed, monkeypatch):
        monkeypatch.setattr("framenest.cache.directory.ENTRY_HEADER_BYTES", 1000)
        assert managed.header("features/cd00") == {"n": 2}  # an entry of 8,000 bytes
        assert managed.header("index/0000") is None

    def test_entries_are_checked(self, managed):
        assert not any(verify(managed).values())
        assert managed.check("index/0000") is None, "removed meanwhile"

    def test_entries_are_removed(self, managed):
        assert managed.has("index/ab00")
        assert managed.remove("index/ab00")
        assert managed.remove("index/ab00"), "it is gone"
        assert not managed.has("index/ab00")

    def test_kinds_are_cleared(self, managed):
        assert managed.clear(("features", "timeline")) > 8000
        assert [entry.key for entry in managed.entries()] == ["index/ab00"]

    def test_collect_evicts_down_to_a_size(self, managed):
        assert sum(collect(managed, max_bytes=0, dry_run=True).removed.values()) == 2
        assert collect(managed, max_bytes=0).remaining == 0
        assert not list(managed.entries())


@pytest.mark.parametrize("read", ["get", "header"])
def test_a_damaged_entry_is_none_with_a_warning(managed, tmp_path, read):
    if managed.location.startswith("memory:"):
        import fsspec

        path = f"{managed.location.removeprefix('memory:/')}/index/ab/ab00.safetensors"
        fsspec.filesystem("memory").pipe_file(path, b"no entry")
    else:
        (tmp_path / "store" / "index" / "ab" / "ab00.safetensors").write_bytes(b"no entry")
    assert [entry.key for entry, wrong in verify(managed).items() if wrong] == ["index/ab00"]
    with pytest.warns(DamagedEntry, match="recomputing"):
        assert getattr(managed, read)("index/ab00") is None


def copy_entry(store, tmp_path, source, target):
    """What a slip of a person or a file system does: one entry's file under another's name."""
    if store.location.startswith("memory:"):
        import fsspec

        root = store.location.removeprefix("memory:/")
        fsspec.filesystem("memory").copy(f"{root}/{entry_name(source)}", f"{root}/{entry_name(target)}")
    else:
        place = tmp_path / "store" / entry_name(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "store" / entry_name(source), place)


@pytest.mark.parametrize(("source", "target"), [("index/ab00", "index/ef00"), ("index/ab00", "timeline/ab00"),
                                                ("features/cd00", "features/ab00")])  # fmt: skip
def test_an_entry_in_the_place_of_another_is_none_with_a_warning(managed, tmp_path, source, target):
    copy_entry(managed, tmp_path, source, target)
    ((key, why),) = [(entry.key, wrong) for entry, wrong in verify(managed).items() if wrong]
    assert key == target
    assert f"the entry {source} instead" in why
    for read in (managed.get, managed.header):
        with pytest.warns(DamagedEntry, match=f"it holds the entry {source} instead"):
            assert read(target) is None
    assert managed.get(source) is not None
    managed.put(target, {"n": 3}, {})
    assert managed.get(target) == ({"n": 3}, {})


def test_an_entry_of_another_format_is_absent_and_not_damaged(managed, tmp_path, monkeypatch):
    monkeypatch.setattr("framenest.cache.archive.ENTRY_FORMAT", "1")
    managed.put("index/ef00", {"n": 1}, {})
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert managed.get("index/ef00") is None
        assert managed.header("index/ef00") is None
    assert not any(verify(managed).values())


def test_an_index_in_the_place_of_another_videos_changes_no_ranking(tmp_path):
    """Two videos of one length: the other's index would fit, and give the wrong frames."""
    rng = np.random.default_rng(0)
    videos = [
        encode_video(tmp_path / f"{name}.mp4", list(rng.integers(0, 256, (60, 64, 96, 3), dtype=np.uint8)))
        for name in "ab"
    ]
    store = DirectoryStore(tmp_path / "store")
    right = [MEC(SMALL, None, store=store).rank(video, None) for video in videos]
    for kind in ("index", "features", "timeline", "fingerprints"):
        files = sorted((store.root / kind).rglob("*.safetensors"))
        contents = [file.read_bytes() for file in files]
        for file, content in zip(files, contents[1:] + contents[:1], strict=True):
            file.write_bytes(content)
    with pytest.warns(DamagedEntry):
        again = [MEC(SMALL, None, store=store).rank(video, None) for video in videos]
    for one, other in zip(right, again, strict=True):
        assert (one.frames == other.frames).all()
        assert one.video.fingerprint == other.video.fingerprint
    assert not any(verify(store).values()), "all were recomputed"
