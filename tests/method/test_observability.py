import math

import numpy as np

from framenest.config import IndexConfig
from framenest.method.cues import exposedness, observability, sharpness


def test_sharpness_of_a_step_by_hand():
    """One step of 1 in the middle of 20 pixels; a mean of 9 spreads it over 9 differences of 1/9.

    Lost is 1 − 1/9 at the step and nothing elsewhere: blur = (1 − 8/9)/1 = 1/9. Every row is equal, so
    there is no vertical variation, which counts as wholly blurred: β = 1, sharpness 0. Along one axis
    only the horizontal estimate is left, seen by transposing a pattern that varies along both.
    """
    row = np.repeat([0.0, 1.0], 10)
    step = np.tile(row, (20, 1))[None]
    assert sharpness(step, 9)[0] == 0
    both = np.maximum(step[0], step[0].T)[None]
    horizontal = vertical = (10 - 10 * 8 / 9) / 10
    assert np.isclose(sharpness(both, 9)[0], 1 - max(horizontal, vertical))


def test_flat_and_tiny_pictures_are_not_sharp():
    assert sharpness(np.full((1, 32, 57), 0.5), 9)[0] == 0
    assert sharpness(np.full((1, 1, 1), 0.5), 9)[0] == 0
    assert sharpness(np.random.default_rng(0).random((1, 1, 40)), 9)[0] == 0  # no vertical neighbours


def test_noise_is_sharper_than_its_blur():
    noise = np.random.default_rng(0).random((1, 32, 57))
    blurred = (noise + np.roll(noise, 1, 2) + np.roll(noise, 2, 2) + np.roll(noise, 1, 1)) / 4
    assert sharpness(noise, 9)[0] > sharpness(blurred, 9)[0] > 0


def test_exposedness_by_hand():
    """Intensities 0.5, 0.5 and 1 of one pixel: exp(0)·exp(0)·exp(−0.25/0.08)."""
    middle = round(0.5 * 255)
    pixel = np.array([[[[middle, middle, 255]]]], dtype=np.uint8)
    near = math.exp(-((middle / 255 - 0.5) ** 2) / 0.08)
    assert np.isclose(exposedness(pixel, 0.5, 0.2)[0], near * near * math.exp(-0.25 / 0.08))
    black_and_gray = np.array([[[[0, 0, 0], [middle, middle, middle]]]], dtype=np.uint8)
    assert np.isclose(exposedness(black_and_gray, 0.5, 0.2)[0], (math.exp(-0.25 / 0.08) ** 3 + near**3) / 2)


def test_observability_is_the_product():
    thumbnails = np.random.default_rng(1).integers(0, 256, (5, 32, 57, 3), dtype=np.uint8)
    from framenest.method.cues import gray

    expected = sharpness(gray(thumbnails), 9) * exposedness(thumbnails, 0.5, 0.2)
    assert observability(thumbnails, IndexConfig()).dtype == np.float32
    assert np.allclose(observability(thumbnails, IndexConfig()), expected)
    assert (
        (observability(thumbnails, IndexConfig()) >= 0) & (observability(thumbnails, IndexConfig()) <= 1)
    ).all()
