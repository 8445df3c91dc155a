"""Upkeep of a store beside other upkeep and beside work: nothing is ended, and what is said is true."""

import os
import shutil
import threading
import time

import numpy as np
import pytest

from framenest.cache import directory
from framenest.cache.directory import MIN_MAPPED_BYTES, DirectoryStore, collect, verify

KINDS = ("index", "features", "timeline", "finished", "fingerprints", "remote")


def test_clear_counts_what_went_and_leaves_what_is_mapped(tmp_path):
    store = DirectoryStore(tmp_path)
    for name in ("aa11", "bb22"):
        store.put(f"features/{name}", {}, {"x": np.zeros(MIN_MAPPED_BYTES)})
    mapped = store.get("features/aa11")
    gone = store.path("features/bb22").stat().st_size
    assert store.clear(KINDS) == gone
    assert not store.has("features/bb22")
    assert (mapped[1]["x"] == 0).all()
    del mapped
    assert store.clear(KINDS) == gone


def test_clear_does_not_follow_links(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "weights.onnx").write_bytes(b"weights")
    store = DirectoryStore(tmp_path / "store")
    store.root.mkdir()
    (store.root / "models").symlink_to(elsewhere)
    assert store.clear(("models",)) == 0
    assert (elsewhere / "weights.onnx").exists()


@pytest.mark.parametrize("step", ["size", "entries", "sweep", "verify", "collect", "clear"])
def test_folders_that_vanish_end_no_upkeep(tmp_path, monkeypatch, step):
    """Each folder and file is gone right after it was listed."""
    store = DirectoryStore(tmp_path / "store")
    for number in range(4):
        store.put(f"index/{number}{number}aa", {}, {"x": np.arange(3)})
    walk = os.walk

    def vanishing(top, *arguments, **settings):
        for row in walk(top, *arguments, **settings):
            yield row
            shutil.rmtree(store.root, ignore_errors=True)

    monkeypatch.setattr(directory.os, "walk", vanishing)
    steps = {
        "size": store.size,
        "entries": lambda: list(store.entries()),
        "sweep": store.sweep,
        "verify": lambda: verify(store),
        "collect": lambda: collect(store, older_than=0),
        "clear": lambda: store.clear(KINDS),
    }
    steps[step]()
    assert not store.root.exists()


def test_writers_beside_constant_clearing_lose_no_write(tmp_path):
    store, stop, errors = DirectoryStore(tmp_path), threading.Event(), []

    def clear():
        while not stop.is_set():
            try:
                store.size(), DirectoryStore(tmp_path).clear(KINDS)
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for number in range(200):
            store.put(f"index/{number:04x}", {}, {"x": np.arange(3)})
            collect(store)
    finally:
        stop.set()
        thread.join()
    assert errors == []


def test_partial_downloads_are_swept_and_are_no_entries(tmp_path):
    store = DirectoryStore(tmp_path)
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "whole").write_bytes(b"video")
    part = tmp_path / "remote" / "abc.part"
    part.write_bytes(b"half a video")
    assert [entry.key for entry in store.entries()] == ["remote/whole"]
    assert store.sweep()[0] == 0  # it may be coming in
    old = time.time() - 2 * directory.ABANDONED_SECONDS
    os.utime(part, (old, old))
    assert store.sweep() == (1, 12)
    assert not part.exists()
    assert (tmp_path / "remote" / "whole").exists()
