"""Frames passed on the way to others: which are, how many are held, and that each comes out as it went in."""

import numpy as np
import pytest

from framenest import ImageSpec
from framenest.scorers.video_features import HeldPictures, on_the_way
from framenest.testing import ArrayDecoder

SIZES = [ImageSpec.short_side(4), ImageSpec.squash(8, 8)]


@pytest.fixture
def video():
    return ArrayDecoder(np.random.default_rng(0).integers(0, 256, (40, 36, 64, 3), np.uint8), 5)


@pytest.mark.parametrize(
    ("wanted", "others", "expected"),
    [
        ([40, 80], [10, 60], [10, 60]),  # between the key frame and what is wanted
        ([80], [81, 89], [81, 89]),  # nine frames more than 81: little
        ([80], [81, 95], []),  # 15 more than 81: too many, so none of those behind
        ([80, 180], [95, 170], [95, 170]),  # 15 more than 162: little
        ([80, 180], [99, 170, 199], [170]),  # 38 more than 162
        ([80, 180], [105], [105]),  # before the wanted one of the next group
        ([80], [105, 170], []),  # a group of pictures that nobody wants
        ([], [5], []),
    ],
)
def test_what_is_on_the_way(wanted, others, expected):
    keys = np.array([0, 100])
    found = on_the_way(keys, np.array(wanted, np.int64), np.array(others, np.int64))
    assert found.tolist() == expected


def test_nothing_is_on_the_way_where_every_frame_is_a_key_frame():
    assert on_the_way(np.arange(50), np.array([10, 20]), np.array([9, 15, 21])).tolist() == []


def test_frames_come_out_as_they_went_in_and_once(video):
    held = HeldPictures(video.info, SIZES)
    batch = next(video.read([3, 5, 7, 9], sizes=SIZES))
    held.hold(batch)
    assert held.nbytes == sum(pixels.nbytes for pixels in batch.pixels)
    taken = held.take(np.array([4, 5, 9]))
    expected = next(video.read([5, 9], sizes=SIZES))
    assert taken.frames.tolist() == [5, 9]
    assert taken.seconds.tolist() == expected.seconds.tolist()
    for one, other in zip(taken.pixels, expected.pixels, strict=True):
        assert one.tobytes() == other.tobytes()
    assert held.take(np.array([5, 9])) is None
    assert held.nbytes == sum(pixels.nbytes for pixels in batch.pixels) // 2


def test_as_many_as_there_is_room_for_are_spread_evenly(video):
    each = 3 * (7 * 4 + 8 * 8)
    held = HeldPictures(video.info, SIZES, most=5 * each)
    assert held.affordable(np.arange(5)).tolist() == [0, 1, 2, 3, 4]
    assert held.affordable(np.arange(9)).tolist() == [0, 2, 4, 6, 8]
    held.hold(next(video.read([1, 2, 3], sizes=SIZES)))
    assert held.affordable(np.arange(9)).tolist() == [0, 8]
    held.hold(next(video.read([4, 5], sizes=SIZES)))
    assert held.affordable(np.arange(9)).tolist() == []
