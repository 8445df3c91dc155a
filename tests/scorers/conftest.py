from __future__ import annotations

import pytest

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.scorers import load_scorer

CPU = ScorerConfig(device="cpu")
MADE = {
    "blip2": "random_blip2", "siglip2": "random_siglip", "clip": "random_clip",
    "qwen3-vl-reranker": "random_reranker",
}  # fmt: skip


@pytest.fixture(scope="session")
def warm_tags_store(tmp_path_factory, tags_weights) -> DirectoryStore:
    """A store with the weights of `tags`, and what its first scorer keeps there."""
    folder = tmp_path_factory.mktemp("tags")
    (folder / "models").symlink_to(tags_weights, target_is_directory=True)
    return DirectoryStore(folder)


@pytest.fixture(scope="session")
def tag_scorer(warm_tags_store):
    """`tags` with its real weights; it takes seconds to load, so all tests share it."""
    from framenest.scorers.tags import TagScorer

    return TagScorer(warm_tags_store)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """Folders of tiny random-weight models by scorer, made when first asked for."""
    pytest.importorskip("torch", reason="needs the extra `blip2` (torch)")
    pytest.importorskip("transformers", reason="needs the extra `blip2` (transformers)")
    import tiny

    made = {}

    def folder(name):
        if name == "qwen3-vl-reranker":
            pytest.importorskip("sentence_transformers", reason="needs the extra `reranker`")
        if name not in made:
            path = tmp_path_factory.mktemp(name) / "model"
            if name == "onnx":
                tiny.export_onnx(folder("siglip2"), path)
            else:
                settings = {"image_token": True} if name == "blip2" else {}
                getattr(tiny, MADE[name])(path, **settings)
            made[name] = path
        return made[name]

    return folder


@pytest.fixture
def tiny_scorer(tiny_models, cache):
    """A scorer by name over a tiny random-weight model, through the path of the real ones."""

    def load(name, config=CPU):
        return load_scorer(f"{name}:{tiny_models(name)}", DirectoryStore(cache), config)

    return load
