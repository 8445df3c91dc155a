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
    assert sizes(7_920, tiers=None) == sizes(8_799, tiers=None) == [(1280, 720)] * 9
    assert len(sizes(8_800, tiers=None)) == 10


def test_sharp_first_small_later():
    """Four of 880, twelve of 20 × 11 = 220, the rest 11 × 6 = 66: 3,520 + 2,640 + 27 × 66 = 7,942."""
    tiered = sizes(8_000)
    assert tiered == [(1280, 720)] * 4 + [(652, 367)] * 12 + [(366, 206)] * 27
    assert len(sizes(7_941)) == 42
    assert sizes(8_000, tiers=(0, 1))[:3] == [(652, 367), (366, 206), (366, 206)]
    larger = sizes(16_000)
    assert larger[: len(tiered)] == tiered


def test_no_image_is_smaller_than_what_it_costs():
    """Qwen charges 66 for a side of 90, 180 or 206 pixels; GPT 85 up to 512, Gemini 280 for 280 × 1,024."""
    small = ImageLimits(max_side=640)
    assert sizes(3_000, tiers=(1, 2), limits=small)[:3] == [(640, 360), (366, 206), (366, 206)]
    assert image_cells(366, 206) == image_cells(160, 90) == 66 < image_cells(368, 207)
    assert sizes(9_999, "gpt")[-1] == (512, 288)
    assert sizes(9_999, "gemini")[-1] == (713, 401)
    assert sizes(8_000, "internvl") == [(1280, 720)] * 31  # always one tile

    def dear(_, sizes):
        return sum(max(64, width * height // 750) for width, height in sizes)

    assert TokenBudget(8_000, TIERS, ImageLimits(), dear).sizes(17, 427, 240)[-1] == (294, 165)


def test_the_size_of_a_rank_depends_on_the_rank_alone():
    assert sizes(16_000) == TokenBudget(1).sizes(len(sizes(16_000)), 1280, 720)


def test_too_few_tokens_name_the_least_that_works():
    with pytest.raises(fn.BudgetError, match="879 tokens hold no image; give 880, or smaller images"):
        sizes(879)
    assert len(sizes(880)) == 1
    with pytest.raises(fn.BudgetError, match="84 tokens hold no image; give 425, or"):
        sizes(84, "gpt", size=(640, 320))
    for wrong in (0, -1, 2.5, True, "8000"):
        with pytest.raises(fn.BudgetError, match="a budget must be a whole number, 1 or more"):
            sizes(wrong)
    for wrong in ("x", 4, ("4", "16")):
        with pytest.raises(fn.ConfigError, match="tiers must be "):
            sizes(8_000, tiers=wrong)


def test_a_video_has_one_size_and_shares_its_pixels():
    """Qwen fuses frames a second apart: 8 frames are 4 groups of 880. A video takes 12,288 tokens at the
    most, so all 256 frames fit."""
    assert len(sizes(3_520, "vllm-video")) == 8
    assert len(sizes(12_288, "vllm-video")) == 256
    assert len(sizes(1_960, "hf-video")) == 10  # 196 each
    assert len(sizes(8_000, "qwen", pairing="images")) == 43


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
    """640 × 360 is 220 tokens, 366 × 206 is 66: 4 × 220 + 15 × 66 = 1,870."""
    small, large = (ranking.prefix(tokens=tokens) for tokens in (1_870, 3_000))
    assert len(small) == 19
    images = {frame: image for (_, _, frame), image in zip(large, large.images(), strict=True)}
    for (rank, _, frame), image in zip(small, small.images(), strict=True):
        assert image.size == ((640, 360) if rank <= 4 else (366, 206))
        assert image.tobytes() == images[frame].tobytes()
    assert {image.size for image in small.images(max_side=100)} == {(100, 56)}
    with pytest.raises(fn.ConfigError, match="these images differ in size"):
        small.read()
    assert small.read(max_side=100).shape == (19, 56, 100, 3)
    assert [image.size for image in small.part(small.ranks <= 2).images()] == [(640, 360)] * 2
    with pytest.raises(fn.ConfigError, match="sends a video, whose frames have one size; see token_budget"):
        lmm.messages(small, "What?", "qwen")


def test_prefixes_in_frames_and_tokens(ranking):
    prefix = ranking.prefix(TokenBudget(2_000, None))
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
