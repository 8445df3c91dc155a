import numpy as np
import pytest

from framenest.config import DiscoveryConfig
from framenest.method.discovery import activate, anchors, evidence, zoom


def scores(*values):
    return np.array(values, dtype=np.float32)


def test_evidence_by_hand():
    """0.7·0.5 + 0.2·0.25 + 0.1·1 = 0.5."""
    cues = {"relevance": scores(0.5), "change": scores(0.25), "observability": scores(1.0)}
    assert np.isclose(evidence(cues, DiscoveryConfig())[0], 0.5)


def test_activation_takes_the_best_quarter_by_mean():
    """Segment means 0.1, 0.4, 0.2, 0.3: ⌈0.25·4⌉ = 1 is segment 1, ⌈0.5·4⌉ = 2 are 1 and 3."""
    values = scores(0.1, 0.1, 0.8, 0.0, 0.2, 0.2, 0.3, 0.3)
    assert activate(values, 2, 0.25) == [1]
    assert activate(values, 2, 0.5) == [1, 3]
    assert activate(values, 2, 0.26) == [1, 3]  # ⌈1.04⌉
    assert activate(values, 2, 1.0) == [0, 1, 2, 3]


def test_activation_is_not_moved_up_by_rounding():
    """0.1·30 is 3.0000000000000004 in floats; it means 3 segments."""
    assert len(activate(np.zeros(30, np.float32), 1, 0.1)) == 3


def test_ties_go_to_the_earlier_segment_and_probe():
    assert activate(np.ones(16, np.float32), 4, 0.5) == [0, 1]
    assert anchors(scores(0.1, 0.5, 0.5, 0.1, 0.7, 0.7), [0, 1], 4, 1) == [1, 4]


def test_several_anchors_in_a_segment():
    assert anchors(scores(0.1, 0.5, 0.9, 0.2), [0], 4, count=2) == [1, 2]


def test_zoom_by_hand():
    """Around probe 20: 13, 17 before (10 + 10/3, 10 + 20/3) and 23, 27 after."""
    probes = np.array([0, 10, 20, 30])
    assert zoom(probes, [2], 2).tolist() == [13, 17, 23, 27]


def test_zoom_at_the_edges_uses_the_side_that_exists():
    probes = np.array([0, 10, 20])
    assert zoom(probes, [0], 2).tolist() == [3, 7]
    assert zoom(probes, [2], 2).tolist() == [13, 17]
    assert zoom(np.array([5]), [0], 2).tolist() == []


def test_neighbouring_anchors_share_an_interval_once():
    assert zoom(np.array([0, 10, 20, 30]), [1, 2], 2).tolist() == [3, 7, 13, 17, 23, 27]


def test_zoom_never_returns_a_probe():
    probes = np.array([0, 1, 3, 6])
    assert zoom(probes, [0, 1, 2, 3], 2).tolist() == [2, 4, 5]


@pytest.mark.parametrize("seed", range(5))
def test_the_paper_pool_has_at_most_640_candidates(seed):
    """512 probes, 32 of 128 segments active, at most 4 zoom frames an anchor."""
    rng = np.random.default_rng(seed)
    probes = np.sort(rng.choice(50_000, 512, replace=False))
    values = rng.random(512).astype(np.float32)
    chosen = anchors(values, activate(values, 4, 0.25), 4, 1)
    assert len(chosen) == 32
    assert len(zoom(probes, chosen, 2)) <= 128
