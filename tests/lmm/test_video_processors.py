"""Whole processors of transformers, their video parts included: needs torchvision."""

import importlib.util
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from framenest import Prefix, lmm, open_video
from media import growing_ticks, numbered_picture, numbered_video
from without_gpu import declare_torchvision_operators

pytest.importorskip("transformers", reason="needs transformers and torchvision; run: make test-lmms-eval")
import random_models

if importlib.util.find_spec("torchvision") is None:
    pytest.skip("needs torchvision; run: make test-lmms-eval", allow_module_level=True)
declare_torchvision_operators()

pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLE = Path(__file__).parents[2] / "examples" / "qwen_transformers.py"


@pytest.fixture(scope="module")
def qwen():
    return random_models.qwen3_5(torchvision=True)


@pytest.fixture(scope="module", params=["constant", "variable"])
def decoder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "constant":
        return open_video(np.stack([numbered_picture(i, 320, 256) for i in range(60)]), fps=10)
    return open_video(numbered_video(folder / "v.mkv", 60, width=320, height=256, ticks=growing_ticks(60)))


@pytest.mark.parametrize(
    "frames", [[17], [3, 41], [0, 20, 59], [1, 2, 3, 50, 58]], ids=lambda f: f"K={len(f)}"
)
@pytest.mark.parametrize("pairing", ["auto", "pairs", "duplicate", "images"])
def test_the_model_reads_the_true_times(qwen, decoder, frames, pairing):
    numbers = np.array(frames, dtype=np.int64)
    prefix = Prefix(decoder.info, len(frames), numbers, decoder.seconds[numbers], None)
    request = lmm.messages(prefix, "What is it?", "qwen", pairing=pairing, video=decoder)
    model, processor = qwen
    prompt = processor.apply_chat_template(request.messages, tokenize=False, add_generation_prompt=True)
    inputs = processor(text=[prompt], **request.inputs, return_tensors="pt")
    text = processor.tokenizer.decode(inputs["input_ids"][0])
    markers = [f"<{part.split(' seconds>')[0]} seconds>" for part in text.split("<") if " seconds>" in part]
    assert markers == request.markers
    if pairing in ("duplicate", "images") or len(frames) == 1:
        read = np.array([float(marker[1:].split()[0]) for marker in markers])
        assert np.abs(read - prefix.seconds).max() <= 0.0506
    assert text.count("_pad|>") == request.tokens.frames
    assert model.generate(**inputs, max_new_tokens=8).shape[1] > inputs["input_ids"].shape[1]


def test_llava_onevision_1_takes_hf_video(decoder):
    """Its processor writes no times: the sentence does. 196 tokens a frame, and one at the end."""
    from transformers import (
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        LlavaOnevisionVideoProcessor,
    )

    processor = LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(),
        tokenizer=random_models.byte_tokenizer(["<image>", "<video>", "<|user|>", "<|assistant|>"]),
        video_processor=LlavaOnevisionVideoProcessor(),
        num_image_tokens=729,
        vision_feature_select_strategy="full",
        chat_template=random_models.chat_template("<image>", "<video>"),
    )
    prefix = Prefix(decoder.info, 3, np.array([0, 20, 59]), decoder.seconds[[0, 20, 59]], None)
    request = lmm.messages(prefix, "What is it?", "hf-video", video=decoder)
    text = processor.apply_chat_template(request.messages, tokenize=False, add_generation_prompt=True)
    inputs = processor(text=[text], **request.inputs, return_tensors="pt")
    assert inputs["pixel_values_videos"].shape[:2] == (1, 3)
    read = processor.tokenizer.decode(inputs["input_ids"][0])
    assert read.count("<video>") == request.tokens.frames + 1 == 3 * 196 + 1
    assert f"taken at {', '.join(request.markers)}.\nWhat is it?" in read


def test_the_example_runs(clip, tmp_path, monkeypatch, capsys):
    model, processor = random_models.qwen3_5(torchvision=True)
    model.save_pretrained(tmp_path / "qwen")
    processor.save_pretrained(tmp_path / "qwen")
    scores = tmp_path / "scores.csv"
    scores.write_text("frame,score\n0,0\n149,0\n150,1\n151,0\n299,0\n")
    given = [str(clip), "What is it?", "-k", "3", "--model", str(tmp_path / "qwen")]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *given, "--scorer", f"table:{scores}"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert "the model reads <" in printed
    assert len(printed.splitlines()) == 2
