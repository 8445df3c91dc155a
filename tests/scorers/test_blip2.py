"""BLIP-2 against transformers' own forward, with tiny random weights saved and loaded as the real ones."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

from framenest import MEC, FrameBatch, MECConfig, ScorerError
from framenest.cache.directory import DirectoryStore
from framenest.config import IndexConfig, ScorerConfig
from framenest.models import from_folder
from framenest.scorers import wait_until_loaded
from framenest.scorers.checkpoint import CutQuestion, Preprocessing
from framenest.video.opening import open_video

torch = pytest.importorskip("torch", reason="needs the extra `blip2`")
pytest.importorskip("transformers", reason="needs the extra `blip2`")
import tiny  # noqa: E402
from PIL import Image  # noqa: E402 - after the check for the extra

from framenest.scorers.torch_scorers import Blip2Scorer  # noqa: E402

QUESTION = "what is the red dog doing?"


@pytest.fixture(params=[False, True], ids=["older config", "image_token_index set"])
def checkpoint(request, tmp_path):
    processor, _ = tiny.random_blip2(tmp_path / "m", image_token=request.param)
    return processor, from_folder(tmp_path / "m", DirectoryStore(tmp_path / "store"))


def scorer_of(checkpoint, config=None):
    return Blip2Scorer(checkpoint, config or ScorerConfig(device="cpu"))


def prepared(scorer, checkpoint, pictures):
    return scorer._model().normalise(pictures, torch.device("cpu"), Preprocessing.load(checkpoint.path))


def exact_logits(scorer, checkpoint, pictures, question):
    """From features in float32, where the scorer keeps float16."""
    on = scorer._model()
    with torch.inference_mode():
        vision = on.networks[0].vision(prepared(scorer, checkpoint, pictures))
        return on.networks[0].match(vision, on.tokens(question)).numpy()


def full_forward(processor, checkpoint, pictures, question):
    """As a user of transformers would: its processor, its forward, one softmax."""
    from transformers import Blip2ForImageTextRetrieval

    model = Blip2ForImageTextRetrieval.from_pretrained(checkpoint.path).eval()
    inputs = processor(
        images=[Image.fromarray(p) for p in pictures], text=[question] * len(pictures), return_tensors="pt"
    )
    with torch.no_grad():
        logits = model(**inputs, use_image_text_matching_head=True).logits_per_image
    return logits.numpy(), logits.softmax(dim=-1)[:, 1].numpy()


def frames_of(pictures):
    return FrameBatch(np.arange(len(pictures)), np.arange(len(pictures)) / 10.0, (pictures,))


def test_logits_equal_the_full_forward(checkpoint):
    """Bit for bit; features in float16 move the probability little."""
    processor, weights = checkpoint
    scorer, pictures = scorer_of(weights), tiny.noise(16)
    logits, probabilities = full_forward(processor, weights, pictures, QUESTION)
    assert (exact_logits(scorer, weights, pictures, QUESTION) == logits).all()
    encoded = scorer.encode(frames_of(pictures))
    assert np.asarray(encoded["vision"]).dtype == np.float16
    assert scorer.match(encoded, QUESTION) == pytest.approx(probabilities, abs=2e-3)


def test_search_vectors_give_the_similarity_of_transformers(checkpoint):
    """The best of a frame's query tokens, with the text that reads no frame."""
    from transformers import Blip2ForImageTextRetrieval

    processor, weights = checkpoint
    scorer, pictures = scorer_of(weights), tiny.noise(6)
    model = Blip2ForImageTextRetrieval.from_pretrained(weights.path).eval()
    inputs = processor(
        images=[Image.fromarray(p) for p in pictures], text=[QUESTION] * len(pictures), return_tensors="pt"
    )
    with torch.no_grad():
        expected = model(**inputs, use_image_text_matching_head=False).logits_per_image[:, 0].numpy()
    exact = {
        "vision": scorer._model().networks[0].vision(prepared(scorer, weights, pictures)).detach().numpy()
    }
    for encoded, digits in ((exact, 1e-6), (scorer.encode(frames_of(pictures)), 1e-3)):
        vectors = scorer.search_vectors(encoded)
        assert vectors.shape == (6, 8, 16)
        found = (vectors @ scorer.search_query(QUESTION)).max(axis=1)
        assert found == pytest.approx(expected, abs=digits)
    assert expected.std() > 1e-3


@pytest.mark.parametrize(("precision", "tolerance"), [("float16", 1e-3), ("bfloat16", 1e-2)])
def test_search_vectors_of_half_precision(checkpoint, precision, tolerance):
    _, weights = checkpoint
    scorers = [scorer_of(weights, ScorerConfig(device="cpu", precision=p)) for p in ("float32", precision)]
    exact, half = (
        (one.search_vectors(one.encode(frames_of(tiny.noise(4)))) @ one.search_query(QUESTION)).max(axis=1)
        for one in scorers
    )
    assert half == pytest.approx(exact, abs=tolerance)
    assert (half != exact).any()


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_features_of_half_precision_equal_transformers(checkpoint, precision):
    """Bit for bit: the same operations in the same order."""
    from transformers import Blip2ForImageTextRetrieval

    _, weights = checkpoint
    scorer = scorer_of(weights, ScorerConfig(device="cpu", precision=precision))
    theirs = Blip2ForImageTextRetrieval.from_pretrained(weights.path, dtype=getattr(torch, precision)).eval()
    pixels = prepared(scorer, weights, tiny.noise(5))
    with torch.inference_mode():
        expected = theirs.vision_model(pixel_values=pixels).last_hidden_state
        assert torch.equal(scorer._model().networks[0].vision(pixels), expected)
    assert expected.float().std() > 0.1


def test_tokens_are_those_of_transformers(checkpoint):
    processor, weights = checkpoint
    scorer = scorer_of(weights)
    longest = scorer._model().networks[0].longest
    for question in (QUESTION, "", "the kiln ?", "red dog " * 50):
        expected = processor.tokenizer(question, truncation=True, max_length=longest)["input_ids"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CutQuestion)
            assert scorer._model().tokens(question).tolist() == [expected]


def test_no_import_of_transformers(checkpoint):
    """It takes longer than reading the weights."""
    _, weights = checkpoint
    code = (
        "import sys, numpy as np\n"
        "from framenest import FrameBatch, ScorerConfig\n"
        "from framenest.cache.directory import DirectoryStore\n"
        "from framenest.scorers import load_scorer\n"
        f"store = DirectoryStore({str(weights.path.parent)!r})\n"
        f"scorer = load_scorer('blip2:{weights.path}', store, ScorerConfig(device='cpu'))\n"
        "pixels = np.zeros((1, 28, 28, 3), 'u1')\n"
        "scorer.match(scorer.encode(FrameBatch(np.arange(1), np.zeros(1), (pixels,))), 'red')\n"
        "print([m for m in ('transformers', 'sklearn', 'torch.distributed.tensor') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_relevance_is_one_softmax_not_two(checkpoint):
    """The docstring of transformers applies it twice, which squeezes everything into [0.269, 0.731]."""
    _, weights = checkpoint
    scorer = scorer_of(weights)
    relevance = scorer.match(scorer.encode(frames_of(tiny.noise(64))), QUESTION)
    assert relevance.min() < 0.25 or relevance.max() > 0.75


@pytest.mark.parametrize(("precision", "tolerance"), [("float16", 0.002), ("bfloat16", 0.01)])
def test_a_model_of_half_precision_reads_the_same_in_the_frames(checkpoint, precision, tolerance):
    """In float16 its Q-Former reads features in float16; the logits are as in float32 but for the digits."""
    _, weights = checkpoint
    half = scorer_of(weights, ScorerConfig(device="cpu", precision=precision))
    shape = half.encode(frames_of(tiny.noise(1)))["vision"].shape[1:]
    vision = np.random.default_rng(0).normal(0, 8, (32, *shape)).astype(np.float16)  # frames that differ much
    exact = scorer_of(weights).logits({"vision": vision.astype(np.float32)}, QUESTION)
    logits = half.logits({"vision": vision}, QUESTION)
    assert np.abs(logits - exact).max() < tolerance
    assert np.ptp(exact, axis=0).min() > 10 * tolerance


def test_pictures_are_prepared_as_the_processor_does(checkpoint):
    """Normalisation to 1e-6; from a real decoder's scaler, to a mean of 0.02 of the range."""
    processor, weights = checkpoint
    scorer = scorer_of(weights)
    pictures = tiny.noise(3)
    official = processor.image_processor([Image.fromarray(p) for p in pictures], return_tensors="pt")
    mine = prepared(scorer, weights, pictures)
    assert torch.allclose(mine, official["pixel_values"], atol=1e-6)


def test_the_decoders_scaler_squashes_as_the_processor_does(checkpoint, clip):
    processor, weights = checkpoint
    scorer = scorer_of(weights)
    video = open_video(clip)
    small = np.concatenate([b.pixels[0] for b in video.read([0, 60, 150], sizes=scorer.inputs)])
    full = [Image.fromarray(p) for b in video.read([0, 60, 150]) for p in b.pixels[0]]
    official = processor.image_processor(full, return_tensors="pt")["pixel_values"]
    mine = prepared(scorer, weights, small)
    assert (mine - official).abs().mean() < 0.02 * (official.max() - official.min())


def test_frame_vectors_are_the_class_tokens_of_its_own_vision_model(checkpoint):
    """What WFS-SB was released with; (n, d) of unit length, also from features that lie on disk."""
    from transformers import Blip2ForImageTextRetrieval

    processor, weights = checkpoint
    pictures = tiny.noise(5)
    model = Blip2ForImageTextRetrieval.from_pretrained(weights.path).eval()
    official = processor.image_processor([Image.fromarray(p) for p in pictures], return_tensors="pt")
    with torch.no_grad():
        classes = model.vision_model(pixel_values=official["pixel_values"]).last_hidden_state[:, 0].numpy()
    cosines = classes @ classes.T / np.outer(*[np.linalg.norm(classes, axis=1)] * 2)
    scorer = scorer_of(weights)
    encoded = scorer.encode(frames_of(pictures))
    for kept in (encoded, {name: np.asarray(rows) for name, rows in encoded.items()}):
        vectors = scorer.frame_vectors(kept)
        assert vectors.shape == (5, 32)
        assert vectors @ vectors.T == pytest.approx(cosines, abs=2e-3)
    assert scorer.frame_vectors(scorer.encode(frames_of(tiny.noise(0)))).shape == (0, 32)


def test_wfs_sb_compares_frames_by_blip2s_own_features(checkpoint, clip, tmp_path):
    from framenest.selectors import load_selector
    from framenest.selectors.published_rules import wfs_sb
    from framenest.session import Session

    _, weights = checkpoint
    session = Session(scorer_of(weights), store=tmp_path / "cache")
    made = load_selector("wfs-sb", session).select(clip, QUESTION, [4])
    assert made.stats["diversity"] == "the scorer's frame vectors"
    decoder = session.open(clip)
    seen = session.features(decoder, session.scorer, 32).get(np.arange(0, 300, 25), "candidates")
    scores = session.scorer.match(seen.encoded, QUESTION, reference=seen.encoded).astype(np.float64)
    chosen = wfs_sb(scores, 4, session.scorer.frame_vectors(seen.encoded).astype(np.float64))
    assert made.prefix(4).frames.tolist() == (25 * chosen).tolist()


def test_a_second_question_encodes_only_new_zoom_frames(checkpoint, clip, tmp_path):
    _, weights = checkpoint
    scorer = scorer_of(weights)
    seen = []
    encode = scorer.encode
    scorer.encode = lambda frames: seen.extend(frames.frames.tolist()) or encode(frames)
    mec = MEC(MECConfig(IndexConfig(24, 0)), scorer, store=tmp_path / "cache")
    first = mec.rank(clip, QUESTION)
    before = len(seen)
    second = mec.rank(clip, "the dog")
    assert len(seen) == len(set(seen)), "a frame was encoded twice"
    assert before == 24 + first.stats.zoom
    assert second.stats.decoded == len(seen) - before
    again = MEC(MECConfig(IndexConfig(24, 0)), scorer_of(weights), store=tmp_path / "cache")
    assert (again.rank(clip, QUESTION).frames == first.frames).all()
    assert again.rank(clip, "the dog").stats.decoded == 0
    assert str(weights) in first.scorer
    assert "float32 (matching probability)" in first.scorer


def test_seconds_are_told_apart(checkpoint, clip, tmp_path):
    _, weights = checkpoint
    ranking = MEC(MECConfig(IndexConfig(12, 0)), f"blip2:{weights.path}", store=tmp_path / "c").rank(
        clip, "red"
    )
    assert {"load", "decode", "encode", "match"} <= set(ranking.stats.seconds)


def test_memory_that_runs_out_halves_the_batch(checkpoint):
    """A vision model that takes two frames at most stands for a GPU that is too small."""
    _, weights = checkpoint
    scorer = scorer_of(weights, ScorerConfig(device="cpu", batch=8))
    network = scorer._model().networks[0]
    real = network.vision
    sizes = []

    def vision(pixels):
        sizes.append(len(pixels))
        if len(pixels) > most:
            raise torch.OutOfMemoryError("CUDA out of memory (made up)")
        return real(pixels)

    network.vision = vision
    most = 2
    pictures = frames_of(tiny.noise(7))
    assert len(scorer.encode(pictures)["vision"]) == 7
    assert sizes[:3] == [7, 4, 2]
    assert len(scorer.encode(pictures)["vision"]) == 7
    assert sizes[-4:] == [2, 2, 2, 1], "later calls know what fits"
    most = 0
    with pytest.raises(ScorerError, match="out of GPU memory: even one frame at a time does not fit"):
        scorer.encode(pictures)


def test_devices_that_are_not_there(checkpoint):
    _, weights = checkpoint
    with pytest.raises(ScorerError, match="there is no device"):
        wait_until_loaded(scorer_of(weights, ScorerConfig(device="warp")))
    if not torch.cuda.is_available():
        with pytest.raises(ScorerError, match="torch sees 0 CUDA GPUs here"):
            wait_until_loaded(scorer_of(weights, ScorerConfig(device="cuda:0,cuda:1")))


def test_a_folder_that_is_no_model(tmp_path):
    (tmp_path / "m").mkdir()
    with pytest.raises(ScorerError, match="no model in this folder"):
        from_folder(tmp_path / "m", DirectoryStore(tmp_path))


def test_one_batch_is_shared_by_all_devices(checkpoint):
    """Two copies on the CPU stand for two GPUs; a batch that would fit into one goes to both."""
    _, weights = checkpoint
    scorer = scorer_of(weights, ScorerConfig(device="cpu,cpu", batch=8))
    used = []

    def rows_of(rows, network, _):
        used.append((scorer._model().networks.index(network), rows.stop - rows.start))
        return torch.arange(rows.start, rows.stop)

    found = scorer._model().map("encode", rows_of, 8, 8)
    assert used == [(0, 4), (1, 4)]
    assert found.tolist() == list(range(8))


def test_a_model_that_does_not_fit_is_said_so(checkpoint, monkeypatch):
    from framenest.scorers.torch_networks import Blip2Network

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory (made up)")

    monkeypatch.setattr(Blip2Network, "load", full)
    with pytest.raises(ScorerError, match="out of GPU memory: the model does not fit; try --device cpu"):
        wait_until_loaded(scorer_of(checkpoint[1]))
