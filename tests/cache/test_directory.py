"""The cache: atomic, self-checking, shared by processes, keyed by content."""

import multiprocessing
import os
import shutil
import time
import warnings

import numpy as np
import pytest

from framenest import MEC, IndexConfig, MECConfig, StoreError, VideoError
from framenest.cache.archive import DamagedFile, pack, unpack
from framenest.cache.directory import DamagedEntry, DirectoryStore
from framenest.cache.files import alone, write_atomic
from framenest.cache.hashes import PIECE_BYTES
from framenest.extraction import extract
from media import numbered_video
from processes import PATIENCE

SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))


def test_pack_and_unpack():
    arrays = {
        "a": np.arange(6, dtype=np.int64).reshape(2, 3),
        "b": np.array([True, False]),
        "c": np.zeros((0, 4)),
    }
    header, found = unpack(pack({"name": "ü", "n": [1, None]}, arrays))
    assert header == {"name": "ü", "n": [1, None]}
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert (found[name] == array).all()


def test_equal_values_are_equal_files():
    arrays = {"b": np.arange(5), "a": np.ones((3, 2), np.float32)}
    for key in (None, "index/ab"):
        assert len({pack({"name": "ü", "n": 1}, arrays, key=key) for _ in range(20)}) == 1


def test_compressed_arrays_come_back_as_they_were():
    rng = np.random.default_rng(0)
    arrays = {
        "thumbnails": rng.integers(0, 256, (5, 4, 7, 3), dtype=np.uint8),
        "none": np.zeros((0, 4, 7, 3), np.uint8),
        "ticks": np.cumsum(rng.integers(0, 9, 1000)),
        "key": rng.random(1000) < 0.1,
        "change": rng.random(50).astype(np.float32),
        "nothing": np.zeros((0, 2), np.int64),
    }
    data = pack({"format": 1}, arrays, key="index/ab")
    _, found = unpack(data, key="index/ab")
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert (found[name] == array).all()
    assert len(data) < len(pack({"format": 1}, arrays, key="features/ab"))


@pytest.mark.parametrize("key", [None, "index/ab"])
def test_any_changed_or_missing_byte_is_found(key):
    data = pack({"format": 1}, {"x": np.arange(40, dtype=np.float32)}, key=key)
    harmless = 0
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x01
        try:
            header, arrays = unpack(bytes(changed))
        except DamagedFile:
            continue
        assert header == {"format": 1}  # only padding between the parts may change unseen
        assert (arrays["x"] == np.arange(40)).all()
        harmless += 1
    assert harmless < 16
    for length in (0, 7, 8, len(data) // 2, len(data) - 1):
        with pytest.raises(DamagedFile):
            unpack(data[:length])


@pytest.mark.parametrize("key", ["features/ab", None])
@pytest.mark.parametrize("at", [0, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES + 17, -1])
def test_a_changed_byte_of_a_large_array_is_found(at, key):
    """In an entry of a store its checksum is that of its pieces."""
    array = np.random.default_rng(0).integers(0, 256, 2 * PIECE_BYTES + 100, dtype=np.uint8)
    data = bytearray(pack({"format": 1}, {"x": array}, key=key))
    assert (unpack(bytes(data), key=key)[1]["x"] == array).all()
    data[at if at < 0 else len(data) - len(array) + at] ^= 0x01
    with pytest.raises(DamagedFile, match="checksum"):
        unpack(bytes(data), key=key)


def test_a_damaged_entry_is_made_anew_with_a_message(clip, tmp_path):
    first = MEC(SMALL, None, store=tmp_path).index(clip)
    for entry in tmp_path.rglob("*.safetensors"):
        data = bytearray(entry.read_bytes())
        data[-5] ^= 0xFF
        entry.write_bytes(data)
    with pytest.warns(DamagedEntry, match="damaged cache entry, recomputing"):
        again = MEC(SMALL, None, store=tmp_path).index(clip)
    assert (again.thumbnails == first.thumbnails).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MEC(SMALL, None, store=tmp_path).index(clip)


def test_a_moved_or_touched_video_is_recognised(clip, tmp_path):
    store = tmp_path / "store"
    here = shutil.copy(clip, tmp_path / "here.mp4")
    MEC(SMALL, None, store=store).index(here)
    os.utime(here, (time.time() + 100, time.time() + 100))
    moved = shutil.move(here, tmp_path / "there.mp4")
    mec = MEC(SMALL, None, store=store)
    ranking = mec.rank(moved, None)
    assert ranking.video.path == str(moved)
    entries = list((store / "index").rglob("*.safetensors"))
    assert len(entries) == 1


def test_a_changed_video_gets_its_own_index(tmp_path):
    store = tmp_path / "store"
    path = numbered_video(tmp_path / "video.mp4", 30)
    first = MEC(SMALL, None, store=store).index(path)
    numbered_video(path, 60)
    second = MEC(SMALL, None, store=store).index(path)
    assert first.video.fingerprint != second.video.fingerprint
    assert second.video.num_frames == 60


def _rank_in_process(path, store, answers):
    ranking = MEC(SMALL, None, store=store).rank(path, None)
    answers.put(ranking.frames.tolist())


def test_several_processes_at_once(clip, tmp_path):
    """Four processes start on an empty cache together; all agree, and what is left is whole."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    workers = [context.Process(target=_rank_in_process, args=(clip, tmp_path, answers)) for _ in range(4)]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=PATIENCE) for _ in workers]
    for worker in workers:
        worker.join(timeout=PATIENCE)
        assert worker.exitcode == 0
    assert all(frames == found[0] for frames in found)
    entries = list(tmp_path.rglob("*.safetensors"))
    assert sorted(entry.parts[-3] for entry in entries) == [
        "features",  # of the probes
        "features",  # of the zoom frames
        "fingerprints",
        "index",
        "timeline",
    ]
    for entry in entries:
        unpack(entry.read_bytes())
    assert not list(tmp_path.rglob("*.tmp"))


def test_size_and_clear(clip, tmp_path):
    store = DirectoryStore(tmp_path)
    MEC(SMALL, None, store=store).index(clip)
    assert store.size()["index"][0] == 1
    size = store.size()
    assert store.clear(("index", "features")) == size["index"][1] + size["features"][1]
    assert "index" not in store.size()
    assert "fingerprints" in store.size()


def test_an_unwritable_target_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        write_atomic(tmp_path / "file" / "below.json", b"{}")


def test_an_entry_of_another_version_is_made_anew(clip, tmp_path):
    first = MEC(SMALL, None, store=tmp_path).index(clip)
    (entry,) = (tmp_path / "index").rglob("*.safetensors")
    header = {name: value for name, value in first.header().items() if name != "span"}
    entry.write_bytes(pack(header, first.arrays(), key=f"index/{entry.stem}"))
    assert MEC(SMALL, None, store=tmp_path).index(clip).span == first.span


def test_a_missing_video_is_a_video_error(tmp_path):
    with pytest.raises(VideoError, match="no such file"):
        DirectoryStore(tmp_path).fingerprint(str(tmp_path / "nothing.mp4"))


@pytest.mark.parametrize("kind", ["link", "dangling", "loop", "pipe", "device"])
def test_an_entry_that_is_no_file_is_replaced_and_nothing_behind_it(clip, tmp_path, kind):
    """As happens in a folder that others can write to."""
    store, other = DirectoryStore(tmp_path / "cache"), tmp_path / "precious"
    first = MEC(SMALL, None, store=store).rank(clip, None)
    if kind != "dangling":
        other.write_text("precious")
    entries = [*store.root.rglob("*.safetensors")]
    for entry in entries:
        entry.unlink()
        if kind == "pipe":
            os.mkfifo(entry)
        else:
            entry.symlink_to({"loop": entry, "device": "/dev/zero"}.get(kind, other))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedEntry)
        again = MEC(SMALL, None, store=store).rank(clip, None)
    assert again.frames.tolist() == first.frames.tolist()
    assert not any(entry.is_symlink() or entry.is_fifo() for entry in entries)
    assert (other.read_text() if other.exists() else "") == ("precious" if kind != "dangling" else "")


def test_only_a_link_that_the_user_named_is_followed(clip, tmp_path):
    ranking = MEC(SMALL, None, store=tmp_path / "cache").rank(clip, None)
    named, target = tmp_path / "named.json", tmp_path / "target.json"
    named.symlink_to(target)
    ranking.save(named)
    assert named.is_symlink()
    assert target.read_text().startswith("{")
    for file in extract(ranking.prefix(1), tmp_path / "frames"):
        file.unlink()
        file.symlink_to(target)
        assert extract(ranking.prefix(1), tmp_path / "frames") == [file]
        assert not file.is_symlink()
    with alone(named):
        named.write_text("")
    assert target.read_text().startswith("{")
