"""Verify and gc: what is found, what goes, what stays."""

import os
import re
import time

import numpy as np
import pytest

from framenest import MEC, IndexConfig, MECConfig
from framenest.cache.directory import DirectoryStore, collect, verify
from framenest.cli import main

SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))
DAY = 86400


@pytest.fixture
def store(tmp_path) -> DirectoryStore:
    """Four entries of 8 kB, last used 1, 2, 3 and 4 days ago."""
    made = DirectoryStore(tmp_path / "store")
    for age in (1, 2, 3, 4):
        made.put(f"features/{age}{age}00", {}, {"x": np.zeros(1000)})
        when = time.time() - age * DAY
        os.utime(made.path(f"features/{age}{age}00"), (when, when))
    return made


def names(store):
    return sorted(entry.key[-4:] for entry in store.entries())


def test_by_age(store):
    done = collect(store, older_than=2.5 * DAY)
    assert done.removed["unused for too long"] == 2
    assert names(store) == ["1100", "2200"]


def test_by_size_the_longest_unused_go_first(store):
    store.get("features/4400")  # used just now
    done = collect(store, max_bytes=17_000)
    assert done.removed["over the size limit"] == 2
    assert done.remaining <= 17_000
    assert names(store) == ["1100", "4400"]


def test_a_dry_run_removes_nothing(store):
    done = collect(store, older_than=2.5 * DAY, max_bytes=9000, dry_run=True)
    assert dict(+done.removed) == {"unused for too long": 2, "over the size limit": 1}
    assert len(names(store)) == 4


def test_looking_after_an_entry_is_not_using_it(store):
    verify(store)
    collect(store, older_than=2.5 * DAY)
    assert names(store) == ["1100", "2200"]


def test_what_is_left_behind_goes_and_what_is_written_stays(clip, tmp_path):
    store = DirectoryStore(tmp_path / "store")
    MEC(SMALL, None, store=store).index(clip)
    folder = store.root / "index" / "ab"
    folder.mkdir()
    for name, age in ((".a.tmp", 2 * 3600), (".b.tmp", 0)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age,) * 2)
    assert collect(store).removed["left behind"] == 1
    assert [path.name for path in folder.iterdir()] == [".b.tmp"]
    kinds = {entry.key.split("/")[0] for entry in store.entries()}
    assert kinds == {"index", "features", "timeline", "fingerprints"}


def test_downloads_are_counted_too(store):
    (store.root / "remote").mkdir()
    (store.root / "remote" / "abcd").write_bytes(b"x" * 50_000)
    os.utime(store.root / "remote" / "abcd", (0, 0))
    assert not any(verify(store).values())
    collect(store, max_bytes=40_000)
    assert not (store.root / "remote" / "abcd").exists()
    assert len(names(store)) == 4


def test_of_one_kind(store):
    store.put("index/ab00", {}, {"x": np.zeros(10)})
    assert {entry.key for entry in store.entries("index")} == {"index/ab00"}
    assert len([*store.entries("features")]) == 4
    assert not [*store.entries("timeline")]


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return ended.value.code, *capsys.readouterr()


def test_the_commands(capsys, store):
    code, out, _ = run(capsys, "cache", "verify", "--cache", store.root, "--quiet")
    assert code == 0
    assert re.match(r"4 entries and 0 model files, [\d.]+ KiB: 0 damaged\n", out), out
    path = store.path("features/2200")
    path.write_bytes(path.read_bytes()[:-8] + b"\1" * 8)
    code, out, err = run(capsys, "cache", "verify", "--cache", store.root)
    assert code == 1
    assert "features/2200: its checksum does not match" in err
    assert run(capsys, "cache", "verify", "--remove", "--cache", store.root)[0] == 0
    assert names(store) == ["1100", "3300", "4400"]
    code, out, _ = run(capsys, "cache", "gc", "--older-than", "80h", "--cache", store.root)
    assert (code, "1 removed: unused for too long" in out) == (0, True)
    assert (
        "would be removed"
        in run(capsys, "cache", "gc", "--max-size", "1kB", "--dry-run", "--cache", store.root)[1]
    )
    assert names(store) == ["1100", "3300"]
    code, _, err = run(capsys, "cache", "gc", "--max-size", "much")
    assert (code, "write it like 500MB" in err) == (2, True)
