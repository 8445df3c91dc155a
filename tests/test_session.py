"""A session shares open videos, scorers and features; scorers load in the background."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from framenest import (
    MEC,
    ConfigError,
    DiscoveryConfig,
    IndexConfig,
    MECConfig,
    RankingConfig,
    ScorerError,
    open_video,
)
from framenest.scorers import wait_until_loaded
from framenest.scorers.checkpoint import InBackground
from framenest.session import Session
from framenest.testing import ArrayDecoder, TableScorer
from processes import PATIENCE
from score_tables import zero_elsewhere

SMALL = MECConfig(IndexConfig(base_probes=24, extra_probes=8), DiscoveryConfig(), RankingConfig(horizon=20))


class SlowScorer(TableScorer):
    """A table that loads as a model does; `load` runs in the background."""

    def __init__(self, load=lambda: None):
        super().__init__(zero_elsewhere({7: 1.0}))
        self._model = InBackground(load)
        self.timing = self._model.timing
        self.encoded = []

    def encode(self, frames):
        self._model()
        self.encoded += frames.frames.tolist()
        return super().encode(frames)

    def match(self, encoded, question, *, reference=None):
        self._model()
        return super().match(encoded, question, reference=reference)


class WatchedDecoder(ArrayDecoder):
    """Says when it was first read."""

    def __init__(self, frames):
        super().__init__(frames, fps=10)
        self.read_once = threading.Event()
        self.asked = []

    def read(self, frames, *, sizes=(None,)):
        self.asked += [int(number) for number in frames]
        for batch in super().read(frames, sizes=sizes):
            yield batch
            self.read_once.set()


def test_frames_are_decoded_while_the_scorer_loads(frames, tmp_path):
    decoder = WatchedDecoder(frames)
    scorer = SlowScorer(lambda: decoder.read_once.wait(PATIENCE))
    ranking = MEC(SMALL, scorer, store=tmp_path).rank(decoder, "Where?")
    assert decoder.read_once.is_set()
    assert len(decoder.asked) == len(set(decoder.asked))
    assert sorted(scorer.encoded) == ranking.pool.frames.tolist()
    assert ranking.stats.seconds["load"] > 0
    usual = MEC(SMALL, TableScorer(zero_elsewhere({7: 1.0})), store=tmp_path / "b").rank(decoder, "Where?")
    assert ranking.frames.tolist() == usual.frames.tolist()


def test_a_scorer_that_cannot_be_loaded_stops_the_work(frames, tmp_path):
    def fails():
        raise ScorerError("the weights are damaged")

    mec = MEC(SMALL, SlowScorer(fails), store=tmp_path)
    for _ in range(2):
        with pytest.raises(ScorerError, match=r"^the weights are damaged$"):
            mec.rank(frames, "Where?", fps=10)
    with pytest.raises(ScorerError, match=r"^the weights are damaged$"):
        wait_until_loaded(mec.session.scorer)
    assert not [thread for thread in threading.enumerate() if thread.name == "framenest-decode"]
    assert len(mec.rank(frames, None, fps=10)) == 20  # without a question, without the scorer


PLUGIN = """
import sys, threading, time
from framenest import cli
from framenest.scorers import table
from framenest.scorers.checkpoint import InBackground
class Slow(table.TableScorer):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.model = InBackground(lambda: {load}())
    def encode(self, frames):
        self.model()
        return super().encode(frames)
table.TableScorer = Slow
"""


def ended(tmp_path, code, **places):
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n299,1\n")
    return subprocess.run(
        [sys.executable, "-c", PLUGIN.format(**places) + code],
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path,
    )  # fmt: skip


def test_a_command_that_fails_does_not_wait_for_its_model(tmp_path):
    code = """
sys.argv = ["framenest", "rank", "http://127.0.0.1:1/kiln.mp4", "Where?", "--scorer", "table:scores.csv"]
cli.main()
"""
    done = ended(tmp_path, code, load="threading.Event().wait")
    assert done.returncode == 2
    assert done.stderr.startswith("error: http://127.0.0.1:1/kiln.mp4")
    assert len(done.stderr.splitlines()) == 1


def test_a_load_error_is_one_line_of_a_command(tmp_path, clip):
    code = f"""
sys.argv = ["framenest", "rank", {str(clip)!r}, "Where?", "--scorer", "table:scores.csv"]
cli.main()
"""
    define = """
def load_model():
    from framenest import ScorerError
    raise ScorerError("out of GPU memory: the model does not fit; try --device cpu")
"""
    done = ended(tmp_path, define + code, load="load_model")
    assert done.returncode == 2
    assert done.stderr == "error: out of GPU memory: the model does not fit; try --device cpu\n"


def test_a_script_ends_after_its_model_is_loaded(tmp_path):
    """Model libraries abort a process that ends while they load."""
    code = """
from framenest import Session
Session("table:scores.csv").scorer
raise SystemExit(3)
"""
    done = ended(tmp_path, code, load='(lambda: (time.sleep(0.3), print("loaded")))')
    assert (done.returncode, done.stdout) == (3, "loaded\n")


def test_features_in_memory_are_bounded(clip, frames):
    """Beyond the bound, those of the video used longest ago are evicted and made again."""

    class Forgetful:
        def get(self, key):
            return None

        def put(self, key, header, arrays):
            pass

    space = Session(TableScorer(zero_elsewhere({0: 1.0})), store=Forgetful(), memory=1)
    decoder, other = open_video(clip), ArrayDecoder(frames, fps=10)
    first = space.features(decoder, space.scorer, 32)
    first.get(np.arange(5), "probes")
    assert space.features(decoder, space.scorer, 32) is first
    space.features(other, space.scorer, 32).get(np.arange(5), "probes")
    assert space.features(decoder, space.scorer, 32) is not first


def test_a_session_goes_through_many_videos_in_bounded_memory(tmp_path):
    """Open videos, indexes and features of 60 clips, within the memory of about ten."""
    clips = [np.full((40, 18, 32, 3), i, np.uint8) for i in range(60)]
    scorer = TableScorer(zero_elsewhere({0: 1.0}))
    roomy = MEC(SMALL, scorer, store=tmp_path)
    roomy.rank(clips[0], "x", fps=10)
    one = sum(kept.nbytes for kept in roomy.session.held())
    mec = MEC(SMALL, session=Session(scorer, store=tmp_path, memory=10 * one))
    for clip in clips:
        mec.rank(clip, "x", fps=10)
    assert sum(kept.nbytes for kept in mec.session.held()) <= 10 * one
    assert 10 < len(mec.session.held()) < 60


MANY = """
import sys
sys.path[:0] = {path!r}
import os, struct
from pathlib import Path
import numpy as np
from framenest import MEC, Session
from framenest.frames import ImageSpec
from framenest.processes import own_memory
from media import numbered_video

class Wide:  # features of 50 MiB and images of 128 MiB a video, as real scorers have
    name, version, batch, inputs = "wide", "1", 16, (ImageSpec.squash(384, 384),)
    def encode(self, frames):
        return {{"rows": np.ones((len(frames), 196, 256), np.float16)}}
    def match(self, encoded, question, *, reference=None):
        return np.ones(len(encoded["rows"]), np.float32)

class Nowhere:
    def get(self, key):
        return None
    def put(self, key, header, arrays):
        pass

video = numbered_video(Path("base.mp4"), 1500).read_bytes()
mec = MEC(session=Session(Wide(), store=Nowhere(), memory={memory}, progress=False))
before = own_memory(os.getpid())
for number in range(6):
    Path("video.mp4").write_bytes(video + struct.pack(">I4sQ", 16, b"free", number))
    mec.rank("video.mp4", "Where?")
print(own_memory(os.getpid()) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_memory_of_a_process_keeps_to_the_limit(tmp_path):
    """All that it takes, not only what is counted: decoding leaves hundreds of megabytes in pieces."""
    limit = 300 * 2**20
    code = MANY.format(path=[str(Path(__file__).parent)], memory=limit)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE,
        check=True,
    )
    assert 50 * 2**20 < int(done.stdout) < limit


def test_a_session_takes_a_share_of_what_its_process_may_use(monkeypatch):
    """A worker has its limit in the environment (tests/test_worker_process.py)."""
    clip = np.zeros((40, 18, 32, 3), np.uint8)
    for limit, kept in (("64 GiB", 3), ("4 KiB", 1)):
        monkeypatch.setenv("FRAMENEST_MEMORY", limit)
        mec = MEC(SMALL, TableScorer(zero_elsewhere({0: 1.0})))
        mec.rank(clip, "x", fps=10)
        assert len(mec.session.held()) == kept, limit


def test_a_frame_set_is_asked_for_once(frames, tmp_path):
    told = []
    mec = MEC(
        SMALL, TableScorer(zero_elsewhere({0: 1.0})), store=tmp_path, progress=lambda *a: told.append(a)
    )
    for question in ("x", "y"):
        mec.rank(frames, question, fps=10)
    assert [stage for stage, done, _ in told if done == 0] == ["probes", "zoom"]


def test_a_session_together_with_its_own_parts_is_refused(tmp_path):
    session = Session(None, store=tmp_path)
    for parts in ({"scorer": "tags"}, {"scorer": None}, {"store": tmp_path}, {"keep_features": True}):
        with pytest.raises(ConfigError, match="a session brings its own scorer"):
            MEC(session=session, **parts)
