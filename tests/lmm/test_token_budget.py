"""Budgets in tokens, worked by hand: how many frames fit, in which size, and what an image costs."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

import framenest as fn
from framenest import lmm
from framenest.image_tokens import TIERS, TokenBudget, gemini_level, gpt_level, image_cells
from framenest.images import ImageLimits
from framenest.lmm import token_budget
from framenest.testing import TableScorer
from media import numbered_video
from score_tables import zero_elsewhere

SECONDS = [float(second) for second in range(256)]


def sizes(tokens, *given, size=(1280, 720), **settings):
    return token_budget(tokens, *given, **settings).fit(SECONDS, *size)


@pytest.fixture(scope="module")
def ranking(tmp_path_factory):
    video = numbered_video(tmp_path_factory.mktemp("v") / "v.mp4", 60, width=640, height=360)
    return fn.MEC(scorer=TableScorer(zero_elsewhere({10: 1.0, 40: 0.5}))).rank(video, "Where?")


def test_one_size_for_all():
    """An image of 1280 × 720 is 40 × 22 cells of Qwen's, 880 tokens: nine of them are 7,920."""
    assert sizes(7_920) == sizes(8_799) == [(1280, 720)] * 9
    assert len(sizes(8_800)) == 10


def test_sharp_first_small_later():
    """Four of 880, twelve of 20 × 11 = 220, the rest 11 × 6 = 66: 3,520 + 2,640 + 27 × 66 = 7,942."""
    tiered = sizes(8_000, tiers=TIERS)
    assert tiered == [(1280, 720)] * 4 + [(640, 360)] * 12 + [(320, 180)] * 27
    assert len(sizes(7_941, tiers=TIERS)) == 42
    assert sizes(8_000, tiers=(0, 1))[:3] == [(640, 360), (320, 180), (320, 180)]
    larger = sizes(16_000, tiers=TIERS)
    assert larger[: len(tiered)] == tiered


def test_limits_bound_the_full_size():
    assert sizes(3_000, tiers=(1, 2), limits=ImageLimits(max_side=640))[:3] == [
        (640, 360),
        (320, 180),
        (160, 90),
    ]


def test_too_few_tokens_name_the_least_that_works():
    with pytest.raises(fn.BudgetError, match="879 tokens hold no image; give 880, or smaller images"):
        sizes(879)
    assert len(sizes(880)) == 1
    with pytest.raises(fn.BudgetError, match="84 tokens hold no image; give 425, or"):
        sizes(84, "gpt", size=(640, 320))
    for wrong in (0, -1, 2.5, True, "8000"):
        with pytest.raises(fn.BudgetError, match="a budget in tokens must be a whole number, 1 or more"):
            sizes(wrong)


def test_a_video_has_one_size_and_shares_its_pixels():
    """Qwen fuses frames a second apart: 8 frames are 4 groups of 880. A video takes 12,288 tokens at the
    most, so all 256 frames fit."""
    assert len(sizes(3_520, "vllm-video")) == 8
    assert len(sizes(12_288, "vllm-video")) == 256
    assert len(sizes(1_960, "hf-video")) == 10  # 196 each
    with pytest.raises(fn.ConfigError, match="sends a video, whose frames have one size; tiers need images"):
        sizes(8_000, "qwen", tiers=TIERS)
    with pytest.raises(fn.ConfigError, match="images cost the same at any size; tiers would save nothing"):
        sizes(8_000, "internvl", tiers=TIERS)
    assert len(sizes(8_000, "internvl")) == 31
    assert len(sizes(8_000, "qwen", tiers=TIERS, pairing="images")) == 43


@pytest.mark.parametrize(
    ("size", "level"),
    [
        ((512, 512), ("low", 85)),
        ((513, 512), ("high", 85 + 2 * 170)),
        ((1280, 720), ("high", 85 + 3 * 2 * 170)),
        ((1920, 1080), ("high", 85 + 3 * 2 * 170)),  # 1365 × 768
        ((720, 1280), ("high", 85 + 2 * 3 * 170)),
        ((4096, 512), ("high", 85 + 4 * 1 * 170)),  # 2048 × 256
    ],
)
def test_tiles_of_openai(size, level):
    assert gpt_level(*size) == level


@pytest.mark.parametrize(
    ("size", "level"),
    [((640, 448), ("low", 280)), ((641, 448), ("medium", 560)), ((1280, 448), ("medium", 560)),
     ((1281, 448), ("high", 1120)), ((3840, 2160), ("high", 1120))],
)  # fmt: skip
def test_media_resolutions_of_gemini(size, level):
    assert gemini_level(*size) == level


def test_a_prefix_has_the_sizes_and_a_larger_one_keeps_every_image(ranking):
    """640 × 360 is 220 tokens, 320 × 180 and 160 × 90 are 66: 4 × 220 + 12 × 66 + 3 × 66 = 1,870."""
    small, large = (ranking.prefix(TokenBudget(tokens, TIERS)) for tokens in (1_870, 3_000))
    assert len(small) == 19
    images = {frame: image for (_, _, frame), image in zip(large, large.images(), strict=True)}
    for (rank, _, frame), image in zip(small, small.images(), strict=True):
        assert image.size == ((640, 360) if rank <= 4 else (320, 180) if rank <= 16 else (160, 90))
        assert image.tobytes() == images[frame].tobytes()
    assert {image.size for image in small.images(max_side=100)} == {(100, 56)}
    with pytest.raises(fn.ConfigError, match="these images differ in size"):
        small.read()
    assert small.read(max_side=100).shape == (19, 56, 100, 3)
    assert [image.size for image in small.part(small.ranks <= 2).images()] == [(640, 360)] * 2


def test_prefixes_in_frames_and_tokens(ranking):
    prefix = ranking.prefix(tokens=2_000)
    assert prefix.sizes == ((640, 360),) * 9
    assert prefix.frames.tolist() == ranking.prefix(9).frames.tolist()
    assert ranking.prefix(9).sizes == ()
    assert prefix.read().shape == (9, 360, 640, 3)
    for wrong in ({}, {"budget": 8, "tokens": 8000}):
        with pytest.raises(fn.BudgetError, match=r"a budget in frames \(-k\) or in tokens \(--tokens\)"):
            ranking.prefix(**wrong)
    with pytest.raises(fn.BudgetError, match="2 tokens hold no image; give 220"):
        ranking.prefix(tokens=2)


def test_the_detail_is_sent_with_each_image(ranking):
    prefix = ranking.prefix(token_budget(2_000, "gpt", tiers=(1, 3)))
    request = lmm.messages(prefix, "What?", "gpt")
    parts = [part["image_url"] for part in request.messages[0]["content"] if part["type"] == "image_url"]
    details = [part["detail"] for part in parts]
    assert details == ["high" if rank == 1 else "low" for rank in prefix.ranks]
    assert request.tokens.frames == 85 + 2 * 170 + 18 * 85 == 1_955
    assert len(prefix) == 19
    sent = [Image.open(io.BytesIO(base64.b64decode(part["url"].partition(",")[2]))).size for part in parts]
    assert sent == list(prefix.sizes)
    gemini = lmm.messages(ranking.prefix(2), "What?", "gemini")
    assert [part["image_url"]["detail"] for part in gemini.messages[0]["content"][1::2]] == ["low", "low"]
    plain = lmm.messages(ranking.prefix(2), "What?")
    assert set(plain.messages[0]["content"][1]["image_url"]) == {"url"}


def test_the_best_of_a_prefix(ranking):
    assert ranking.prefix(16).best(5).frames.tolist() == ranking.prefix(5).frames.tolist()
    spread = fn.Prefix(ranking.video, 9, np.arange(9), np.arange(9) / 25, None)
    assert spread.best(3).frames.tolist() == [0, 4, 8]
    assert spread.best(20).frames.tolist() == list(range(9))
    assert spread.best(3).budget == 3


def test_qwen_images_cost_what_the_processor_makes_of_them():
    found = pytest.importorskip(
        "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl", reason="needs transformers"
    )
    limits = {"shortest_edge": 65_536, "longest_edge": 16_777_216}  # of Qwen3-VL and Qwen3.5
    processor = found.Qwen2VLImageProcessorPil(patch_size=16, merge_size=2, size=limits)
    for width, height in [
        (1280, 720),
        (640, 360),
        (320, 180),
        (213, 120),
        (96, 64),
        (1080, 1920),
        (8192, 4096),
    ]:
        grid = processor(Image.new("RGB", (width, height)), return_tensors="np")["image_grid_thw"][0]
        assert image_cells(width, height) == grid.prod() // 4, (width, height)


def test_internvl_makes_one_tile_of_any_image(ranking):
    found = pytest.importorskip(
        "transformers.models.got_ocr2.image_processing_pil_got_ocr2", reason="needs transformers"
    )
    request = lmm.messages(ranking.prefix(3), "What?", "internvl")
    processor = found.GotOcr2ImageProcessorPil(size={"height": 448, "width": 448})
    tiles = processor(request.inputs["images"], crop_to_patches=request.inputs["crop_to_patches"])
    assert request.tokens.frames == 256 * len(tiles["pixel_values"]) == 768
