"""Rankings in forked and spawned processes, of a session that has ranked before."""

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from framenest import MEC, ScorerError, Session
from framenest.cache.remote import RemoteStore
from media import numbered_video
from processes import PATIENCE

SCRIPT = Path(__file__).with_name("parallel_ranks.py")
NEEDS = {"loader": "torch", "datasets": "datasets"}


@pytest.fixture
def rank_in_processes(tmp_path):
    """What the script found in other processes, and then in its own."""
    videos = [numbered_video(tmp_path / f"{count}.mp4", count, 320, 240) for count in (50, 60)]

    def run(how, scorer, store):
        pytest.importorskip(NEEDS.get(how.partition("-")[0], "json"), reason="make test-models installs it")
        command = [sys.executable, str(SCRIPT), how, scorer, str(store), *map(str, videos)]
        env = os.environ | {"PYTHONPATH": str(SCRIPT.parents[1]), "HF_HOME": str(tmp_path / "hub")}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=2 * PATIENCE)
            finally:
                if process.poll() is None:  # with the processes that it started
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0
        return json.loads(output)

    return run


@pytest.mark.parametrize("how", ["fork", "spawn", "loader-fork", "loader-spawn", "datasets-fork"])
def test_processes_rank_as_their_parent_does(rank_in_processes, tags_store, how):
    there, here = rank_in_processes(how, "tags", tags_store.root)
    assert there == here
    assert [len(frames) for frames in there] == [16, 16]


@pytest.mark.parametrize("scorer", ["siglip2", "onnx"])
def test_a_forked_process_loads_any_model_again(rank_in_processes, tiny_models, cache, scorer):
    if scorer == "onnx":
        pytest.importorskip("onnxscript", reason="make test-models installs it")
    there, here = rank_in_processes("fork", f"{scorer}:{tiny_models(scorer)}", cache)
    assert there == here


def test_a_pickled_session_opens_again_what_it_needs(clip, tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text("frame,score\n0,0\n150,1\n299,0\n")
    mec = MEC(scorer=f"table:{scores}", store=tmp_path, horizon=8)
    before = pickle.dumps(mec)
    ranking = mec.rank(clip, "Where?")
    assert pickle.dumps(mec) == before  # so that a cache finds it by its hash
    again = pickle.loads(before)
    assert again.config == mec.config
    assert again.session.scoring == mec.session.scoring
    assert again.rank(clip, "Where?").frames.tolist() == ranking.frames.tolist()
    assert pickle.loads(pickle.dumps(ranking)).frames.tolist() == ranking.frames.tolist()
    assert pickle.loads(pickle.dumps(RemoteStore("memory://here"))).location == "memory://here"


def test_a_loaded_scorer_says_why_it_cannot_be_pickled(tag_scorer):
    with pytest.raises(ScorerError, match="give the session its name"):
        pickle.dumps(Session(tag_scorer))
