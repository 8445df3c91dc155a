"""The schedule, coverage and diversity by hand; the fast ranking against Algorithm 1 written literally."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framenest.config import RankingConfig
from framenest.method.cues import encode
from framenest.method.ordering import coverage, diversity, evidence_weight, greedy


def algorithm_1(frames, evidence, appearance, num_frames, config):
    """The paper's pseudocode, line by line, over Python numbers."""
    pool = list(range(len(frames)))
    values = [float(e) for e in evidence]
    vectors = [[float(x) for x in vector] for vector in appearance]
    horizon = min(config.horizon, len(pool))

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    def first_best(scored):
        top = max(score for score, _ in scored)
        return next(n for score, n in scored if score == top)

    ranking = [first_best([(values[n], n) for n in pool])]
    utilities = [values[ranking[0]]]
    for k in range(2, horizon + 1):
        low, high = config.evidence_weight_end, config.evidence_weight_start
        w_e = low + (high - low) * (1 - (k / horizon) ** config.gamma)
        w_c = 1 - w_e - config.diversity_weight
        scored = []
        for n in pool:
            if n in ranking:
                continue
            distance = min(abs(int(frames[n]) - int(frames[m])) for m in ranking)
            h = min(1, distance / (num_frames / k)) if config.coverage_term else 0
            d = 1 - max(dot(vectors[n], vectors[m]) for m in ranking)
            scored.append((w_e * values[n] + w_c * h + config.diversity_weight * d, n))
        ranking.append(first_best(scored))
        utilities.append(next(score for score, n in scored if n == ranking[-1]))
    return ranking, utilities


def test_evidence_weight_by_hand():
    paper = RankingConfig()
    assert evidence_weight(256, paper, 256) == pytest.approx(0.2)
    assert evidence_weight(64, paper, 256) == pytest.approx(0.5)
    late = RankingConfig(gamma=2.0)
    assert evidence_weight(128, late, 256) == pytest.approx(0.2 + 0.4 * 0.75)
    static = RankingConfig(evidence_weight_start=0.4, evidence_weight_end=0.4)
    assert {evidence_weight(k, static, 256) for k in (1, 100, 256)} == {0.4}


def test_coverage_by_hand():
    """N = 100, k = 4: a gap of 25 frames or more is fully uncovered."""
    assert coverage(np.array([0.0, 5.0, 25.0, 60.0]), 100, 4).tolist() == [0, 0.2, 1, 1]


def test_diversity_by_hand():
    assert diversity(np.array([1.0, 0.25])).tolist() == [0, 0.75]


def test_three_ranks_by_hand():
    """Frames 0, 50, 99 of N = 100, evidence 0.5, 0.4, 0.3, M = 3, all looks orthogonal.

    r1 = 0. k = 2: w_e = 0.2 + 0.4·(1 − 2/3) = 1/3, w_c = 7/15. H = min(1, 50/50) = 1 and 1, D = 1 and 1:
    u = 0.4/3 + 7/15 + 0.2 = 0.8 for 50 and 0.3/3 + 7/15 + 0.2 = 0.7667 for 99. r2 = 50, r3 = 99.
    k = 3: w_e = 0.2, w_c = 0.6, H = min(1, 49/33.33) = 1: u = 0.06 + 0.6 + 0.2 = 0.86.
    """
    result = greedy(
        np.array([0, 50, 99]),
        np.array([0.5, 0.4, 0.3], np.float32),
        np.eye(3, dtype=np.float32),
        100,
        RankingConfig(),
    )
    assert result.order.tolist() == [0, 1, 2]
    assert result.terms["utility"] == pytest.approx([0.5, 0.8, 0.86])
    assert result.terms["coverage"].tolist() == [1, 1, 1]
    assert result.terms["diversity"].tolist() == [1, 1, 1]


pools = st.integers(0, 2**32 - 1)
CONFIGS = [
    RankingConfig(),
    RankingConfig(horizon=5),
    RankingConfig(horizon=1),
    RankingConfig(evidence_weight_start=0.2, evidence_weight_end=0.6),
    RankingConfig(evidence_weight_start=1.0, evidence_weight_end=1.0, diversity_weight=0.0),
    RankingConfig(gamma=1.5),
    RankingConfig(coverage_term=False),
]


def random_pool(seed):
    """A pool with everything that is awkward: ties, equal looks, black frames, few frames, one frame."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([1, 2, 3, 8, 25]))
    num_frames = int(rng.integers(size, 400))
    frames = np.sort(rng.choice(num_frames, size, replace=False))
    evidence = rng.random(size).astype(np.float32)
    if rng.random() < 0.5:
        evidence = np.round(evidence * 3).astype(np.float32) / np.float32(4)
    thumbnails = rng.integers(0, 256, (size, 3, 4, 3), dtype=np.uint8)
    if rng.random() < 0.5:
        thumbnails = thumbnails[rng.integers(0, size, size)]
    if rng.random() < 0.3:
        thumbnails[rng.random(size) < 0.5] = 0
    return frames, evidence, encode(thumbnails), num_frames


@settings(max_examples=400, deadline=None)
@given(pools, st.sampled_from(CONFIGS))
def test_the_fast_ranking_is_algorithm_1(seed, config):
    frames, evidence, appearance, num_frames = random_pool(seed)
    expected, utilities = algorithm_1(frames, evidence, appearance, num_frames, config)
    result = greedy(frames, evidence, appearance, num_frames, config)
    assert result.order.tolist() == expected
    assert result.terms["utility"] == pytest.approx(utilities, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(pools)
def test_every_frame_is_ranked_once(seed):
    frames, evidence, appearance, num_frames = random_pool(seed)
    order = greedy(frames, evidence, appearance, num_frames, RankingConfig()).order
    assert sorted(order.tolist()) == list(range(len(frames)))


def test_all_equal_candidates_spread_out_and_ties_go_to_the_earlier():
    """Frames 0, 10, 20, 30, 40 of N = 50, all alike. k = 2: H = 1 for 30 and 40 (25 away or more): 30.

    k = 3: 10, 20 and 40 are 10 away from a chosen one: 10. k = 4: 20 and 40 likewise: 20. Then 40.
    """
    frames = np.arange(5) * 10
    alike = np.ones((5, 1), np.float32)
    result = greedy(frames, np.full(5, 0.5, np.float32), alike, 50, RankingConfig())
    assert frames[result.order].tolist() == [0, 30, 10, 20, 40]


def test_ranking_a_paper_sized_pool_matches_the_literal_algorithm_at_the_first_ranks():
    rng = np.random.default_rng(0)
    frames = np.sort(rng.choice(40_000, 120, replace=False))
    evidence = rng.random(120).astype(np.float32)
    appearance = encode(rng.integers(0, 256, (120, 8, 14, 3), dtype=np.uint8))
    config = RankingConfig(horizon=32)
    expected, _ = algorithm_1(frames, evidence, appearance, 40_000, config)
    assert greedy(frames, evidence, appearance, 40_000, config).order.tolist() == expected
