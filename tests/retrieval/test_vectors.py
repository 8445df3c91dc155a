"""ScannedVectors: exact, whatever its blocks and threads."""

import numpy as np
import pytest

from framenest.cache.directory import DirectoryStore, collect
from framenest.retrieval import vectors
from framenest.retrieval.vectors import ScannedVectors


def made(store, count, rows=40, width=24, several=None):
    """ScannedVectors of some videos, and all their vectors by video."""
    random, scanned, every = np.random.default_rng(1), ScannedVectors(store, "noise 1"), {}
    for number in range(count):
        shape = (rows + number, width) if several is None else (rows, several, width)
        every[f"v{number}"] = random.normal(0, 0.1, shape).astype(np.float16)
        scanned.put(
            f"v{number}", {"number": number}, 10 * np.arange(len(every[f"v{number}"])), every[f"v{number}"]
        )
    return scanned, every


def expected(every, query, count):
    """(video, frame, score) of the best rows, by plain numpy."""
    rows = []
    for video, found in every.items():
        scores = found.astype(np.float32) @ query
        scores = scores.max(axis=1) if scores.ndim > 1 else scores
        rows += [(-float(score), video, 10 * place) for place, score in enumerate(scores)]
    best = sorted(rows, key=lambda row: row[0])[:count]
    return [row[1] for row in best], [row[2] for row in best], [-row[0] for row in best]


@pytest.mark.parametrize("several", [None, 3])
def test_the_scan_is_exact(cache, several, monkeypatch):
    monkeypatch.setattr(vectors, "BLOCK", 7 * 24)  # many blocks, the last one shorter
    scanned, every = made(DirectoryStore(cache), 9, several=several)
    query = np.random.default_rng(2).normal(0, 1, 24).astype(np.float32)
    found = scanned.nearest(query, 50)
    names, frames, scores = expected(every, query, 50)
    assert (found.videos, found.frames.tolist()) == (names, frames)
    assert found.scores == pytest.approx(scores, rel=1e-5)


def test_every_float16_number_is_read_as_it_is(cache):
    """Zeros, the smallest numbers and the largest: the scan makes float32 numbers out of their bits."""
    bits = np.arange(65536, dtype=np.uint16)
    numbers = bits.view(np.float16)
    finite = numbers[np.isfinite(numbers)]
    scanned = ScannedVectors(DirectoryStore(cache), "every number")
    scanned.put("all", {}, np.arange(len(finite)), finite[:, None])
    found = scanned.nearest(np.ones(1, np.float32), len(finite))
    assert len(finite) == 63488
    assert (found.scores == finite.astype(np.float32)[found.frames]).all()


def test_only_the_videos_asked_for_and_ties_to_the_first(cache):
    scanned = ScannedVectors(DirectoryStore(cache), "same")
    for name in ("b", "a"):
        scanned.put(name, {}, np.array([5, 6]), np.ones((2, 4), np.float16))
    query = np.ones(4, np.float32)
    assert scanned.nearest(query, 3, ["b", "a", "gone"])[:2][0] == ["b", "b", "a"]
    assert scanned.nearest(query, 9, ["a"]).frames.tolist() == [5, 6]
    assert scanned.nearest(query, 9, ["gone"]).videos == []


def test_spaces_do_not_mix(cache):
    store = DirectoryStore(cache)
    scanned, _ = made(store, 2)
    other = ScannedVectors(store, "noise 2")
    other.put("v0", {"number": "other"}, np.arange(1), np.ones((1, 24), np.float16))
    assert {video: about["number"] for video, about in scanned.videos().items()} == {"v0": 0, "v1": 1}
    assert other.videos() == {"v0": {"number": "other"}}
    assert [header["space"] for header in other.headers(mine=False)] == ["noise 1", "noise 1"]


def test_a_store_of_two_methods_can_be_scanned_but_not_listed():
    class DictStore(dict):
        def put(self, key, header, arrays):
            self[key] = dict(header), dict(arrays)

    scanned, every = made(DictStore(), 2)
    query = np.ones(24, np.float32)
    assert scanned.nearest(query, 5, every).videos == expected(every, query, 5)[0]
    assert scanned.videos() == {}


def test_gc_and_clear_know_the_vectors(cache):
    store = DirectoryStore(cache)
    scanned, _ = made(store, 3)
    assert store.size()["vectors"][0] == 3
    assert collect(store, max_bytes=0).removed["over the size limit"] == 3
    assert scanned.videos() == {}
    assert scanned.nearest(np.ones(24, np.float32), 5).videos == []


def test_listing_is_no_use_of_an_entry_but_a_scan_is(cache):
    """So that the vectors of a video that is gone grow old, and gc evicts them."""
    import os

    store = DirectoryStore(cache)
    scanned, _ = made(store, 1)
    (entry,) = store.entries("vectors")
    os.utime(store.path(entry.key), (0, 0))
    scanned.videos()
    assert store.path(entry.key).stat().st_mtime == 0
    scanned.nearest(np.ones(24, np.float32), 1)
    assert store.path(entry.key).stat().st_mtime > 0
