"""The rivals' inner rules against outputs of their released code, and by hand where it says more."""

import json
from pathlib import Path

import numpy as np
import pytest

from framenest.selectors import published_rules as rules

HERE = json.loads(Path(__file__).with_name("golden.json").read_text())
SHARED = Path(__file__).resolve().parents[3] / "shared" / "vectors"


def cases(name):
    """A few cases everywhere, all of them where the collection lies beside the checkout."""
    file = SHARED / f"{name}.json"
    return json.loads(file.read_text())["cases"] if file.exists() else HERE[name]


def test_aks():
    for case in cases("aks"):
        assert case["t2"] == -100  # off
        scores = np.array(case["scores"])
        found = rules.aks(scores, case["K"], depth=case["all_depth"], threshold=case["t1"])
        assert [case["frame_numbers"][i] for i in found] == case["selected_frame_numbers"]


def test_aks_by_hand():
    """Constant scores split to the maximum depth: one frame from each of eight bins of five."""
    assert rules.aks(np.full(40, 0.5), 8, depth=3).tolist() == [0, 5, 10, 15, 20, 25, 30, 35]
    assert rules.aks(np.random.default_rng(0).random(100), 8).tolist() == []  # as released: ⌊8/32⌋ = 0
    assert rules.aks(np.array([0.1, 0.9]), 8).tolist() == [0, 1]


def test_bolt():
    for case in cases("bolt"):
        assert (
            rules.bolt(np.array(case["scores"]), case["K"], power=case["power"]).tolist() == case["selected"]
        )


def test_bolt_by_hand():
    """Scores 0, 1, 0, 1: half of the mass at 1, half at 3; points 1/4, 5/12, 7/12, 3/4."""
    assert rules.bolt(np.array([0.0, 1.0, 0.0, 1.0]), 4).tolist() == [1, 1, 3, 3]


def test_mdp3():
    """Every golden case: the whole video as one segment, and segments of 32."""
    for case in cases("mdp3"):
        vectors = np.array(case["frame_embeds"]), np.array(case["text_embed"])
        assert (case["lambda_"], tuple(case["alphas"])) == (rules.MDP3_WEIGHT, rules.WIDTHS)
        if case.get("segment_size", -1) == -1:
            found = rules.mdp3(*vectors, case["K"])
        else:
            found = rules.mdp3_segments(*vectors, case["K"], case["segment_size"])
        assert sorted(found.tolist()) == sorted(case["selected"])


def test_mdp3_with_one_segment_is_the_greedy_rule():
    rng = np.random.default_rng(1)
    frames, text = rng.standard_normal((40, 8)), rng.standard_normal(8)
    assert rules.mdp3_segments(frames, text, 9, 40).tolist() == sorted(rules.mdp3(frames, text, 9).tolist())


def by_trying_all(frames, text, count, segment):
    """MDP3 in segments, written down from its description: the table of dynamic programming, each worth
    by numpy's own determinant."""
    near = rules._multi_gaussian(frames, frames)
    asked = 10 * np.log(rules._multi_gaussian(frames, text[None])[:, 0])

    def worth(chosen):
        return asked[chosen].sum() + np.linalg.slogdet(near[np.ix_(chosen, chosen)])[1]

    table = {0: (0.0, [])}
    for start in range(0, len(frames), segment):
        made = {}
        for before, (value, chosen) in table.items():
            given, added = chosen[-1:], []
            while True:
                total = value + (worth(given + added) if added else 0.0)
                number = before + len(added)
                if number not in made or total > made[number][0]:
                    made[number] = total, chosen + sorted(added)
                left = [i for i in range(start, min(start + segment, len(frames))) if i not in added]
                if not left or number == count:
                    break
                added.append(max(left, key=lambda i: worth(given + added + [i])))
        table = made
    return table[count][1]


@pytest.mark.parametrize("seed", range(4))
def test_mdp3_in_segments_as_described(seed):
    """Also where the last segment is shorter, and more frames are wanted than a segment has."""
    rng = np.random.default_rng(seed)
    frames = rng.standard_normal((19, 6)) / 2
    for count in (1, 5, 12):
        found = rules.mdp3_segments(frames, frames[3], count, 8).tolist()
        assert found == by_trying_all(frames, frames[3], count, 8)


def test_mdp3_prefixes_nest():
    rng = np.random.default_rng(0)
    frames, text = rng.standard_normal((50, 8)), rng.standard_normal(8)
    long = rules.mdp3(frames, text, 20).tolist()
    assert rules.mdp3(frames, text, 7).tolist() == long[:7]


def test_mdp3_ranks_all_frames_once_even_where_looks_repeat():
    rng = np.random.default_rng(0)
    frames = rng.standard_normal((3, 4))[np.repeat(np.arange(3), 10)]
    order = rules.mdp3(frames, rng.standard_normal(4), 64).tolist()
    assert sorted(order) == list(range(30))
    assert len({n // 10 for n in order[:3]}) == 3
    assert rules.mdp3(frames, rng.standard_normal(4), 16).tolist() != list(range(16))


def test_mdp3_does_not_take_the_same_look_twice():
    frames = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert rules.mdp3(frames, np.array([1.0, 0.0]), 2).tolist() == [0, 2]


def test_wfs_sb():
    for case in cases("wfs_sb"):
        scores = np.array(case["scores"])
        features = None if case["features"] is None else np.array(case["features"])
        assert rules.wfs_sb(scores, case["K"], features).tolist() == case["selected"]
        if case["detail_signal"]:
            assert rules.level(len(scores)) == case["dwt_level"]
            detail = rules.detail(scores, case["dwt_level"])
            assert np.allclose(detail, np.abs(case["detail_signal"]), atol=1e-8)
            distance = max(5, int(0.02 * len(scores)))
            peaks = rules.boundaries(detail, distance)
            assert peaks.tolist() == case["peaks"]


def test_wfs_sb_of_a_flat_signal_is_half_even_half_best():
    """No boundaries: 0 and 19 evenly, then the earliest of equal scores."""
    assert rules.wfs_sb(np.full(20, 0.5), 4).tolist() == [0, 1, 2, 19]


def test_share_out_by_hand():
    """Equal clips share 7 as 3, 2, 2; the one left over goes to a largest fraction."""
    assert sorted(rules.share_out(np.zeros(3), 7)) == [2, 2, 3]


def test_peaks_by_hand():
    signal = np.array([0, 1, 0, 3, 3, 0, 2, 0], dtype=float)
    assert rules._local_maxima(signal) == [1, 3, 6]
    assert rules._prominence(signal, 6) == 2
    assert rules._far_apart(signal, [1, 3, 6], 4) == [3]
    assert rules._far_apart(signal, [1, 3, 6], 3) == [3, 6]


def test_facility_location_by_hand():
    """Two look-alikes and one apart, equal relevance: first a look-alike (stands for two), then the other."""
    similarity = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=float)
    found = rules.facility_location(np.full(3, 0.5), similarity, 3, alpha=0.5, beta=1.0)
    assert found.tolist() == [0, 2, 1]
    relevant = rules.facility_location(np.array([0.0, 0.0, 1.0]), similarity, 1, alpha=1.0, beta=0.0)
    assert relevant.tolist() == [2]


def test_min_gap_by_hand():
    """Of 0, 4, 9, 10, 30 s: 4 s is best; 30 s is the only one 10 s away; then 5 s apart is enough."""
    seconds = np.array([0.0, 4.0, 9.0, 10.0, 30.0])
    evidence = np.array([0.5, 0.9, 0.5, 0.4, 0.1])
    assert rules.min_gap(seconds, evidence, 5).tolist() == [1, 4, 2, 0, 3]
    assert rules.min_gap(seconds, evidence, 2).tolist() == [1, 4]
    assert rules.min_gap(seconds, np.full(5, 0.5), 3).tolist() == [0, 3, 4]  # 10 s is not within 10 s
    assert rules.min_gap(np.zeros(3), np.array([0.1, 0.3, 0.2]), 9).tolist() == [1, 2, 0]


def test_top_k_ties_go_to_the_earlier():
    assert sorted(rules.top_k(np.array([0.5, 0.9, 0.5, 0.9]), 3).tolist()) == [0, 1, 3]


@pytest.mark.parametrize("size", [1, 2, 6, 7, 8, 13, 50])
@pytest.mark.parametrize("budget", [1, 2, 8])
def test_rules_hold_on_tiny_and_constant_signals(size, budget):
    for scores in (np.full(size, 0.3), np.random.default_rng(size).random(size)):
        chosen = rules.wfs_sb(scores, budget)
        assert len(set(chosen.tolist())) == min(size, budget)
        assert len(rules.aks(scores, budget, depth=0)) == min(size, budget)
        assert len(rules.bolt(scores, budget)) == budget
