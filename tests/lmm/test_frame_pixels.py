"""The pixels that a Qwen model sees of a video's frames: through lmms-eval, and through vLLM."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from framenest import ConfigError, Prefix, lmm, open_video
from framenest.images import ImageLimits
from framenest.lmm import estimate
from media import numbered_video

ROOT = Path(__file__).parents[2]
SIZES = [(1280, 720), (1920, 1080), (640, 360), (480, 360), (854, 480), (720, 1280), (3840, 2160), (406, 720)]
BUDGETS = (8, 16, 32, 64, 128, 256)
SAME = 768 * 32 * 32
"""--frame-pixels under which both routes send the same."""
QWEN3_5 = {"min_pixels": 64 * 32 * 32, "total_pixels": 224 * 1024 * 32 * 32}
"""What lmms-eval 0.7.3's `qwen3_5` asks qwen-vl-utils for (models/simple/qwen3_5.py and qwen3_vl.py); its
max_pixels goes to the processor, which is told not to resize."""


def by_lmms_eval(width, height, frames, *, min_pixels, total_pixels):
    """(width, height) of a frame: qwen-vl-utils 0.0.14, vision_process.fetch_video and smart_resize, cells of
    32 pixels, at most 768 of them a frame."""
    cell = 32
    most = max(min(768 * cell**2, total_pixels / frames * 2), int(min_pixels * 1.05))
    down, across = (max(cell, round(side / cell) * cell) for side in (height, width))
    if down * across > most:
        shrink = math.sqrt(height * width / most)
        down, across = (math.floor(side / shrink / cell) * cell for side in (height, width))
    elif down * across < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        down, across = (math.ceil(side * grow / cell) * cell for side in (height, width))
    return across, down


def by_processor(width, height, frames, size):
    """(width, height) of a frame: transformers' video processor of Qwen3-VL and Qwen3.5, which vLLM calls
    with a request's mm_processor_kwargs (video_processing_qwen3_vl.py, smart_resize), no cap by frame."""
    cell, count = 32, round(frames / 2) * 2
    down, across = (round(side / cell) * cell for side in (height, width))
    if count * down * across > size["longest_edge"]:
        shrink = math.sqrt(frames * height * width / size["longest_edge"])
        down, across = (max(cell, math.floor(side / shrink / cell) * cell) for side in (height, width))
    elif count * down * across < size["shortest_edge"]:
        grow = math.sqrt(size["shortest_edge"] / (frames * height * width))
        down, across = (math.ceil(side * grow / cell) * cell for side in (height, width))
    return across, down


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return open_video(numbered_video(tmp_path_factory.mktemp("v") / "v.mp4", 300))


def told_size(decoder, count, limits):
    """What a request of so many frames tells the server's processor."""
    numbers = np.arange(count)
    prefix = Prefix(decoder.info, count, numbers, decoder.seconds[numbers], None)
    request = lmm.messages(prefix, "What?", "vllm-video", pairing="pairs", limits=limits, video=decoder)
    return request.create["extra_body"].get("mm_processor_kwargs", {}).get("size")


@pytest.mark.parametrize("count", BUDGETS)
def test_both_routes_send_the_same_pixels(decoder, count):
    size = told_size(decoder, count, ImageLimits(frame_pixels=SAME))
    seconds = [float(i) for i in range(count)]
    for width, height in SIZES:
        mine = by_processor(width, height, count, size)
        assert mine == by_lmms_eval(width, height, count, **QWEN3_5), (width, height)
        tokens = estimate(
            "vllm-video", seconds, [(width, height)] * count, "", pairing="pairs", frame_pixels=SAME
        )
        assert tokens.frames == count // 2 * (mine[0] // 32) * (mine[1] // 32)


def test_without_the_setting_they_do_not(decoder):
    """At 256 frames of 720p: 12,288 tokens at the most against what the paper's harness sends."""
    assert told_size(decoder, 8, ImageLimits()) is None
    own = by_processor(1280, 720, 256, {"shortest_edge": 4096, "longest_edge": 25_165_824})
    theirs = by_lmms_eval(1280, 720, 256, **QWEN3_5)
    assert [128 * (w // 32) * (h // 32) for w, h in (own, theirs)] == [11_648, 92_160]


def test_only_for_a_video_of_vllm(decoder):
    prefix = Prefix(decoder.info, 1, np.array([5]), decoder.seconds[[5]], None)
    with pytest.raises(ConfigError, match="needs style vllm-video"):
        lmm.messages(prefix, "What?", limits=ImageLimits(frame_pixels=SAME), video=decoder)
    with pytest.raises(ConfigError):
        ImageLimits(frame_pixels=0)


def test_the_table_of_what_each_budget_costs():
    page = (ROOT / "docs" / "reproduce.md").read_text()
    for width, height in ((1280, 720), (640, 360)):
        rows = {}
        for name, pixels in (("its own limit", None), ("`--frame-pixels 786432`, lmms-eval", SAME)):
            cells = [
                estimate(
                    "vllm-video", [0.0] * k, [(width, height)] * k, "", pairing="pairs", frame_pixels=pixels
                )
                for k in BUDGETS
            ]
            rows[name] = " | ".join(f"{tokens.frames:,}" for tokens in cells)
            assert f"| {width} × {height}, {name} | {rows[name]} |" in page
    assert str(SAME) in re.findall(r"--frame-pixels (\d+)", page)


def test_the_arithmetic_is_that_of_transformers():
    found = pytest.importorskip(
        "transformers.models.qwen3_vl.video_processing_qwen3_vl", reason="needs transformers"
    )
    for count in (2, *BUDGETS):
        for width, height in SIZES:
            for size in (
                {"shortest_edge": 4096, "longest_edge": most} for most in (25_165_824, SAME * count)
            ):
                down, across = found.smart_resize(
                    num_frames=count, height=height, width=width, factor=32,
                    min_pixels=size["shortest_edge"], max_pixels=size["longest_edge"],
                )  # fmt: skip
                assert (across, down) == by_processor(width, height, count, size)


@pytest.mark.parametrize("count", [8, 64])
def test_the_arithmetic_is_that_of_qwen_vl_utils(count):
    """Run by `make test-lmms-eval`, where the package is."""
    found = pytest.importorskip("qwen_vl_utils.vision_process", reason="needs the extra `lmms-eval`")
    import torch

    def reader(_element):
        return torch.zeros((count, 3, height, width), dtype=torch.uint8), {}, 1.0

    name = found.get_video_reader_backend()
    kept = found.VIDEO_READER_BACKENDS[name]
    found.VIDEO_READER_BACKENDS[name] = reader
    try:
        for width, height in ((1280, 720), (480, 360)):
            video = found.fetch_video({"video": "v.mp4", **QWEN3_5}, image_patch_size=16)
            assert tuple(video.shape[:1:-1]) == by_lmms_eval(width, height, count, **QWEN3_5)
    finally:
        found.VIDEO_READER_BACKENDS[name] = kept
