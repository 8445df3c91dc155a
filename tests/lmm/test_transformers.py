"""Requests through transformers: tiny random-weight models, and the code of the page on messages."""

import re
from pathlib import Path

import numpy as np
import pytest
import random_models

from framenest import Prefix, lmm, open_video, rank
from media import numbered_picture

for package in ("torch", "transformers"):
    pytest.importorskip(package, reason=f"needs {package}; run: make test-ask")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PAGE = Path(__file__).parents[2] / "docs" / "models.md"
CODE = next(
    block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "generate" in block
)


@pytest.fixture(scope="module")
def decoder():
    return open_video(np.stack([numbered_picture(i, 320, 256) for i in range(60)]), fps=10)


@pytest.fixture(scope="module")
def qwen():
    return random_models.qwen3_5()


@pytest.fixture(scope="module")
def internvl():
    return random_models.internvl()


def prefix_of(decoder, frames):
    numbers = np.array(frames, dtype=np.int64)
    return Prefix(decoder.info, len(frames), numbers, decoder.seconds[numbers], None)


def run(pair, request):
    """Run the page's code; returns its variables, with `read`, the string that reached the model."""
    model, processor = pair
    names = {"model": model, "processor": processor, "request": request}
    exec(CODE.rpartition("\n\n")[2].replace("256", "12"), names)
    return names | {"read": processor.tokenizer.decode(names["inputs"]["input_ids"][0])}


@pytest.mark.parametrize(
    "frames", [[17], [3, 41], [0, 20, 59], [1, 2, 3, 50, 58]], ids=lambda f: f"K={len(f)}"
)
@pytest.mark.parametrize("pairing", ["auto", "pairs", "duplicate", "images"])
def test_qwen3_5_reads_the_markers(qwen, decoder, frames, pairing):
    request = lmm.messages(prefix_of(decoder, frames), "What is it?", "qwen", pairing=pairing, video=decoder)
    made = run(qwen, request)
    assert re.findall(r"<[\d.]+ seconds>", made["read"]) == request.markers
    if pairing in ("duplicate", "images"):
        assert request.markers == [f"<{n / 10:.1f} seconds>" for n in frames]
    assert len(re.findall(r"<\|(?:image|video)_pad\|>", made["read"])) == request.tokens.frames
    assert 1 <= len(made["answer"]) <= 12


def test_the_images_reach_qwen3_5(qwen, decoder):
    """Another frame at the same time gives another video; the same one, the same."""
    pixels = [
        run(qwen, lmm.messages(prefix_of(decoder, frames), "What?", "qwen", video=decoder))["inputs"][
            "pixel_values_videos"
        ].numpy()
        for frames in ([0, 20], [0, 20], [0, 21])
    ]
    assert np.array_equal(pixels[0], pixels[1])
    assert not np.array_equal(pixels[0], pixels[2])


def test_internvl_reads_frames_and_times(internvl, decoder):
    request = lmm.messages(prefix_of(decoder, [3, 20, 59]), "What is it?", "internvl", video=decoder)
    made = run(internvl, request)
    tile = "<img>" + "<IMG_CONTEXT>" * 4 + "</img>"
    assert made["read"] == (
        f"<|user|>Frame1 at 0.3 seconds: {tile}\nFrame2 at 2.0 seconds: {tile}\n"
        f"Frame3 at 5.9 seconds: {tile}\nWhat is it?<|assistant|>"
    )
    assert made["inputs"]["pixel_values"].shape[0] == 3  # one tile a frame
    assert len(made["answer"]) == 12


def test_several_turns(internvl, decoder):
    first = lmm.messages(prefix_of(decoder, [3]), "What is it?", "internvl", video=decoder)
    made = run(internvl, first.then("Bars.", "And now?"))
    text = made["read"]
    assert text.index("0.3 seconds") < text.index("<|assistant|>Bars.") < text.index("And now?")
    assert made["inputs"]["pixel_values"].shape[0] == 1
    assert made["answer"]


def test_a_llava_reads_a_time_before_every_image(decoder, tmp_path):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    random_models.save_llava(tmp_path)
    pair = AutoModelForImageTextToText.from_pretrained(tmp_path), AutoProcessor.from_pretrained(tmp_path)
    request = lmm.messages(prefix_of(decoder, [3, 9]), "What?", "llava-onevision", video=decoder)
    made = run(pair, request)
    assert re.findall(r"<[\d.]+ seconds>(?:<image>){16}", made["read"]) == [
        f"<{second} seconds>" + "<image>" * 16 for second in ("0.3", "0.9")
    ]
    assert len(made["answer"]) == 12


def test_load_video_reads_the_stream_that_was_ranked(shared_data):
    """transformers reads the first video stream of a file, FFmpeg chooses the larger one."""
    from transformers.video_utils import load_video

    path = str(shared_data / "video" / "nasa_13013.mp4")
    chosen = rank(path, None, 4).video
    assert chosen.num_frames == 390
    assert "this is stream 3 of the video streams 0 (320×180), 3 (480×270)" in chosen.notes[0]
    prefix = rank(open_video(path, stream=0), None, 4)
    frames, metadata = load_video(path, sample_indices_fn=lambda **_: prefix.frames, backend="pyav")
    assert (metadata.total_num_frames, prefix.video.num_frames) == (325, 325)
    for mine, theirs in zip(prefix.images(), frames, strict=True):
        assert np.abs(np.asarray(mine, np.int16) - np.asarray(theirs, np.int16)).mean() < 4
