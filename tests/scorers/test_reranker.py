"""A second pass over the best candidates: by hand, in the pipeline, and with a tiny random CrossEncoder."""

from __future__ import annotations

import json

import numpy as np
import pytest

from framenest import MEC, FrameBatch, MECConfig
from framenest.config import IndexConfig, ScorerConfig
from framenest.method.discovery import refine
from framenest.scorers.table import TableScorer

SMALL = MECConfig(IndexConfig(24, 0))


def test_refine_by_hand():
    """The two best are judged again; the others stay, but not above the lowest judged."""
    relevance = np.array([0.9, 0.2, 0.8, 0.5], np.float32)
    refined = refine(relevance, np.array([0, 2]), np.array([0.4, 1.0], np.float32))
    assert refined == pytest.approx([0.4, 0.2, 1.0, 0.4])
    assert refine(relevance, np.zeros(0, np.int64), np.zeros(0, np.float32)) is relevance


def test_the_pipeline_judges_the_best_again(clip, tmp_path):
    """The cheap table likes the beginning; the second one knows better."""
    cheap = TableScorer({frame: 1 - frame / 300 for frame in range(300)})
    table = tmp_path / "better.json"
    table.write_text(json.dumps({str(frame): float(frame == 39) for frame in range(300)}))
    scoring = ScorerConfig(rerank=6, reranker=f"table:{table}")
    ranking = MEC(SMALL, cheap, scoring=scoring).rank(clip, "x")
    assert ranking.frames[0] == 39
    assert ranking.cues["relevance"][0] == 1
    assert (ranking.pool.cues["relevance"] == 0).sum() == len(ranking.pool) - 1
    assert "best 6 reranked by table" in ranking.scorer


def test_a_cross_encoder_gives_its_own_scores(tiny_scorer):
    scorer = tiny_scorer("qwen3-vl-reranker", ScorerConfig(device="cpu", calibration="none"))
    from PIL import Image

    pictures = np.random.default_rng(0).integers(0, 256, (5, 336, 448, 3), dtype=np.uint8)
    encoded = scorer.encode(FrameBatch(np.arange(5), np.arange(5.0), (pictures,)))
    import torch

    own = (
        scorer._model()
        .networks[0]
        .predict([("what is red?", Image.fromarray(p)) for p in pictures], activation_fn=torch.nn.Identity())
    )
    assert scorer.scores(encoded, "what is red?", encoded) == pytest.approx(own, abs=1e-4)
    assert len(set(np.round(own, 5))) > 1, "the pictures must matter"
    assert scorer.match(encoded, "what is red?") == pytest.approx(1 / (1 + np.exp(-own)), abs=1e-4)
