"""The `residual` rule against numbers worked by hand and against its formula written out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framenest import MEC, MECConfig
from framenest.config import RankingConfig
from framenest.errors import ConfigError
from framenest.method import cues
from framenest.method.ordering import no_dip, residual, same_event, same_look, still_on
from framenest.testing import ArrayDecoder, TableScorer
from score_tables import zero_elsewhere

CONFIG = RankingConfig(rule="residual")


def literal(seconds, relevance, evidence, vectors, config):
    """u_n(S) = (E_n + c) · (1 − max κ_nm) · (1 − max κ_a(s_nm)), frame by frame."""

    def kappa(d, a, b):
        span = math.log(b / a)
        if d < a:
            return 1 - d * (1 / a - 1 / b) / span
        return (math.log(b / d) - 1 + d / b) / span if d < b else 0.0

    rho = [max(float(r), 1e-6) for r in relevance]

    def same(n, m):
        d = abs(float(seconds[n]) - float(seconds[m]))
        dip = min(rho[min(n, m) : max(n, m) + 1]) / min(rho[n], rho[m])
        brief = kappa(d, config.event_shortest, config.event_longest)
        return max(brief, dip * kappa(d, config.scene_shortest, config.scene_longest))

    def alike(n, m):
        s = float(vectors[n].astype(np.float64) @ vectors[m].astype(np.float64))
        return 0.9 * min(max((s - config.same_look_from) / (1 - config.same_look_from), 0), 1)

    chosen, utilities = [], []
    for _ in range(min(config.horizon, len(seconds))):
        worths = {}
        for n in range(len(seconds)):
            if n not in chosen:
                event = max((same(n, m) for m in chosen), default=0)
                look = max((alike(n, m) for m in chosen), default=0)
                worths[n] = (float(evidence[n]) + config.evidence_floor) * (1 - event) * (1 - look)
        best = max(worths, key=lambda n: (worths[n], -n))
        chosen.append(best)
        utilities.append(worths[best])
    return chosen, utilities


def pool(seed, count=40, seconds=600.0):
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, seconds, count))
    relevance = rng.random(count).astype(np.float32) ** 3
    evidence = (0.7 * relevance + 0.3 * rng.random(count)).astype(np.float32)
    thumbnails = rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    thumbnails[1::3] = thumbnails[:1]  # some pictures are the same
    return times, relevance, evidence, cues.encode(thumbnails)


def test_how_long_an_event_is_still_on():
    """Durations from 1 to e seconds: L = 1, so κ(0) = 1, κ(1) = 1/e, κ(2) = 1 − ln 2 − 1 + 2/e, κ(e) = 0."""
    found = still_on(np.array([0.0, 0.5, 1.0, 2.0, math.e, 99.0]), 1.0, math.e)
    expected = [1, 1 - 0.5 * (1 - 1 / math.e), 1 / math.e, 2 / math.e - math.log(2), 0, 0]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert (np.diff(found) <= 1e-15).all()


def test_a_dip_between_two_frames():
    assert no_dip(np.array([0.6, 0.3, 0.9, 0.45]), 2).tolist() == pytest.approx([0.5, 1, 1, 1])
    assert no_dip(np.array([0.6, 0.3, 0.9, 0.45]), 0).tolist() == pytest.approx([1, 1, 0.5, 2 / 3])


def test_without_a_dip_a_scene_lasts_longer():
    times, steady, dips = np.array([0.0, 50.0, 100.0]), np.full(3, 0.8), np.array([0.8, 0.08, 0.8])
    (long,) = still_on(np.array([100.0]), CONFIG.scene_shortest, CONFIG.scene_longest)
    assert long > 0
    assert same_event(times, steady, 0, CONFIG)[2] == pytest.approx(long)
    assert same_event(times, dips, 0, CONFIG)[2] == pytest.approx(0.1 * long)


def test_the_same_look():
    found = same_look(np.array([0.9, 0.995, 0.9975, 1.0]), 0.995)
    assert found.tolist() == pytest.approx([0, 0, 0.45, 0.9])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("horizon", [7, 40])
def test_the_fast_rule_is_the_literal_one(seed, horizon):
    given_pool = pool(seed)
    config = RankingConfig(rule="residual", horizon=horizon)
    order, utilities = literal(*given_pool, config)
    found = residual(*given_pool, config)
    assert found.order.tolist() == order
    assert found.terms["utility"].tolist() == pytest.approx(utilities, abs=1e-12)


def test_one_event_is_shown_once_before_another_is_shown_at_all():
    times = np.arange(0, 400, 10.0)
    relevance = np.zeros(40, np.float32)
    relevance[5:8], relevance[30] = 0.9, 0.5  # three frames of one event, one of another
    vectors = cues.encode(np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3), dtype=np.uint8))
    found = residual(times, relevance, relevance, vectors, CONFIG)
    assert found.order[0] == 5
    assert found.order[1] == 30
    second = found.order.tolist().index(6)
    assert found.terms["shown_by"][second] >= 1
    assert found.terms["same_event"][second] > 0.4
    assert found.terms["shown_by"][0] == 0


def test_ties_go_to_the_earlier_frame():
    vectors = cues.encode(np.random.default_rng(1).integers(0, 256, (5, 4, 4, 3), dtype=np.uint8))
    same = np.full(5, 0.5, np.float32)
    times = np.arange(5) * 1000.0  # too far apart to be one event
    assert residual(times, same, same, vectors, CONFIG).order.tolist() == [0, 1, 2, 3, 4]


@given(seed=st.integers(0, 10_000), short=st.integers(1, 30))
def test_a_shorter_horizon_is_a_prefix_of_a_longer_one(seed, short):
    """No schedule runs over the horizon, so every prefix is a selection of its own."""
    given_pool = pool(seed)
    longer = residual(*given_pool, RankingConfig(rule="residual", horizon=40)).order
    shorter = residual(*given_pool, RankingConfig(rule="residual", horizon=short)).order
    assert shorter.tolist() == longer[:short].tolist()


def test_the_preset_ranks_and_says_what_each_frame_adds(tmp_path):
    clip = ArrayDecoder(np.random.default_rng(2).integers(0, 256, (300, 18, 32, 3), dtype=np.uint8), fps=1)
    scorer = TableScorer(zero_elsewhere(dict.fromkeys(range(100, 140), 1.0)))
    ranking = MEC(preset="residual", scorer=scorer, store=tmp_path).rank(clip, "Where?")
    assert ranking.config == MECConfig.preset("residual")
    assert set(ranking.terms) == {"same_event", "same_look", "shown_by", "utility"}
    assert 100 <= ranking.frames[0] < 140
    inside = [100 <= frame < 140 for frame in ranking.prefix(4).frames]
    paper = MEC(scorer=scorer, store=tmp_path).rank(clip, "Where?")
    assert sum(inside) < sum(100 <= frame < 140 for frame in paper.prefix(4).frames)
    ranking.save(tmp_path / "r.json")
    again = type(ranking).load(tmp_path / "r.json")
    assert again.terms["shown_by"].tolist() == ranking.terms["shown_by"].tolist()


def test_a_preset_and_a_config_together_are_refused():
    with pytest.raises(ConfigError, match="a preset is a config"):
        MEC(MECConfig(), preset="residual", scorer=None)
    with pytest.raises(ConfigError, match="event_longest = 2 is not allowed; it must be more than event_sho"):
        RankingConfig(event_longest=2)


def test_frames_that_show_nothing_come_last():
    """Black frames with the noise of compression, and one-colour cards, though the scorer likes them best."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (60, 36, 64, 3)).astype(np.uint8)
    pictures[10:20] = rng.integers(0, 3, (10, 36, 64, 3))
    pictures[40:45] = (30, 60, 200)
    scores = {frame: 1.0 if frame in {*range(10, 20), *range(40, 45)} else 0.5 for frame in range(60)}
    mec = MEC(scorer=TableScorer(scores), preset="residual", base_probes=60, extra_probes=0)
    ranking = mec.rank(pictures, "Where?", fps=2)
    assert set(ranking.frames[-15:].tolist()) == {*range(10, 20), *range(40, 45)}
    assert len(MEC(scorer=TableScorer(scores), preset="residual").rank(pictures * 0, "Where?", fps=2)) == 60
