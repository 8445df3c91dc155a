"""Faults of machines, with real processes: killed writers, two writers, full disks, rot, clocks, locks."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from framenest import MEC, IndexConfig, MECConfig, StoreError
from framenest.cache.directory import MIN_MAPPED_BYTES, DamagedEntry, DirectoryStore, collect, verify
from media import numbered_video
from processes import PATIENCE, kill_in_mid_write

SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))
KEY = "features/ab00"


def python(code, *arguments, **settings):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], text=True, stdout=subprocess.PIPE, **settings
    )


@contextmanager
def small_disk(folder: Path, size: str, *options: str):
    """A file system of its own, as only root may mount one."""
    folder.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


WRITER = """
import sys, numpy as np
from framenest.cache.directory import DirectoryStore
store, value = DirectoryStore(sys.argv[1]), np.full(150_000_000, int(sys.argv[2]), np.uint8)
print("ready", flush=True)
for _ in range(1000):
    store.put("features/ab00", {"by": int(sys.argv[2])}, {"x": value})
"""


def test_kill_during_a_write_leaves_no_half_entry_and_no_lock(tmp_path):
    store = DirectoryStore(tmp_path)
    store.put(KEY, {"by": 0}, {"x": np.zeros(10, np.uint8)})
    for number in (1, 2):
        with python(WRITER, tmp_path, number) as writer:
            writer.stdout.readline()
            kill_in_mid_write(writer, tmp_path)
        assert writer.returncode == -signal.SIGKILL
        assert not any(verify(store).values())
        header, arrays = store.get(KEY)
        assert (arrays["x"] == header["by"]).all()
    os.utime(next(tmp_path.rglob("*.tmp")), (0, 0))
    assert store.sweep()[0] == 1  # what the killed one left goes, when it is old and nobody holds it
    store.put(KEY, {"by": 3}, {"x": np.zeros(1, np.uint8)})
    assert store.remove(KEY)


ALTERNATE = """
import sys, numpy as np
from framenest.cache.directory import DirectoryStore
store = DirectoryStore(sys.argv[1])
for _ in range(150):
    store.put("index/ab00", {"by": int(sys.argv[2])}, {"x": np.full(40_000, int(sys.argv[2]), np.int64)})
"""


def test_two_writers_of_one_key_end_with_one_whole_entry(tmp_path):
    store, seen = DirectoryStore(tmp_path), set()
    writers = [python(ALTERNATE, tmp_path, number) for number in (1, 2)]
    while any(writer.poll() is None for writer in writers):
        found = store.get("index/ab00")  # a damaged entry would warn, and so fail here
        if found:
            assert (found[1]["x"] == found[0]["by"]).all()
            seen.add(found[0]["by"])
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert seen <= {1, 2}
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ab00.safetensors"]
    assert not any(verify(store).values())


def test_a_full_disk_is_a_clear_error_and_keeps_what_was_there(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        store = DirectoryStore(disk)
        store.put(KEY, {"n": 1}, {"x": np.arange(100)})
        with pytest.raises(StoreError, match=r"cannot be written \(No space left on device"):
            store.put(KEY, {"n": 2}, {"x": np.ones(2**21)})
        assert store.get(KEY)[0] == {"n": 1}
        assert not list(disk.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("limit", "said"),
    # How much is free depends on what the other worker has written by then.
    [
        ("", "all features may take "),
        ("1GiB", "No space left on device"),
    ],
    ids=["told before the work", "a limit above what is free"],
)
def test_a_full_disk_stops_a_run_that_can_keep_nothing(clip, tmp_path, monkeypatch, limit, said):
    monkeypatch.setenv("FRAMENEST_FEATURES_LIMIT", limit)
    videos = [shutil.copy(clip, tmp_path / f"{n}.mp4") for n in range(2)]
    with Path(videos[1]).open("ab") as file:
        file.write(b"another video by its content")
    with small_disk(tmp_path / "disk", "16k") as disk:
        failures = tmp_path / "failures.jsonl"
        command = [sys.executable, "-m", "framenest", "index", *videos, "--scorer", "none", "--cache", disk]
        done = subprocess.run([*command, "--failures", failures], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "stopped because results cannot be stored" in done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert json.loads(failures.read_text().splitlines()[0])["error"] == "StoreError"


def test_a_corrupted_byte_in_any_entry_is_found(clip, tmp_path):
    store = DirectoryStore(tmp_path)
    MEC(SMALL, None, store=store).index(clip)
    store.put("finished/ab00", {"keys": []}, {})
    kinds = set()
    for entry in list(store.entries()):
        path = store.path(entry.key)
        whole = path.read_bytes()
        header = int.from_bytes(whole[:8], "little")
        places = {*range(16), *range(8, header, 37), *range(8 + header, len(whole), 211), len(whole) - 1}
        value, unseen = store.get(entry.key), 0
        for place in sorted(place for place in places if place < len(whole)):
            rotten = bytearray(whole)
            rotten[place] ^= 0x10
            path.write_bytes(rotten)
            if store.check(entry.key) is None:  # a blank in the header's padding
                assert same(store.get(entry.key), value)
                unseen += 1
                continue
            with pytest.warns(DamagedEntry):
                assert store.get(entry.key) is None
        assert unseen < 8
        path.write_bytes(whole)
        kinds.add(entry.key.split("/")[0])
    assert kinds == {"index", "features", "timeline", "fingerprints", "finished"}


def same(one, other):
    return one[0] == other[0] and all((one[1][name] == other[1][name]).all() for name in other[1])


JUMPED = """
import sys, time
ahead = float(sys.argv[3])
real, real_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: real() + ahead, lambda: real_ns() + int(ahead * 1e9)
from framenest.cli import main
main(["index", sys.argv[1], sys.argv[1], "--scorer", "none", "--cache", sys.argv[2],
      "--set", "base_probes=12", "--failures", sys.argv[2] + ".jsonl"])
"""


def test_a_clock_that_jumps_does_not_matter(clip, tmp_path):
    store, decade = tmp_path / "store", 10 * 365 * 86400
    folder = tmp_path / "videos"
    folder.mkdir()
    shutil.copy(clip, folder / "a.mp4")
    numbered_video(folder / "b.mp4", 30)
    first, _ = python(JUMPED, folder, store, -decade).communicate()
    assert "2 videos done" in first
    for number, path in enumerate(store.rglob("*.safetensors")):  # as if each were written at another time
        when = time.time() + (decade if number % 2 else -decade)
        os.utime(path, (when, when))
    again, _ = python(JUMPED, folder, store, decade).communicate()
    assert "2 already done" in again
    kept = DirectoryStore(store)
    assert all(entry.idle >= 0 for entry in kept.entries())
    collect(kept, older_than=20 * 365 * 86400)
    assert not any(verify(kept).values())
    assert "2 already done" in python(JUMPED, folder, store, 0).communicate()[0]


def test_a_read_only_cache_serves_reads(clip, tmp_path):
    made = tmp_path / "made"
    first = MEC(SMALL, None, store=made).rank(clip, None)
    with small_disk(tmp_path / "disk", "64m") as disk:
        shutil.copytree(made, disk, dirs_exist_ok=True)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        mec = MEC(SMALL, None, store=disk)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = mec.rank(clip, None)
        assert again.stats.decoded == 0
        assert (again.frames == first.frames).all()
        with pytest.raises(StoreError, match="Read-only file system"):
            DirectoryStore(disk).put(KEY, {}, {})


HOLDER = """
import sys
from framenest.cache.directory import DirectoryStore
store = DirectoryStore(sys.argv[1])
mapped = store.get("features/ab00")
print("holding", flush=True)
sys.stdin.readline()
"""


def test_what_a_process_has_in_use_is_never_removed(tmp_path):
    store = DirectoryStore(tmp_path)
    for name in ("ab00", "cd00"):
        store.put(f"features/{name}", {}, {"x": np.zeros(MIN_MAPPED_BYTES)})
    with python(HOLDER, tmp_path, stdin=subprocess.PIPE) as holder:
        holder.stdout.readline()
        for path in tmp_path.rglob("*.safetensors"):
            os.utime(path, (0, 0))
        done = collect(store, older_than=3600, max_bytes=0)
        assert (done.removed["unused for too long"], done.in_use) == (1, 1)
        assert store.has("features/ab00")
        holder.kill()  # it leaves no lock behind
        holder.wait()
    assert collect(store, max_bytes=0).in_use == 0
    assert not store.has("features/ab00")


def _many(root, number, answers):
    store = DirectoryStore(root)
    for round_ in range(5):
        store.put(f"index/{(37 * number) % 256:02x}{number:04d}", {"n": number}, {"x": np.arange(50)})
        store.put("index/ffff", {"round": round_}, {"x": np.arange(500)})
        assert store.get("index/ffff")[1]["x"][-1] == 499
    answers.put(number)


def test_a_hundred_workers_share_a_store_without_a_lock(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["framenest.cache.directory", "numpy"])
    answers = context.Queue()
    workers = [context.Process(target=_many, args=(tmp_path, number, answers)) for number in range(100)]
    for worker in workers:
        worker.start()
    assert {answers.get(timeout=PATIENCE) for _ in workers} == set(range(100))
    for worker in workers:
        worker.join(timeout=PATIENCE)
    store = DirectoryStore(tmp_path)
    found = verify(store)
    assert len(found) == 101
    assert not any(found.values())
    names = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.suffix == ".safetensors" for path in names)  # no lock, no list, nothing all must touch
    assert len({path.parent for path in names}) > 90
