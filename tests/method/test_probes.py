from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framenest.config import IndexConfig
from framenest.method.index import (
    choose_probes,
    fill_gaps,
    interior,
    probe_count,
    probe_grid,
    segments,
    snap_to_keys,
)
from framenest.testing import ArrayDecoder

PAPER = {"base": 256, "extra": 256, "saturation": 1800.0}


@pytest.mark.parametrize(
    ("num_frames", "duration", "expected"),
    [
        (54_000, 1800.0, 512),  # 256 + 1·256
        (108_000, 3600.0, 512),  # saturated
        (27_000, 900.0, 384),  # 256 + 0.5·256
        (300, 10.0, 257),  # 256 + 10/1800·256 = 257.42
        (100, 4.0, 100),  # fewer frames than probes
        (1, 0.04, 1),
    ],
)
def test_probe_count_by_hand(num_frames, duration, expected):
    assert probe_count(num_frames, duration, **PAPER) == expected


def test_probe_grid_by_hand():
    """round(i·9/4) for i = 0..4 is 0, 2.25, 4.5, 6.75, 9; the half goes up."""
    assert probe_grid(0, 9, 5).tolist() == [0, 2, 5, 7, 9]
    assert probe_grid(100, 109, 5).tolist() == [100, 102, 105, 107, 109]
    assert probe_grid(7, 7, 1).tolist() == [7]
    assert probe_grid(3, 9, 1).tolist() == [3]


@given(st.integers(1, 5000), st.data())
def test_probe_grid_is_distinct_ascending_and_reaches_both_ends(num_frames, data):
    count = data.draw(st.integers(1, num_frames))
    grid = probe_grid(0, num_frames - 1, count)
    assert len(grid) == count
    assert grid[0] == 0
    assert (np.diff(grid) > 0).all()
    if count > 1:
        assert grid[-1] == num_frames - 1


def test_segments_by_hand():
    assert [(s.start, s.stop) for s in segments(10, 4)] == [(0, 4), (4, 8), (8, 10)]
    assert [(s.start, s.stop) for s in segments(3, 4)] == [(0, 3)]
    assert len(segments(512, 4)) == 128


def test_interior_by_hand():
    """10 + 10/3 = 13.33 → 13 and 10 + 20/3 = 16.67 → 17."""
    assert interior(10, 20, 2).tolist() == [13, 17]
    assert interior(0, 4, 1).tolist() == [2]
    assert interior(0, 5, 1).tolist() == [3]  # 2.5 goes up
    assert interior(10, 11, 2).tolist() == []
    assert interior(10, 12, 2).tolist() == [11]
    assert interior(10, 13, 2).tolist() == [11, 12]
    assert interior(10, 20, 0).tolist() == []


@given(st.integers(0, 10_000), st.integers(1, 500), st.integers(0, 8))
def test_interior_points_are_distinct_and_strictly_between(a, width, count):
    points = interior(a, a + width, count)
    assert len(points) == min(count, width - 1)
    assert len(set(points.tolist())) == len(points)
    assert all(a < p < a + width for p in points.tolist())


def snapped(grid, keys):
    return snap_to_keys(np.array(grid), np.array(keys, dtype=np.int64)).tolist()


def test_probes_move_to_the_nearest_key_frame_of_their_cell():
    """Cells of 0, 10, 20, 30 end at 5, 15, 25: 12 is nearer to 10 than 14; cell 20 has none."""
    assert snapped([0, 10, 20, 30], [0, 12, 14, 29]) == [0, 12, 29]
    assert snapped([0, 10, 20], [4, 5, 6]) == [4, 6]  # 5 is a midpoint and belongs to the right cell
    assert snapped([0, 10, 20], [8, 12]) == [8]  # a tie goes to the earlier
    assert snapped([7], [0, 50]) == [7]
    assert snapped([78, 79, 80, 81], [0, 250]) == [78, 79, 80, 81]  # no key frame in reach at all


def test_a_gap_of_more_than_four_intervals_keeps_its_middle_probe():
    """Keys only at 0 and 100, probes every 10: the gap of ten intervals keeps 50, then more on each side."""
    kept = snapped(range(0, 101, 10), [0, 100])
    assert kept[0] == 0
    assert kept[-1] == 100
    assert 50 in kept
    assert max(np.diff(kept)) <= 40
    assert snapped(range(0, 41, 10), [0, 40]) == [0, 40]  # exactly four intervals may stay open


@given(st.integers(2, 60), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_key_frame_probes_are_keys_or_grid_points_and_leave_no_long_gap(count, step, seed):
    rng = np.random.default_rng(seed)
    grid = np.arange(count) * step
    keys = np.unique(rng.integers(0, grid[-1] + 1, int(rng.integers(1, count + 1))))
    probes = snap_to_keys(grid, keys)
    assert (np.diff(probes) > 0).all()
    assert set(probes.tolist()) <= set(keys.tolist()) | set(grid.tolist())
    assert len(probes) <= count
    gaps = np.diff([grid[0], *probes, grid[-1]])
    assert gaps.max() <= 4 * step + step  # a key may lie half an interval off its probe at either end


@given(
    gaps=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=200),
    count=st.integers(1, 20),
    most=st.floats(0.5, 10.0),
)
def test_no_gap_is_longer_than_asked_where_frames_exist(gaps, count, most):
    seconds = np.concatenate([[0.0], np.cumsum(gaps)])
    grid = probe_grid(0, len(seconds) - 1, min(count + 1, len(seconds)))
    probes = fill_gaps(grid, seconds, most)
    assert set(grid.tolist()) <= set(probes.tolist())
    assert (np.diff(probes) > 0).all()
    for before, after in pairwise(probes.tolist()):
        assert seconds[after] - seconds[before] <= most * (1 + 1e-6) or after == before + 1


def test_max_gap_makes_as_many_probes_as_it_takes():
    clip = ArrayDecoder(np.zeros((1000, 4, 4, 3), np.uint8), fps=10)
    few = IndexConfig(base_probes=8, extra_probes=0)
    window, probes = choose_probes(clip, few)
    assert len(probes) == 8
    for probing in ("uniform", "keyframes"):
        _, probes = choose_probes(clip, replace(few, max_gap=2.0, probing=probing))
        assert 51 <= len(probes) <= 52  # 99.9 s in steps of at most 2
        assert np.diff(clip.seconds[probes]).max() <= 2.0 + 1e-9
    assert window == (0, 999)
