import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framenest.probes import interior, probe_count, probe_grid, segments

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
