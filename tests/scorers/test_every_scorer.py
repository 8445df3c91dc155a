"""What every scorer must do, over each of them; those that need weights have tiny random ones."""

from __future__ import annotations

import functools
import re
import warnings

import numpy as np
import pytest

from framenest import FrameBatch
from framenest.config import ScorerConfig
from framenest.protocols import (
    Batcher,
    Explainer,
    Grader,
    Holder,
    Judge,
    Labeller,
    Scorer,
    ScorerLoader,
    Searchable,
)
from framenest.scorers.checkpoint import CutQuestion
from framenest.scorers.feature_store import FEATURES_HEADER, Features
from framenest.scorers.table import TableScorer
from framenest.session import scorer_name

NAMES = ["table", "tags", "blip2", "siglip2", "clip", "onnx", "qwen3-vl-reranker", "ocr"]
ABILITIES = (Batcher, Explainer, Grader, Holder, Judge, Labeller, Searchable)
MODELS = ["blip2", "siglip2", "clip", "onnx", "qwen3-vl-reranker"]


@functools.cache
def reader():
    """The real one; it takes seconds to load."""
    from framenest.scorers.ocr import OcrScorer

    return OcrScorer()


@pytest.fixture
def make(request, tiny_scorer):
    def made(name, config=None):
        if name == "table":
            return TableScorer({0: 0.5, 2: 1.0})
        if name == "tags":
            return request.getfixturevalue("tag_scorer")
        if name == "ocr":
            pytest.importorskip("rapidocr", reason="needs the extra `tags`")
            pytest.importorskip("rapidfuzz", reason="needs the extra `tags`")
            return reader()
        return tiny_scorer(name, config or ScorerConfig(device="cpu"))

    return made


def batch(scorer, count, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [spec.size(64, 48) for spec in scorer.inputs]
    pixels = tuple(rng.integers(0, 256, (count, h, w, 3), dtype=np.uint8) for w, h in sizes)
    return FrameBatch(np.arange(count), np.arange(count) / 10, pixels)


def rows(encoded, which):
    return {name: array[which] for name, array in encoded.items()}


@pytest.mark.parametrize("name", NAMES)
class TestEveryScorer:
    def test_shapes_range_and_type(self, make, name):
        scorer = make(name)
        assert isinstance(scorer, Scorer)
        encoded = scorer.encode(batch(scorer, 5))
        assert all(len(array) == 5 for array in encoded.values())
        relevance = scorer.match(encoded, "what is the dog doing?", reference=encoded)
        assert relevance.shape == (5,)
        assert relevance.dtype == np.float32
        assert ((relevance >= 0) & (relevance <= 1)).all()

    def test_no_frames_and_one_frame(self, make, name):
        scorer = make(name)
        empty, one = scorer.encode(batch(scorer, 0)), scorer.encode(batch(scorer, 1))
        for key, array in one.items():
            assert len(empty[key]) == 0
            assert empty[key].shape[1:] == array.shape[1:]
            assert np.asarray(empty[key]).dtype == np.asarray(array).dtype
        assert scorer.match(one, "a dog", reference=one).shape == (1,)

    def test_the_same_again(self, make, name):
        scorer, again = make(name), make(name)
        first = scorer.match(scorer.encode(batch(scorer, 4)), "the red dog")
        assert (again.match(again.encode(batch(again, 4)), "the red dog") == first).all()
        assert (scorer.name, scorer.version) == (again.name, again.version)

    def test_batch_size_does_not_matter(self, make, name):
        """To 1e-5: sums in another order."""
        scorer = make(name)
        whole = scorer.encode(batch(scorer, 5))
        for row in range(5):
            frames = batch(scorer, 5)
            picked = tuple(p[[row]] for p in frames.pixels)
            alone = scorer.encode(FrameBatch(frames.frames[[row]], frames.seconds[[row]], picked))
            for key, array in alone.items():
                mine, other = (np.asarray(a, np.float64) for a in (array[0], whole[key][row]))
                assert np.allclose(mine, other, atol=2e-3 if key == "vision" else 1e-5)

    def test_a_frames_relevance_depends_on_itself_and_the_probes_alone(self, make, name):
        scorer = make(name)
        encoded = scorer.encode(batch(scorer, 6))
        together = scorer.match(encoded, "a red dog", reference=encoded)
        some = scorer.match(rows(encoded, slice(4, 6)), "a red dog", reference=encoded)
        assert np.allclose(some, together[4:], atol=1e-5)

    @pytest.mark.parametrize("question", ["", "?", "word " * 500, "Где собака?", "猫在哪里？", "🐈"])
    def test_odd_questions(self, make, name, question):
        scorer = make(name)
        encoded = scorer.encode(batch(scorer, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CutQuestion)
            relevance = scorer.match(encoded, question)
        assert np.isfinite(relevance).all()

    def test_kept_equals_fresh(self, make, name, tmp_path):
        from framenest.cache.directory import DirectoryStore

        scorer, store = make(name), DirectoryStore(tmp_path)
        fresh = scorer.encode(batch(scorer, 4))
        features = Features(np.arange(4), np.zeros((4, 2, 2, 3), np.uint8), fresh)
        store.put("features/ab", FEATURES_HEADER, features.arrays())
        kept = Features.from_parts(*store.get("features/ab")).encoded
        kept = scorer.hold(kept) if isinstance(scorer, Holder) else kept
        for question in ("what is the dog doing?", "red"):
            assert (scorer.match(kept, question) == scorer.match(fresh, question)).all()

    def test_abilities_are_declared(self, make, name):
        """What the program finds with isinstance, and nothing that only looks like it."""
        scorer = make(name)
        abilities = {kind.__name__ for kind in ABILITIES if isinstance(scorer, kind)}
        assert isinstance(type(scorer), ScorerLoader)
        assert "Explainer" in abilities
        assert ("Labeller" in abilities) == (name == "tags")
        assert ("Judge" in abilities) == ("Grader" in abilities) == (name != "ocr")
        assert ("Searchable" in abilities) == (name in ("tags", "blip2", "siglip2", "clip", "onnx"))
        assert ("Holder" in abilities) == (name == "blip2")
        assert ("Batcher" in abilities) == (name not in ("table", "ocr"))

    def test_it_says_how_its_numbers_came_about(self, make, name):
        text = scorer_name(make(name))
        assert text.startswith(name)
        if name in MODELS:
            assert re.match(rf"{name} \S+@[0-9a-f]{{12}} float32", text)
        if name not in ("table", "ocr", "blip2"):
            assert "compares frames of this video" in text


@pytest.mark.parametrize("name", MODELS)
def test_long_questions_are_cut_and_said_so(tiny_scorer, name):
    if name == "qwen3-vl-reranker":
        pytest.skip("its context is longer than any question")
    scorer = tiny_scorer(name)
    encoded = scorer.encode(batch(scorer, 2))
    with pytest.warns(CutQuestion, match=rf"{name} reads \d+ tokens; the question has \d+"):
        scorer.match(encoded, "dog " * 100)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "onnx"])
def test_calibration_is_a_named_choice(make, name):
    plain = make(name, ScorerConfig(device="cpu", calibration="none"))
    mapped = make(name, ScorerConfig(device="cpu", calibration="logistic"))
    encoded = plain.encode(batch(plain, 40))
    one, other = (s.match(encoded, "a red dog", reference=encoded) for s in (plain, mapped))
    assert (np.argsort(one, kind="stable") == np.argsort(other, kind="stable")).all()
    assert other.max() > 0.5 > np.median(other)
    assert "compares frames" in scorer_name(mapped)
    assert scorer_name(plain) != scorer_name(mapped)


@pytest.mark.parametrize("name", ["blip2", "siglip2", "clip", "qwen3-vl-reranker"])
def test_several_devices_share_the_work(tiny_scorer, name):
    """Two copies on the CPU stand for two GPUs: the same path, batches spread over them."""
    one = tiny_scorer(name)
    two = tiny_scorer(name, ScorerConfig(device="cpu,cpu", batch=3))
    frames = batch(one, 11)
    relevance = [s.match(s.encode(frames), "what is the dog doing?") for s in (one, two)]
    assert np.allclose(relevance[0], relevance[1], atol=2e-3)
