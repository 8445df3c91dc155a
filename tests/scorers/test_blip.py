"""BLIP against transformers' own forward, with tiny random weights saved and loaded as the real ones."""

from __future__ import annotations

import numpy as np
import pytest

from framenest import FrameBatch
from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.models import from_folder
from framenest.scorers import load_scorer
from framenest.scorers.checkpoint import Preprocessing
from framenest.session import Session

torch = pytest.importorskip("torch", reason="needs the extra `blip`")
pytest.importorskip("transformers", reason="needs the extra `blip`")
import tiny  # noqa: E402
from PIL import Image  # noqa: E402 - after the check for the extra

from framenest.scorers.torch_scorers import BlipScorer  # noqa: E402

QUESTION = 'What is the "red" dog doing?'


@pytest.fixture
def checkpoint(tmp_path):
    processor, _ = tiny.random_blip(tmp_path / "m")
    return processor, from_folder(tmp_path / "m", DirectoryStore(tmp_path / "store"))


def scorer_of(checkpoint):
    return BlipScorer(checkpoint, ScorerConfig(device="cpu"))


def frames_of(pictures):
    return FrameBatch(np.arange(len(pictures)), np.arange(len(pictures)) / 10.0, (pictures,))


def _tokens(scorer, question):
    return scorer._tokens(scorer._model(), question).tolist()


def as_lavis(processor, checkpoint, pictures, text):
    """transformers' forward on a text prepared by hand: [ENC], id 15, where its tokenizer has [CLS]."""
    from transformers import BlipForImageTextRetrieval

    model = BlipForImageTextRetrieval.from_pretrained(checkpoint.path).eval()
    inputs = processor(
        images=[Image.fromarray(p) for p in pictures], text=[text] * len(pictures), return_tensors="pt"
    )
    assert (inputs["input_ids"][:, 0] == 2).all()
    inputs["input_ids"][:, 0] = 15
    with torch.no_grad():
        return model(**inputs, use_itm_head=True).itm_score


def test_logits_equal_the_full_forward(checkpoint):
    """Bit for bit; features in float16 move the probability little."""
    processor, weights = checkpoint
    scorer, pictures = scorer_of(weights), tiny.noise(6)
    logits = as_lavis(processor, weights, pictures, "what is the red dog doing?")
    on = scorer._model()
    pixels = on.normalise(pictures, torch.device("cpu"), Preprocessing.load(weights.path))
    with torch.inference_mode():
        vision = on.networks[0].vision(pixels)
        assert torch.equal(on.networks[0].match(vision, scorer._tokens(on, QUESTION)), logits)
    probabilities = logits.softmax(dim=-1)[:, 1].numpy()
    assert scorer.match(scorer.encode(frames_of(pictures)), QUESTION) == pytest.approx(
        probabilities, abs=2e-3
    )
    assert np.ptp(probabilities) > 0.05


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (QUESTION, "what is the red dog doing ?"),
        ("  The dog; (red)!  ", "the dog red"),
        ("DOG * dog # dog ~ dog: dog", "dog dog dog dog dog"),
    ],
)
def test_the_text_is_prepared_as_in_the_models_training(checkpoint, question, words):
    ids = {"what": 5, "is": 6, "the": 7, "dog": 8, "doing": 9, "?": 10, "red": 11}
    expected = [15, *(ids[word] for word in words.split()), 3]
    assert _tokens(scorer_of(checkpoint[1]), question) == [expected]


def test_at_most_35_tokens_are_read(checkpoint):
    scorer = scorer_of(checkpoint[1])
    with pytest.warns(UserWarning, match="blip reads 35 tokens; the question has 62, its end is not read"):
        tokens = _tokens(scorer, "dog " * 60)
    assert tokens == [[15, *[8] * 33, 3]]


def test_half_precision_reads_the_same(checkpoint):
    _, weights = checkpoint
    pictures = frames_of(tiny.noise(16))
    exact = scorer_of(weights)
    half = BlipScorer(weights, ScorerConfig(device="cpu", precision="float16"))
    logits = [s.logits(s.encode(pictures), QUESTION) for s in (exact, half)]
    assert np.abs(logits[0] - logits[1]).max() < 0.02
    assert np.asarray(half.encode(pictures)["vision"]).dtype == np.float16


def test_aks_with_the_scorer_it_was_released_with(checkpoint, clip, tmp_path):
    from framenest.selectors import load_selector

    _, weights = checkpoint
    session = Session(f"blip:{weights.path}", store=tmp_path / "cache", scoring=ScorerConfig(device="cpu"))
    made = load_selector("aks", session).select(clip, "the red dog", [4])
    assert len(made.prefix(4)) == 4
    assert made.scorer.startswith(f"blip {weights} float32")
    assert load_scorer(f"blip:{weights.path}", DirectoryStore(tmp_path)).name == "blip"
