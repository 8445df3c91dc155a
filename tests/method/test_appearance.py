import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from framenest.method import cues
from framenest.method.cues import GRID, change, encode, gray


def picture(*rows):
    """A thumbnail from gray levels."""
    return np.array(rows, dtype=np.uint8)[..., None].repeat(3, axis=-1)


def test_gray_by_hand():
    pixel = np.array([[[[100, 150, 200]]]], dtype=np.uint8)
    assert np.isclose(gray(pixel)[0, 0, 0], (29.9 + 88.05 + 22.8) / 255)


def test_encode_by_hand():
    """(3, 4) has length 5: (0.6, 0.8)."""
    vector = encode(picture([30, 40])[None])
    assert vector.dtype == np.float32
    assert np.allclose(vector, [[0.6, 0.8]], atol=1e-7)


def test_black_and_any_other_flat_thumbnail_look_the_same():
    flat = encode(
        np.stack([picture([0, 0], [0, 0]), picture([9, 9], [9, 9]), picture([255, 255], [255, 255])])
    )
    assert np.allclose(flat, 0.5, atol=1e-7)


def test_change_by_hand():
    """Unit vectors at 0°, 90° and 0°: the distance of neighbours is √2, half of it 0.707."""
    vectors = np.array([[1, 0], [0, 1], [1, 0], [1, 0]], dtype=np.float32)
    probes = np.array([0, 10, 20, 30])
    expected = [2**0.5 / 2, 2**0.5 / 2, 2**0.5 / 2, 0]
    assert np.allclose(change(probes, vectors, probes, vectors), expected)


def test_change_of_a_zoom_frame_looks_at_the_probes_around_it_only():
    probes, on_grid = np.array([0, 10]), np.array([[1, 0], [1, 0]], dtype=np.float32)
    zoomed = change(np.array([4, 5]), np.array([[0, 1], [0, 1]], dtype=np.float32), probes, on_grid)
    assert np.allclose(zoomed, 2**0.5 / 2)


def test_a_lone_probe_does_not_change():
    assert change(np.array([0]), np.ones((1, 1), np.float32), np.array([0]), np.ones((1, 1), np.float32)) == 0


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_similarities_are_exact_whatever_the_order_of_summation(seed, count):
    rng = np.random.default_rng(seed)
    vectors = encode(rng.integers(0, 256, (count, 8, 14, 3), dtype=np.uint8)).astype(np.float64)
    assert (vectors * GRID == np.floor(vectors * GRID)).all()
    shuffled = vectors[:, rng.permutation(vectors.shape[1])]
    assert (vectors @ vectors.T == shuffled @ shuffled.T).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_similarities_are_the_same_bits_all_at_once_and_row_by_row(monkeypatch):
    vectors = cues.encode(np.random.default_rng(3).integers(0, 256, (50, 6, 8, 3), dtype=np.uint8))
    at_once = cues.similarity_rows(vectors)
    monkeypatch.setattr(cues, "MATRIX_CANDIDATES", 10)
    by_row = cues.similarity_rows(vectors)
    for row in range(50):
        assert at_once(row).tobytes() == by_row(row).tobytes()
