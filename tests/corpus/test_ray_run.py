"""The same work on a real Ray cluster of two nodes: same entries, also when a node is killed on the way."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from fragile_scorer import COLOURS, install_fragile_scorer, one_colour

from framenest import IndexConfig, MECConfig
from framenest.cache.directory import DirectoryStore
from framenest.cli import main
from framenest.corpus.batch_job import BatchJob
from framenest.corpus.manifest import index_groups
from framenest.method.ranking import Ranking
from framenest.rank_request import RankRequest
from framenest.retrieval.vectors import open_vectors
from framenest.scorers import load_scorer
from framenest.scorers.feature_store import Features
from media import numbered_video

pytest.importorskip("ray", reason="needs the extra `ray`; make test-ray installs it")

SMALL = RankRequest(video="", config=MECConfig(IndexConfig(base_probes=12, extra_probes=0)))


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(8):
        numbered_video(folder / f"{number}.mp4", 40 + number)
    return folder


def run_on_cluster(tmp_path, *more_paths, **settings):
    """In a process of its own: Ray's threads and warnings are not this one's. more_paths: to import from."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"log": str(tmp_path / "log.jsonl"), "head": 1} | settings))
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, (here, here.parent, *more_paths)))
    environment = os.environ | {"PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(here / "ray_run.py"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.split("RESULT")[1])


def entries(store, kind):
    return {key: store.path(key) for entry in store.entries() if (key := entry.key).startswith(f"{kind}/")}


def index_locally(videos, store, scorer=None):
    work = BatchJob(scorer, cache=str(store)).open()
    for group in index_groups(sorted(map(str, videos.glob("*.mp4"))), SMALL):
        assert work(group)[0].status == "done"
    return DirectoryStore(store)


def test_a_killed_node_loses_nothing(videos, tmp_path):
    result = run_on_cluster(tmp_path, videos=str(videos), store=str(tmp_path / "ray"), kill="in a video")
    assert Counter(row[2] for row in result["outcomes"]) == {"done": 8}
    begun = {(row["what"], row["video"]) for row in result["log"] if row["node"] == result["second"]}
    lost = {video for what, video in begun if what == "begin" and ("end", video) not in begun}
    assert lost  # it was killed in the middle of a video, which was then done elsewhere
    again = [row for row in result["log"] if row["node"] != result["second"] and row["video"] in lost]
    assert {row["video"] for row in again if row["what"] == "end"} == lost

    local, shared = index_locally(videos, tmp_path / "local"), DirectoryStore(tmp_path / "ray")
    for kind in ("index", "timeline", "features", "finished"):
        mine, theirs = entries(local, kind), entries(shared, kind)
        assert len(theirs) == 8  # exactly one entry each
        assert mine.keys() == theirs.keys()
        for key in mine:
            assert mine[key].read_bytes() == theirs[key].read_bytes(), key
    assert not list(shared.root.rglob("*.tmp"))


def test_encoders_serve_all_videos(videos, tmp_path, tags_store):
    """The scorer in an actor of its own; its node may be the one killed."""
    local = index_locally(videos, tags_store.root, "tags")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "models").symlink_to(tags_store.root / "models")
    result = run_on_cluster(
        tmp_path,
        videos=str(videos),
        store=str(tmp_path / "ray"),
        scorer="tags",
        encoders=1,
        head=2,
        kill="after one",
    )
    assert Counter(row[2] for row in result["outcomes"]) == {"done": 8}
    shared = DirectoryStore(tmp_path / "ray")
    for kind in ("index", "timeline"):
        mine, theirs = entries(local, kind), entries(shared, kind)
        assert mine.keys() == theirs.keys()
        assert all(mine[key].read_bytes() == theirs[key].read_bytes() for key in mine)
    mine, theirs = entries(local, "features"), entries(shared, "features")
    assert mine.keys() == theirs.keys()
    for key in mine:
        one, other = (Features.from_parts(*store.get(key)) for store in (local, shared))
        assert (one.frames == other.frames).all()
        for name, array in one.encoded.items():
            assert (np.asarray(array) == other.encoded[name]).all()


def test_what_hangs_or_crashes_fails_alone(videos, tmp_path):
    odd = [str(tmp_path / f"{what}.mp4") for what in ("hang", "crash")]
    result = run_on_cluster(
        tmp_path, videos=str(videos), odd=odd, store=str(tmp_path / "ray"), seconds=20.0, head=2
    )
    failed = {row[0]: row[3] for row in result["outcomes"] if row[2] == "failed"}
    assert failed == {"hang.mp4": "TimeLimit", "crash.mp4": "WorkerDied"}
    assert sum(row[2] == "done" for row in result["outcomes"]) == 8


def test_pictures_that_kill_an_encoder_or_hang_in_it_fail_their_video_alone(videos, tmp_path):
    install_fragile_scorer(tmp_path / "site")
    odd = [str(one_colour(tmp_path / f"{name}.mp4", colour)) for name, colour in COLOURS.items()]
    result = run_on_cluster(
        tmp_path,
        tmp_path / "site",
        videos=str(videos),
        odd=odd,
        store=str(tmp_path / "ray"),
        scorer="fragile",
        encoders=1,
        head=3,
        seconds=20.0,
    )
    failed = {row[0]: row[3:] for row in result["outcomes"] if row[2] == "failed"}
    assert {name: error for name, (error, _) in failed.items()} == {
        "white.mp4": "WorkerDied",
        "black.mp4": "TimeLimit",
    }
    assert "white.mp4: the scorer failed on its frames 0 to " in failed["white.mp4"][1]
    assert "(its process died)" in failed["white.mp4"][1]
    assert sum(row[2] == "done" for row in result["outcomes"]) == 8


def test_rankings_with_an_encoder_and_a_store_at_an_address(videos, tmp_path, tags_store):
    asked = [("0.mp4", "Where?"), ("0.mp4", "Is there a cup?"), ("1.mp4", "Where?")]
    lines = [json.dumps({"video": str(videos / name), "question": text}) for name, text in asked]
    (tmp_path / "asked.jsonl").write_text("\n".join(lines))
    url = f"file://{tmp_path}/shared"
    result = run_on_cluster(
        tmp_path,
        manifest=str(tmp_path / "asked.jsonl"),
        out=str(tmp_path / "out"),
        store=str(tags_store.root),
        url=url,
        scorer="tags",
        encoders=1,
        head=2,
    )
    assert Counter(row[2] for row in result["outcomes"]) == {"done": 3}
    rankings = [Ranking.load(file) for file in (tmp_path / "out").glob("*.json")]
    assert sorted(one.stats.match.known for one in rankings) == [(), (), ("cup",)]
    assert all(one.pool.labels for one in rankings)
    assert len(list((tmp_path / "shared" / "index").rglob("*.safetensors"))) == 2


def test_workers_fill_a_library(videos, tmp_path, tags_store):
    pytest.importorskip("lancedb", reason="needs the extra `library`; make test-ray installs it")
    index_locally(videos, tags_store.root, "tags")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "models").symlink_to(tags_store.root / "models")
    uri = str(tmp_path / "library")
    run_on_cluster(tmp_path, videos=str(videos), store=str(tmp_path / "ray"), scorer="tags", library=uri)
    scorer = load_scorer("tags", tags_store)
    space, query = f"{scorer.name} {scorer.version}", np.asarray(scorer.search_query("a cup"), np.float32)
    local, shared = (open_vectors(tags_store, space, where) for where in (None, uri))
    assert local.videos() == shared.videos()
    assert len(shared.videos()) == 8
    one, other = (store.nearest(query, 1000) for store in (local, shared))
    assert len(one.frames) == 8 * 12
    assert sorted(one.scores) == pytest.approx(sorted(other.scores), abs=1e-2)


def test_on_a_cluster_the_scorer_is_named(capsys, videos):
    with pytest.raises(SystemExit) as ended:
        main(["index", str(videos), "--engine", "ray"])
    assert ended.value.code == 2
    assert "name it with --scorer" in capsys.readouterr().err
