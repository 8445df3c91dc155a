"""Models in this process: tiny, random, through the real classes of transformers."""

import re
import sys

import numpy as np
import pytest
import random_models

from framenest import MissingExtra, ModelError, Prefix, Selection, lmm, open_video
from framenest.lmm.ask import ask
from framenest.lmm.local import LocalModel
from media import numbered_picture

for package in ("torch", "transformers"):
    pytest.importorskip(package, reason=f"needs {package}; run: make test-ask")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def decoder():
    return open_video(np.stack([numbered_picture(i, 320, 256) for i in range(60)]), fps=10)


@pytest.fixture(scope="module")
def qwen():
    return LocalModel(*random_models.qwen3_5(), max_tokens=12)


@pytest.fixture(scope="module")
def internvl():
    return LocalModel(*random_models.internvl(), max_tokens=12)


def prefix_of(decoder, frames):
    numbers = np.array(frames, dtype=np.int64)
    return Prefix(decoder.info, len(frames), numbers, decoder.seconds[numbers], None)


def read_by(model, request):
    """The text that reaches the model, its picture tokens included."""
    return model.processor.tokenizer.decode(model.inputs(request)["input_ids"][0])


@pytest.mark.parametrize(
    "frames", [[17], [3, 41], [0, 20, 59], [1, 2, 3, 50, 58]], ids=lambda f: f"K={len(f)}"
)
@pytest.mark.parametrize("pairing", ["auto", "pairs", "duplicate", "images"])
def test_qwen3_5_reads_the_markers(qwen, decoder, frames, pairing):
    request = lmm.messages(
        prefix_of(decoder, frames), "What is it?", qwen.style, pairing=pairing, video=decoder
    )
    text = read_by(qwen, request)
    assert re.findall(r"<[\d.]+ seconds>", text) == request.markers
    if pairing in ("duplicate", "images"):
        assert request.markers == [f"<{n / 10:.1f} seconds>" for n in frames]
    assert len(re.findall(r"<\|(?:image|video)_pad\|>", text)) == request.tokens.frames
    answer = qwen.answer(request)
    assert answer.usage.prompt_tokens == qwen.inputs(request)["input_ids"].shape[1]
    stopped = answer.finish_reason == "stop"
    assert len(answer.text) == answer.usage.completion_tokens - stopped
    assert answer.usage.completion_tokens == 12 or stopped


def test_the_pictures_reach_qwen3_5(qwen, decoder):
    """Another frame at the same time gives another video; the same one, the same."""
    values = [
        qwen.inputs(lmm.messages(prefix_of(decoder, frames), "What?", "qwen", video=decoder))
        for frames in ([0, 20], [0, 20], [0, 21])
    ]
    pixels = [v["pixel_values_videos"].numpy() for v in values]
    assert np.array_equal(pixels[0], pixels[1])
    assert not np.array_equal(pixels[0], pixels[2])


def test_internvl_reads_frames_and_times(internvl, decoder):
    request = lmm.messages(prefix_of(decoder, [3, 20, 59]), "What is it?", internvl.style, video=decoder)
    tile = "<img>" + "<IMG_CONTEXT>" * 4 + "</img>"
    assert read_by(internvl, request) == (
        f"<|user|>Frame1 at 0.3 seconds: {tile}\nFrame2 at 2.0 seconds: {tile}\n"
        f"Frame3 at 5.9 seconds: {tile}\nWhat is it?<|assistant|>"
    )
    assert internvl.inputs(request)["pixel_values"].shape[0] == 3  # one tile a frame
    assert len(internvl.answer(request).text) == 12


def test_streaming_says_the_same(qwen, decoder):
    request = lmm.messages(prefix_of(decoder, [3, 20]), "What is it?", "qwen", video=decoder)
    pieces = []
    streamed = qwen.answer(request, on_text=lambda kind, piece: pieces.append((kind, piece)))
    assert "".join(piece for _, piece in pieces) == streamed.text == qwen.answer(request).text
    assert 0 < streamed.usage.first_seconds <= streamed.usage.seconds


def test_a_ladder_in_process(qwen, decoder):
    prefixes = {n: prefix_of(decoder, frames) for n, frames in ((1, [20]), (3, [5, 20, 40]))}
    chosen = Selection(decoder.info, "What?", "by hand", "none", prefixes, {})
    asked = ask(qwen, chosen, "What?", [1, 3], style="qwen", video=decoder)
    assert [step.budget for step in asked.steps] == [1]


def test_several_turns(internvl, decoder):
    first = lmm.messages(prefix_of(decoder, [3]), "What is it?", "internvl", video=decoder)
    more = lmm.messages(prefix_of(decoder, [9]), "And now?", "internvl", video=decoder)
    request = first.then("Bars.", more)
    text = read_by(internvl, request)
    assert text.index("0.3 seconds") < text.index("<|assistant|>Bars.") < text.index("0.9 seconds")
    assert internvl.inputs(request)["pixel_values"].shape[0] == 2
    assert internvl.answer(request).text


def test_a_context_that_is_too_long_names_the_budget_that_fits(internvl, decoder):
    """The random InternVL has room for 512 tokens; a frame takes 4, and 30 or so bytes of time."""
    long = lmm.messages(prefix_of(decoder, range(0, 60, 3)), "What is it?", "internvl", video=decoder)
    with pytest.raises(ModelError, match=r"20 frames are \d+ tokens, too long for a context of 512") as said:
        internvl.answer(long)
    fits = said.value.fits
    assert 10 <= fits < 20
    shorter = lmm.messages(
        prefix_of(decoder, range(0, 3 * fits, 3)), "What is it?", "internvl", video=decoder
    )
    assert internvl.answer(shorter).text


def test_thinking_reaches_the_template(decoder):
    model, processor = random_models.internvl()
    processor.chat_template += "{% if enable_thinking %}<think>{% endif %}"
    request = lmm.messages(prefix_of(decoder, [3]), "What?", "internvl", video=decoder)
    for thinking in (True, False, None):
        text = read_by(LocalModel(model, processor, thinking=thinking), request)
        assert text.endswith("<think>") == (thinking is True)


def test_a_thought_that_was_cut_off_is_no_answer(decoder):
    model, processor = random_models.internvl()
    request = lmm.messages(prefix_of(decoder, [3]), "What?", "internvl", video=decoder)
    heard = []
    thinking = LocalModel(model, processor, thinking=True, max_tokens=6, eos_token_id=-1)
    answer = thinking.answer(request, on_text=lambda *piece: heard.append(piece))
    assert (answer.text, answer.finish_reason) == ("", "length")
    assert answer.reasoning
    assert {kind for kind, _ in heard} == {"reasoning"}


def test_a_model_by_name(decoder, tmp_path):
    random_models.save_llava(tmp_path / "llava")
    model = LocalModel(str(tmp_path / "llava"), device="cpu", max_tokens=6)
    request = lmm.messages(prefix_of(decoder, [3, 9]), "What?", "llava-onevision", video=decoder)
    assert read_by(model, request).count("<image>") == 32
    assert len(model.answer(request).text) == 6
    assert model.name == str(tmp_path / "llava")


def test_remote_code_as_llava_onevision_2_brings_it(decoder, tmp_path, monkeypatch):
    """The contract only: its real code and weights were never run here."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    random_models.save_remote_code_llava(tmp_path / "ov2")
    with pytest.raises(ModelError, match="trust_remote_code"):
        LocalModel(str(tmp_path / "ov2"))
    model = LocalModel(str(tmp_path / "ov2"), trust_remote_code=True, max_tokens=6)
    assert model.style == "llava-onevision"
    request = lmm.messages(prefix_of(decoder, [3, 9]), "What?", model.style, video=decoder)
    text = read_by(model, request)
    assert re.findall(r"<[\d.]+ seconds><image>", text) == ["<0.3 seconds><image>", "<0.9 seconds><image>"]
    assert model.answer(request).text


def test_trouble(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="cannot be loaded"):
        LocalModel(str(tmp_path / "nothing"))
    with pytest.raises(ModelError, match="needs its processor"):
        LocalModel(random_models.internvl()[0])
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"run.* install .*\[local\]"):
        LocalModel("any")
