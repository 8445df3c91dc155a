"""An encoder that serves many workers: what breaks it, or hangs in it, costs no other worker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fragile_scorer import install_fragile_scorer

pytest.importorskip("ray", reason="needs the extra `ray`; make test-ray installs it")

WHITE, BLACK, GREY = 255, 0, 120.5


@pytest.fixture
def call(tmp_path):
    """Uses one encoder from several workers at the same time; see encoder_run.py."""
    install_fragile_scorer(tmp_path / "site")

    def call(*calls, seconds=60):
        here = Path(__file__).parent
        paths = os.pathsep.join(map(str, (here, here.parent, tmp_path / "site")))
        environment = os.environ | {"PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"}
        command = [
            sys.executable,
            here / "encoder_run.py",
            tmp_path / "store",
            str(seconds),
            json.dumps(calls),
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.split("RESULT")[1])

    return call


def test_pictures_that_the_scorer_refuses_fail_alone(call):
    results = call([30, 10], [30, 20], [3, GREY], [30, 30])
    assert [results[place]["result"] for place in (0, 1, 3, 4)] == [[10] * 30, [20] * 30, [30] * 30, [40]]
    assert results[2] == {"error": "unexpected ValueError: grey", "class": "FramenestError", "kind": None}


def test_only_the_pictures_that_kill_the_scorer_fail(call):
    results = call([2, 10], [3, WHITE], [2, 20], [1, WHITE], [2, 30])
    assert [results[place]["result"] for place in (0, 2, 4, 5)] == [[10, 10], [20, 20], [30, 30], [40]]
    for place, frames in ((1, "10 to 12"), (3, "10 to 10")):
        assert results[place]["class"] == "WorkerLost"
        assert results[place]["kind"] == "WorkerDied"
        assert f"its frames {frames} (its process died)" in results[place]["error"]


def test_only_the_pictures_on_which_the_scorer_hangs_fail(call):
    results = call([2, 10], [2, BLACK], [2, 20], seconds=5)
    assert [results[place]["result"] for place in (0, 2, 3)] == [[10, 10], [20, 20], [40]]
    assert results[1]["class"] == "WorkerLost"
    assert results[1]["kind"] == "TimeLimit"


def test_a_question_that_kills_the_scorer_fails_alone(call):
    results = call("crash", "Where?")
    assert results[0] == {"error": "its process died", "class": "WorkerLost", "kind": "WorkerDied"}
    assert results[1]["result"] == pytest.approx([0.2])
