"""Several things to look for: a frame that shows one of them is relevant."""

import json
from dataclasses import replace

import numpy as np
import pytest

from framenest import MEC, ConfigError, Ranking
from framenest.method.discovery import noisy_or
from framenest.rank_request import LookFor
from framenest.report.document import document
from media import numbered_video

SMALL = {"base_probes": 24, "extra_probes": 8, "horizon": 20}
KILN, CUPS = "a glowing kiln", "cups on a shelf"
WHERE = {"What happens after firing?": (0, 0), KILN: (50, 70), CUPS: (220, 240)}


class ByText:
    """Finds each text in frames of its own."""

    name, version, inputs = "by-text", "1", ()

    def encode(self, frames):
        return {"frames": frames.frames}

    def match(self, encoded, question, *, reference=None):
        first, end = WHERE[question]
        return np.array([0.9 if first <= n < end else 0.05 for n in encoded["frames"]], np.float32)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return numbered_video(tmp_path_factory.mktemp("looked") / "kiln.mp4", 300)


def ranked(video, look_for=(), **settings):
    return MEC(scorer=ByText(), **SMALL, **settings).rank(
        video, "What happens after firing?", look_for=look_for
    )


def inside(frames, text):
    first, end = WHERE[text]
    return int(((frames >= first) & (frames < end)).sum())


def test_noisy_or():
    one = np.array([0.1, 0.5, 1.0], np.float32)
    assert noisy_or([one]) is one
    assert noisy_or([one, one]).tolist() == pytest.approx([0.19, 0.75, 1.0])
    assert noisy_or([one, one]).dtype == np.float32


def test_any_of_them_is_relevant(video):
    plain, ranking = ranked(video), ranked(video, [KILN, CUPS])
    assert inside(plain.frames[:4], KILN) + inside(plain.frames[:4], CUPS) < 4
    assert inside(ranking.frames[:2], KILN) == inside(ranking.frames[:2], CUPS) == 1
    matches = ranking.pool.matches
    assert list(matches) == ["What happens after firing?", KILN, CUPS]
    assert np.array_equal(ranking.pool.cues["relevance"], noisy_or([*matches.values()]))


def test_nothing_to_look_for_changes_nothing(video):
    def bare(ranking):
        stats = replace(ranking.stats, seconds={}, decoded=0)
        return json.dumps(replace(ranking, stats=stats).to_json())

    assert bare(ranked(video)) == bare(ranked(video, []))
    assert "look_for" not in json.loads(bare(ranked(video)))


def test_the_file_keeps_each_relevance_and_the_report_draws_it(video, tmp_path):
    ranking = ranked(video, LookFor((KILN, CUPS)))
    ranking.save(tmp_path / "ranking.json")
    again = Ranking.load(tmp_path / "ranking.json")
    assert again.look_for == ranking.look_for
    for text, match in ranking.pool.matches.items():
        assert np.array_equal(again.pool.matches[text], match)
    curves = {curve["name"]: curve for curve in document([again])["rankings"][0]["curves"]}
    assert curves[KILN]["weight"] is None
    assert curves[KILN]["values"] == pytest.approx(ranking.pool.matches[KILN].tolist(), abs=1e-4)


def test_what_cannot_be_looked_for(video):
    mec = MEC(scorer=ByText(), **SMALL)
    with pytest.raises(ConfigError, match="give a question, too"):
        mec.rank(video, None, look_for=[KILN])
    with pytest.raises(ConfigError, match="a list of descriptions"):
        mec.rank(video, "What?", look_for=KILN)
    for wrong in ([" "], ["x"] * 17):
        with pytest.raises(ConfigError, match="1 to 16 descriptions"):
            mec.rank(video, "What?", look_for=wrong)
