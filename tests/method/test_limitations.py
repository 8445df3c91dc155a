"""The paper's three limitations, each seen happening. See docs/decisions.md."""

import numpy as np

from framenest import MEC, DiscoveryConfig, IndexConfig, MECConfig
from framenest.testing import TableScorer
from score_tables import zero_elsewhere


def plain_video(count=400):
    """A slowly brightening scene."""
    levels = (60 + 100 * np.arange(count) / count).astype(np.uint8)
    x = np.arange(48, dtype=np.uint8)[None, None, :, None]
    return np.broadcast_to(levels[:, None, None, None], (count, 32, 48, 3)) + x // 2


def test_an_event_between_probes_is_in_no_prefix():
    """Frame 203 alone holds the answer; no probe falls on it, and no zoom comes near."""
    config = MECConfig(IndexConfig(base_probes=40, extra_probes=0))
    scores = zero_elsewhere(dict.fromkeys(range(100), 0.3) | {203: 1.0})
    video = plain_video()
    ranking = MEC(config, TableScorer(scores)).rank(video, "What flashes?", fps=10)
    assert 203 not in ranking.pool.frames
    assert all(203 not in ranking.prefix(k).frames for k in range(1, len(ranking) + 1))
    dense = MEC(MECConfig(IndexConfig(base_probes=400)), TableScorer(scores)).rank(
        video, "What flashes?", fps=10
    )
    assert dense.frames[0] == 203


def test_a_segments_mean_dilutes_a_lone_high_probe():
    """One probe of 1.0 among zeros loses its segment to four probes of 0.3: no zoom around it."""
    video = plain_video()
    config = MECConfig(IndexConfig(base_probes=40, extra_probes=0), DiscoveryConfig(activation=0.1))
    probes = MEC(config, None).index(video, fps=10).frames
    scores = zero_elsewhere({int(probes[6]): 1.0} | {int(n): 0.3 for n in probes[20:24]})
    ranking = MEC(config, TableScorer(scores)).rank(video, "Where?", fps=10)
    assert ranking.pool.active == (5,)
    assert int(probes[6]) not in ranking.pool.anchors


def test_observability_puts_a_dark_frame_behind_a_bright_one_even_where_the_dark_one_answers():
    """The cues are proxies: equal relevance, and the night shot that holds the answer ranks last."""
    rng = np.random.default_rng(0)
    scene = rng.integers(60, 200, (32, 48, 3))
    video = np.stack([scene // 12 if n == 5 else scene for n in range(10)]).astype(np.uint8)
    config = MECConfig(discovery=DiscoveryConfig(change_weight=0.0))
    ranking = MEC(config, TableScorer(dict.fromkeys(range(10), 0.9))).rank(
        video, "What moves at night?", fps=1
    )
    evidence = dict(zip(ranking.frames.tolist(), ranking.evidence.tolist(), strict=True))
    assert min(evidence, key=evidence.get) == 5


def test_greedy_keeps_its_first_choice_even_where_a_pair_without_it_would_cover_more():
    """The best single frame sits in the middle; at K = 2 the two ends would cover the video better."""
    video = plain_video(101)
    scores = zero_elsewhere({50: 1.0, 0: 0.98, 100: 0.98})
    ranking = MEC(MECConfig(), TableScorer(scores)).rank(video, "Compare start and end", fps=10)
    assert ranking.prefix(2).frames.tolist() == [0, 50]
    without = MEC(MECConfig(), TableScorer(zero_elsewhere({0: 0.98, 100: 0.98}))).rank(
        video, "Compare", fps=10
    )
    assert without.prefix(2).frames.tolist() == [0, 100]
