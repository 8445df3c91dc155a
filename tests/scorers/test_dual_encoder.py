"""SigLIP and CLIP against the models' own forward, in torch and as ONNX, with tiny random weights."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from framenest import FrameBatch, ImageSpec, ScorerError
from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.models import from_folder
from framenest.scorers import wait_until_loaded

torch = pytest.importorskip("torch", reason="needs the extra `siglip2`")
transformers = pytest.importorskip("transformers", reason="needs the extra `siglip2`")
import tiny  # noqa: E402
from PIL import Image  # noqa: E402 - after the check for the extra

from framenest.scorers.checkpoint import Preprocessing  # noqa: E402
from framenest.scorers.torch_scorers import ClipScorer, SiglipScorer  # noqa: E402

QUESTION = "a red dog"
CPU = ScorerConfig(device="cpu")
PLAIN = ScorerConfig(device="cpu", calibration="none")


def frames_of(pictures):
    return FrameBatch(np.arange(len(pictures)), np.arange(len(pictures)) / 10.0, (pictures,))


def own_logits(images, tokenizer, model, pictures, question):
    """The model's forward on what its own processor and tokenizer make."""
    length = model.config.text_config.max_position_embeddings
    tokens = tokenizer(
        [question], padding="max_length", truncation=True, max_length=length, return_tensors="pt"
    )
    if model.config.model_type == "siglip":
        tokens = {"input_ids": tokens["input_ids"]}
    else:
        tokens = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    pixels = images([Image.fromarray(p) for p in pictures], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        return model(pixel_values=pixels, **tokens).logits_per_image[:, 0].numpy()


@pytest.fixture
def siglip(tmp_path):
    parts = tiny.random_siglip(tmp_path / "m")
    return parts, from_folder(tmp_path / "m", DirectoryStore(tmp_path / "s"))


@pytest.fixture
def clip_model(tmp_path):
    parts = tiny.random_clip(tmp_path / "m")
    return parts, from_folder(tmp_path / "m", DirectoryStore(tmp_path / "s"))


def test_siglip_equals_its_forward(siglip):
    parts, weights = siglip
    scorer, pictures = SiglipScorer(weights, PLAIN), tiny.noise(5)
    logits = own_logits(*parts, pictures, QUESTION)
    encoded = scorer.encode(frames_of(pictures))
    assert scorer.scores(encoded, QUESTION, encoded) == pytest.approx(logits, abs=1e-5)
    assert scorer.match(encoded, QUESTION) == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-6)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["siglip", "clip"])
def test_vectors_equal_those_of_transformers(kind, precision, tmp_path):
    """Bit for bit: the same operations in the same order."""
    make, scorer = {"siglip": (tiny.random_siglip, SiglipScorer), "clip": (tiny.random_clip, ClipScorer)}[
        kind
    ]
    *_, tokenizer, _ = make(tmp_path / "m")
    weights = from_folder(tmp_path / "m", DirectoryStore(tmp_path / "s"))
    ours = scorer(weights, ScorerConfig(device="cpu", precision=precision))
    theirs = transformers.AutoModel.from_pretrained(weights.path, dtype=getattr(torch, precision)).eval()
    on = ours._model()
    pixels = on.normalise(tiny.noise(5), torch.device("cpu"), Preprocessing.load(weights.path))
    length = theirs.config.text_config.max_position_embeddings
    tokens = tokenizer([QUESTION], padding="max_length", max_length=length, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        pictures = theirs.get_image_features(pixel_values=pixels).pooler_output
        assert torch.equal(on.networks[0].image(pixels), pictures)
        text = theirs.get_text_features(input_ids=tokens).pooler_output
        assert torch.equal(on.networks[0].text(tokens), text)
    unit = text.float()[0] / text.float()[0].norm()
    assert ours.text_vector(QUESTION) == pytest.approx(unit.numpy(), abs=1e-6)
    assert pictures.float().std(dim=0).min() > 0


def test_another_kind_of_model_is_refused(siglip):
    _, weights = siglip
    config = json.loads((weights.path / "config.json").read_text())
    (weights.path / "config.json").write_text(json.dumps(config | {"model_type": "altclip"}))
    with pytest.raises(ScorerError, match="a dual encoder is a model of type siglip or clip, not altclip"):
        wait_until_loaded(SiglipScorer(weights, PLAIN))


def test_siglip_reads_lower_case(siglip):
    _, weights = siglip
    scorer = SiglipScorer(weights, PLAIN)
    assert (scorer.text_vector("A RED Dog") == scorer.text_vector("a red dog")).all()


def test_clip_equals_its_forward(clip_model):
    parts, weights = clip_model
    scorer = ClipScorer(weights, PLAIN)
    pictures = tiny.noise(5, 32, 40)
    logits = own_logits(*parts, pictures, QUESTION)
    cropped = np.stack([scorer.inputs[0].cut(p) for p in pictures])
    encoded = scorer.encode(frames_of(cropped))
    assert scorer.scores(encoded, QUESTION, encoded) == pytest.approx(logits, abs=1e-4)
    cosines = logits / np.exp(parts[2].logit_scale.item())
    assert scorer.match(encoded, QUESTION) == pytest.approx((1 + cosines) / 2, abs=1e-6)


def test_vectors_for_selectors(siglip):
    _, weights = siglip
    scorer = SiglipScorer(weights, PLAIN)
    vectors = scorer.frame_vectors(scorer.encode(frames_of(tiny.noise(3))))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    assert scorer.text_vector("dog").shape == vectors.shape[1:]


@pytest.fixture(scope="module", params=["siglip2", "clip"])
def exported(request, tmp_path_factory):
    """The torch scorer and the folder of its ONNX export."""
    make, kind = {"siglip2": (tiny.random_siglip, SiglipScorer), "clip": (tiny.random_clip, ClipScorer)}[
        request.param
    ]
    folder = tmp_path_factory.mktemp(request.param)
    make(folder / "m")
    weights = from_folder(folder / "m", DirectoryStore(folder / "s"))
    tiny.export_onnx(folder / "m", folder / "onnx")
    return kind(weights, CPU), from_folder(folder / "onnx", DirectoryStore(folder / "s"))


@pytest.mark.parametrize("question", [QUESTION, "", "dog " * 30, "собака"])
@pytest.mark.filterwarnings("ignore::framenest.scorers.checkpoint.CutQuestion")
def test_onnx_equals_torch(exported, question):
    from framenest.scorers.onnx import OnnxScorer

    ours, folder = exported
    onnx = OnnxScorer(folder, CPU)
    assert onnx.inputs == ours.inputs
    frames = frames_of(tiny.noise(19))
    mine, theirs = onnx.encode(frames), ours.encode(frames)
    assert np.allclose(mine["vector"], theirs["vector"], atol=1e-4)
    assert onnx.match(mine, question) == pytest.approx(ours.match(theirs, question), abs=1e-4)


def test_onnx_needs_no_torch(exported, tmp_path):
    _, folder = exported
    code = (
        "import sys, numpy as np\n"
        "from framenest import FrameBatch\n"
        "from framenest.scorers import load_scorer\n"
        "from framenest.cache.directory import DirectoryStore\n"
        f"scorer = load_scorer('onnx:{folder.path}', DirectoryStore({str(tmp_path)!r}))\n"
        "pixels = np.zeros((2, 28, 28, 3), 'u1')\n"
        "encoded = scorer.encode(FrameBatch(np.arange(2), np.arange(2.0), (pixels,)))\n"
        "scorer.match(encoded, 'dog')\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_siglip_as_onnx_has_no_relevance_of_its_own(exported):
    from framenest.scorers.onnx import OnnxScorer

    ours, folder = exported
    if isinstance(ours, SiglipScorer):
        with pytest.raises(ScorerError, match="does not hold the logit's scale and bias"):
            OnnxScorer(folder, PLAIN)
        scorer = OnnxScorer(folder, CPU)
        assert scorer.match_strength(scorer.encode(frames_of(tiny.noise(4))), "dog") is None
    else:
        assert OnnxScorer(folder, PLAIN).relevance == ours.own_relevance


def test_siglip_as_onnx_with_a_known_scale_and_bias(tiny_models, tmp_path, monkeypatch):
    from framenest.scorers import onnx

    torch_scorer = SiglipScorer(from_folder(tiny_models("siglip2"), DirectoryStore(tmp_path)), PLAIN)
    found = from_folder(tiny_models("onnx"), DirectoryStore(tmp_path))
    monkeypatch.setitem(onnx.LOGITS, found.name, (np.exp(2.0), -3.0))  # as tiny.random_siglip sets them
    scorer, frames = onnx.OnnxScorer(found, PLAIN), frames_of(tiny.noise(4))
    mine, theirs = scorer.encode(frames), torch_scorer.encode(frames)
    assert scorer.match(mine, "dog") == pytest.approx(torch_scorer.match(theirs, "dog"), abs=1e-5)
    assert scorer.relevance == torch_scorer.relevance == "sigmoid of the model's logit"
    strength = torch_scorer.match_strength(theirs, "dog")
    assert scorer.match_strength(mine, "dog").verdict == strength.verdict
    assert scorer.match_strength(mine, "dog").value == pytest.approx(strength.value, abs=1e-4)


def test_an_export_without_settings_of_its_text_is_refused(exported, tmp_path):
    from framenest.scorers.onnx import OnnxScorer

    folder = shutil.copytree(exported[1].path, tmp_path / "half")
    (folder / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(ScorerError, match=r"config.json has no text_config"):
        OnnxScorer(from_folder(folder, DirectoryStore(tmp_path)), CPU)


def test_float16_files_give_nearly_the_same_vectors(exported, tmp_path):
    import onnx as writer
    from onnxruntime.transformers.float16 import convert_float_to_float16

    from framenest.scorers.onnx import OnnxScorer

    _, whole = exported
    folder = shutil.copytree(whole.path, tmp_path / "half")
    for side in ("vision_model", "text_model"):
        model = writer.load(folder / f"{side}.onnx")
        (folder / f"{side}.onnx").unlink()
        writer.save(convert_float_to_float16(model, keep_io_types=True), folder / f"{side}_fp16.onnx")
    half, full = OnnxScorer(from_folder(folder, DirectoryStore(tmp_path)), CPU), OnnxScorer(whole, CPU)
    assert (half.version[-7:], full.version[-7:]) == ("float16", "float32")
    frames = frames_of(tiny.noise(5))
    assert half.encode(frames)["vector"] == pytest.approx(full.encode(frames)["vector"], abs=0.01)
    assert half.text_vector("dog") == pytest.approx(full.text_vector("dog"), abs=0.01)


def test_older_checkpoints_write_sizes_as_numbers(tmp_path):
    settings = {"size": 224, "crop_size": 224, "do_center_crop": True, "resample": 3}
    settings |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    assert Preprocessing.load(tmp_path).spec == ImageSpec.crop(224, 224, 224, "bicubic")
    settings["do_center_crop"] = False
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    assert Preprocessing.load(tmp_path).spec == ImageSpec.squash(224, 224, "bicubic")


def test_onnx_pads_as_the_tokenizer_does(exported, tmp_path):
    """The model's config often names another token."""
    from framenest.scorers.onnx import OnnxScorer

    _, whole = exported
    folder = shutil.copytree(whole.path, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["pad_token_id"] = 7
    (folder / "config.json").write_text(json.dumps(config))
    other = OnnxScorer(from_folder(folder, DirectoryStore(tmp_path)), CPU)
    assert (other.text_vector("dog") == OnnxScorer(whole, CPU).text_vector("dog")).all()
