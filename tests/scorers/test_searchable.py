"""Scorers that can search many videos, and the scale of their scores."""

import numpy as np
import pytest

from framenest import FrameBatch, Searchable
from framenest.scorers.calibration import certain

QUERY = "what is the red dog doing?"


def frames_for(scorer, count, seed=0):
    random = np.random.default_rng(seed)
    sizes = [spec.size(16, 9) for spec in scorer.inputs]
    pixels = tuple(random.integers(0, 256, (count, height, width, 3), np.uint8) for width, height in sizes)
    return FrameBatch(np.arange(count), np.arange(count) / 10, pixels)


@pytest.mark.parametrize("name", ["siglip2", "clip", "onnx", "blip2"])
def test_the_dot_product_orders_frames_as_the_model_does(tiny_scorer, name):
    """Of random-weight models: dual encoders score by it; BLIP-2 matches frames with the text once more."""
    scorer = tiny_scorer(name)
    assert isinstance(scorer, Searchable)
    encoded = scorer.encode(frames_for(scorer, 7))
    vectors, query = np.asarray(scorer.search_vectors(encoded)), np.asarray(scorer.search_query(QUERY))
    assert vectors.shape[0] == 7
    assert np.linalg.norm(vectors, axis=-1) == pytest.approx(np.ones(vectors.shape[:-1]), abs=1e-3)
    assert np.linalg.norm(query) == pytest.approx(1, abs=1e-3)
    sure = scorer.certainty(encoded, QUERY)
    assert ((sure >= 0) & (sure <= 1)).all()
    if name != "blip2":
        assert (np.argsort(vectors @ query) == np.argsort(sure)).all()


def test_certainty_does_not_depend_on_the_other_frames(tiny_scorer):
    """As relevance does, which is relative to the video."""
    scorer = tiny_scorer("siglip2")
    encoded = scorer.encode(frames_for(scorer, 9))
    alone = scorer.certainty({name: rows[3:4] for name, rows in encoded.items()}, QUERY)
    assert scorer.certainty(encoded, QUERY)[3] == pytest.approx(alone[0])
    few = {name: rows[:3] for name, rows in encoded.items()}
    assert scorer.match(encoded, QUERY)[0] != pytest.approx(scorer.match(few, QUERY)[0])


def test_levels_become_quarters():
    assert certain(np.array([0.64, 0.6]), (0.64, 0.6)) == pytest.approx([0.75, 0.25])
    assert certain(np.array([0.3]), None) == pytest.approx([0.3])


def test_tags_search_by_labels(tag_scorer):
    """A frame that the networks are sure is a cat matches "a cat" better than a dog's frame does."""
    names = tag_scorer._model().names
    count = len(names["classes"]) + len(names["objects"])
    encoded = {kind: np.full((2, len(listed)), 1e-5, np.float32) for kind, listed in names.items()}
    for row, animal in enumerate(("cat", "dog")):
        encoded["objects"][row, names["objects"].index(animal)] = 0.9
    vectors = tag_scorer.search_vectors(encoded)
    assert vectors.shape == (2, count)
    assert set(np.unique(vectors)) == {0, np.float32(0.9)}  # noise is dropped
    scores = {animal: vectors @ tag_scorer.search_query(f"a {animal}") for animal in ("cat", "dog")}
    assert scores["cat"][0] > 2 * scores["cat"][1]
    assert scores["dog"][1] > 2 * scores["dog"][0]
    sure = tag_scorer.certainty(encoded, "a cat")
    assert sure[0] > 0.5 > 0.25 > sure[1]
    assert tag_scorer.certainty({kind: rows[:1] for kind, rows in encoded.items()}, "a cat")[0] == sure[0]
