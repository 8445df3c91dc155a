"""The encoder that serves many videos: joins their pictures, and what one of them breaks costs no other."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from fragile_scorer import install_fragile_scorer

from framenest.corpus.batch_job import BatchJob
from framenest.corpus.ray_run import BatchingEncoder, match
from framenest.errors import FramenestError
from framenest.frames import FrameBatch
from framenest.processes import ProcessLimits, WorkerLost

WHITE, BLACK, REFUSED = 255, 0, 120.5


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """Made in a loop; its process ends with the test."""
    install_fragile_scorer(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.syspath_prepend(Path(__file__).parent)
    made = []

    def make(**limits):
        made.append(
            BatchingEncoder(BatchJob(scorer="fragile", root=str(tmp_path / "store")), ProcessLimits(**limits))
        )
        return made[-1]

    yield make
    for one in made:
        one._process.kill()


def batch(count, value):
    pixels = np.full((count, 8, 8, 3), value, np.uint8)
    if value == REFUSED:
        pixels[:, ::2], pixels[:, 1::2] = 120, 121
    return FrameBatch(np.arange(10, 10 + count), np.zeros(count), (pixels,))


def encode(encoder, values):
    """What all get who ask at once for (count, value) pictures; an error is its own result."""

    async def ask():
        asked = [encoder.encode(batch(count, value)) for count, value in values]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(ask())


def means(result):
    return result["mean"].tolist()


def test_batches_of_several_videos_are_joined_and_blame_is_not_shared(encoder):
    results = encode(encoder(), [(30, 10), (30, 20), (3, REFUSED), (30, 30)])
    assert [means(results[place]) for place in (0, 1, 3)] == [[value] * 30 for value in (10, 20, 30)]
    assert isinstance(results[2], FramenestError)
    assert "grey" in str(results[2])
    assert results[3]["longest"][0] == 63  # two videos together, and the third that was refused


def test_only_the_pictures_that_kill_the_scorer_fail(encoder):
    one = encoder()
    results = encode(one, [(2, 10), (3, WHITE), (2, 20), (1, WHITE), (2, 30)])
    assert [means(results[place]) for place in (0, 2, 4)] == [[10, 10], [20, 20], [30, 30]]
    for place, frames in ((1, "10 to 12"), (3, "10 to 10")):
        assert isinstance(results[place], WorkerLost)
        assert results[place].kind == "WorkerDied"
        assert f"its frames {frames} (the worker was killed by SIGSEGV)" in str(results[place])
    assert means(encode(one, [(1, 40)])[0]) == [40]


def test_only_the_pictures_on_which_the_scorer_hangs_fail(encoder):
    results = encode(encoder(seconds=5), [(2, 10), (2, BLACK), (2, 20)])
    assert [means(results[place]) for place in (0, 2)] == [[10, 10], [20, 20]]
    assert isinstance(results[1], WorkerLost)
    assert results[1].kind == "TimeLimit"


def test_a_question_that_kills_the_scorer_fails_alone(encoder):
    one = encoder()

    async def ask(question):
        return await one.ask(match, {"mean": np.array([51.0])}, question, None)

    with pytest.raises(WorkerLost, match="killed by SIGSEGV"):
        asyncio.run(ask("crash"))
    assert asyncio.run(ask("Where?")).tolist() == [0.2]
