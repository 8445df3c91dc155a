"""A library of vectors in LanceDB, in a directory and in an object store: the same rows as an exact scan."""

import json
import shutil
import sys

import numpy as np
import pytest
from colours import ColourScorer, colour_video

from framenest import MissingExtra, Searcher, Session, StoreError
from framenest.cache.directory import DirectoryStore
from framenest.cli import main
from framenest.retrieval import vectors as library
from framenest.retrieval.vectors import ScannedVectors, open_vectors

RNG = np.random.default_rng(7)


@pytest.fixture(params=["directory", "s3"])
def uri(request, tmp_path):
    pytest.importorskip("lancedb", reason="needs the extra `library`")
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{tmp_path.name}/vectors"
    return str(tmp_path / "vectors")


def about(name, path=None):
    return {"fingerprint": f"content of {name}", "video": {"path": path or f"{name}'s.mp4"}, "config": {}}


def unit(*shape):
    vectors = RNG.standard_normal(shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float16)


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main([*words])
    return ended.value.code


def rows(found):
    return list(zip(found.videos, found.frames.tolist(), strict=True))


@pytest.mark.parametrize("shape", [(40, 24), (40, 5, 24)], ids=["one vector", "several vectors"])
def test_the_same_rows_as_the_exact_scan(uri, tmp_path, shape):
    stores = ScannedVectors(DirectoryStore(tmp_path), "made"), open_vectors(DirectoryStore(), "made", uri)
    for name in "abc":
        vectors = unit(*shape)
        for store in stores:
            store.put(name, about(name), np.arange(40) * 3, vectors)
    query = unit(24).astype(np.float32)
    for videos in (None, ["a", "c"]):
        exact, found = (store.nearest(query, 10, videos) for store in stores)
        assert rows(exact) == rows(found)
        assert exact.scores == pytest.approx(found.scores, abs=1e-3)
    exact, found = (store.videos() for store in stores)
    assert exact == found


def test_no_ghosts(uri):
    vectors = library.LibraryVectors(uri, "made")
    query = np.eye(8, dtype=np.float32)[0]
    assert vectors.videos() == {}
    assert rows(vectors.nearest(query, 5)) == []
    vectors.put("old", about("old", "x.mp4"), np.arange(3), unit(3, 8))
    vectors.put("other", about("other"), np.arange(2), unit(2, 8))
    other = library.LibraryVectors(uri, "made")  # another machine
    other.put("changed", about("changed", "x.mp4"), np.arange(4), unit(4, 8))
    assert set(vectors.videos()) == {"changed", "other"}, "another content at the same path"
    other.put("finer", about("changed", "moved.mp4"), np.arange(6), unit(6, 8))
    assert sorted(rows(vectors.nearest(query, 99))) == [
        *(("finer", frame) for frame in range(6)),
        *(("other", frame) for frame in range(2)),
    ], "the same content at another path, with other probes"
    assert library.LibraryVectors(uri, "another scorer").videos() == {}


def test_an_index_finds_what_the_scan_finds(uri, tmp_path, monkeypatch):
    monkeypatch.setattr(library, "MIN_INDEXED_ROWS", 2000)
    monkeypatch.setattr(library, "PARTITION_ROWS", 500)
    vectors, exact = library.LibraryVectors(uri, "made"), ScannedVectors(DirectoryStore(tmp_path), "made")
    for name in range(8):
        made = unit(300, 60)
        for store in (vectors, exact):
            store.put(str(name), about(str(name)), np.arange(300), made)
    library.optimize(uri)
    assert vectors._tables()[0].list_indices(), "it has an index"
    late = unit(300, 60)
    for store in (vectors, exact):
        store.put("late", about("late"), np.arange(300), late)  # not in the index yet
    query = unit(60).astype(np.float32)
    wanted = set(rows(exact.nearest(query, 100)))
    assert len(wanted & set(rows(vectors.nearest(query, 100)))) >= 98
    library.optimize(uri)
    assert len(wanted & set(rows(vectors.nearest(query, 100)))) >= 98


def test_search_in_a_library(uri, tmp_path):
    videos = [
        colour_video(tmp_path / "one.mp4", ("grey", 3), ("red", 3), ("grey", 3)),
        colour_video(tmp_path / "two.mp4", ("grey", 3), ("blue", 3)),
    ]
    indexed = Searcher(Session(ColourScorer(), store=tmp_path / "here", progress=False), library=uri)
    assert [*indexed.find("something red", videos)][-1]
    other = Searcher(Session(ColourScorer(), store=tmp_path / "there", progress=False), library=uri)
    moment = [*other.find("something red")][-1][0]
    assert moment.video == str(videos[0])
    assert 3 <= moment.time <= 6
    shutil.move(videos[0], tmp_path / "gone")
    found = [*other.find("something red")][-1]
    assert str(videos[0]) not in {moment.video for moment in found}
    assert str(videos[0]) in other.skipped


def test_index_and_search_commands(tags_store, uri, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    colour_video(tmp_path / "one.mp4", ("grey", 2), ("red", 2))
    colour_video(tmp_path / "two.mp4", ("blue", 3))
    index = ["index", "one.mp4", "two.mp4", "--scorer", "tags", "--set", "base_probes=8", "--set"]
    index += ["extra_probes=0", "--library", uri, "--jobs", "1"]
    assert command(*index) == 0
    assert "2 videos done" in capsys.readouterr().out
    assert command(*index) == 0
    assert "2 already done" in capsys.readouterr().out
    another = tmp_path / "another"
    assert command(*(str(another) if word == uri else word for word in index)) == 0
    assert "2 videos done" in capsys.readouterr().out, "another library does not have them yet"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert command("search", "a red wall", "--scorer", "tags", "--library", str(another), "--json") == 0
    found = json.loads(capsys.readouterr().out)["moments"]
    assert {row["video"] for row in found} <= {str(tmp_path / "one.mp4"), str(tmp_path / "two.mp4")}
    assert found


def test_a_library_that_cannot_be_is_a_clear_error(tmp_path):
    pytest.importorskip("lancedb", reason="needs the extra `library`")
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="file: cannot be"):
        library.LibraryVectors(str(tmp_path / "file"), "made").put("a", about("a"), np.arange(2), unit(2, 4))


def test_without_lancedb(monkeypatch):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingExtra, match=r"\[library\]"):
        open_vectors(DirectoryStore(), "made", "anywhere")
