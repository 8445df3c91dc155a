"""The styles: exact shapes, true times, the right pictures."""

import base64
import io
import json
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from framenest import ConfigError, Prefix, lmm, open_video
from framenest.lmm import STYLES, StyleName
from framenest.lmm.prompt import fused, paired_markers, sent_places, video_metadata
from media import growing_ticks, number_in, numbered_video

QUESTION = "What is it?"


@pytest.fixture(scope="module")
def constant(tmp_path_factory):
    path = tmp_path_factory.mktemp("constant") / "c.mp4"
    return open_video(numbered_video(path, 300, width=192, height=128))


@pytest.fixture(scope="module")
def variable(tmp_path_factory):
    """60 frames whose distances grow: the average rate says nothing about a frame's time."""
    path = tmp_path_factory.mktemp("variable") / "v.mkv"
    return open_video(numbered_video(path, 60, width=192, height=128, ticks=growing_ticks(60)))


def prefix_of(decoder, frames):
    numbers = np.array(frames, dtype=np.int64)
    return Prefix(decoder.info, len(frames), numbers, decoder.seconds[numbers], None)


def named(value):
    """Pictures replaced by the number that is drawn on them."""
    if isinstance(value, dict):
        return {key: named(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [named(inner) for inner in value]
    if isinstance(value, str) and value.startswith("data:"):
        kind, _, packed = value.partition(";base64,")
        return f"{kind} of {', '.join(map(str, map(number_of, packed.split(','))))}"
    return value


def number_of(packed):
    with Image.open(io.BytesIO(base64.b64decode(packed))) as picture:
        assert picture.format == "JPEG"
        return number_in(np.asarray(picture))


def text(words):
    return {"type": "text", "text": words}


def image(number):
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg of {number}"}}


def test_openai(constant):
    request = lmm.messages(prefix_of(constant, [3, 100, 299]), QUESTION, options=["a cup", "a kiln"])
    asked = (
        "What is it?\nA. a cup\nB. a kiln\nAnswer with the option's letter from the given choices directly."
    )
    content = [text("<0.1 seconds>"), image(3), text("<4.0 seconds>"), image(100)]
    content += [text("<12.0 seconds>"), image(299), text(asked)]
    assert named(request.body("m")) == {"model": "m", "messages": [{"role": "user", "content": content}]}
    assert request.create == {"messages": request.messages}
    assert request.markers == ["<0.1 seconds>", "<4.0 seconds>", "<12.0 seconds>"]
    silent = lmm.messages(prefix_of(constant, [3, 100]), QUESTION, tell_times=False)
    assert named(silent.messages[0]["content"]) == [image(3), image(100), text(QUESTION)]


def test_vllm_video(constant):
    request = lmm.messages(prefix_of(constant, [3, 100, 299]), QUESTION, "vllm-video", pairing="pairs")
    video = {"type": "video_url", "video_url": {"url": "data:video/jpeg of 3, 100, 299"}}
    assert named(request.body()) == {
        "messages": [{"role": "user", "content": [video, text(QUESTION)]}],
        "media_io_kwargs": {
            "video": {
                "num_frames": 3,
                "fps": 25.0,
                "frames_indices": [3, 100, 299],
                "total_num_frames": 300,
                "duration": 12.0,
                "do_sample_frames": False,
            }
        },
    }
    assert request.create["extra_body"] == request.extra_body
    assert all(type(n) is int for n in request.extra_body["media_io_kwargs"]["video"]["frames_indices"])


def test_vllm_video_sends_more_than_32_frames(constant):
    request = lmm.messages(prefix_of(constant, range(0, 300, 6)), QUESTION, "vllm-video", pairing="duplicate")
    settings = request.extra_body["media_io_kwargs"]["video"]
    assert settings["num_frames"] == len(settings["frames_indices"]) == 100
    assert request.messages[0]["content"][0]["video_url"]["url"].count(",") == 100


def test_qwen(constant):
    request = lmm.messages(prefix_of(constant, [3, 100, 299]), QUESTION, "qwen", pairing="pairs")
    assert request.messages == [{"role": "user", "content": [{"type": "video"}, text(QUESTION)]}]
    metadata = {"fps": 25.0, "frames_indices": [3, 100, 299], "total_num_frames": 300, "duration": 12.0}
    inputs = request.inputs
    assert [number_in(np.asarray(p)) for p in inputs["videos"][0]] == [3, 100, 299]
    assert (inputs["video_metadata"], inputs["do_sample_frames"]) == ([metadata], False)
    assert request.markers == ["<2.1 seconds>", "<12.0 seconds>"]
    inputs["video_metadata"][0]["frames_indices"].append(299)  # as the processor does for an odd number
    assert request.inputs["video_metadata"] == [metadata]


def test_only_neighbours_are_fused_by_default(constant):
    """Frames at 0.1, 4.0, 5.0, 6.0 and 12.0 s: two of them lie within two seconds of each other."""
    request = lmm.messages(prefix_of(constant, [3, 100, 125, 176, 299]), QUESTION, "qwen")
    assert [number_in(np.asarray(p)) for p in request.inputs["videos"][0]] == [
        3,
        3,
        100,
        125,
        176,
        176,
        299,
        299,
    ]
    assert request.inputs["video_metadata"][0]["frames_indices"] == [3, 3, 100, 125, 176, 176, 299, 299]
    assert request.markers == ["<0.1 seconds>", "<4.5 seconds>", "<7.0 seconds>", "<12.0 seconds>"]
    costs = [
        lmm.messages(request.prefix, QUESTION, "qwen", pairing=pairing).tokens.total
        for pairing in ("pairs", "auto", "duplicate")
    ]
    assert costs == sorted(set(costs))
    assert costs[1] == request.tokens.total


@pytest.mark.parametrize("style", ["openai", "hf-video", "internvl", "llava-onevision"])
def test_where_nothing_is_fused_every_frame_is_sent_once(constant, style):
    request = lmm.messages(prefix_of(constant, [3, 100, 125]), QUESTION, style)
    assert len(request.images or request.markers) == 3


def test_frames_two_seconds_apart_are_still_neighbours():
    assert fused("auto", [0.0, 2.0, 4.0, 6.1]) == [(0, 1), (2, 2), (3, 3)]
    assert fused("auto", [7.0, 7.0 + 50 / 25]) == [(0, 1)]
    assert fused("auto", []) == []


def test_qwen_with_each_frame_twice_has_one_exact_marker_a_frame(constant):
    request = lmm.messages(prefix_of(constant, [3, 100, 299]), QUESTION, "qwen", pairing="duplicate")
    assert [number_in(np.asarray(p)) for p in request.inputs["videos"][0]] == [3, 3, 100, 100, 299, 299]
    assert request.markers == ["<0.1 seconds>", "<4.0 seconds>", "<12.0 seconds>"]


def test_qwen_as_images(constant):
    request = lmm.messages(prefix_of(constant, [3, 100]), QUESTION, "qwen", pairing="images")
    picture = {"type": "image"}
    content = [text("<0.1 seconds>"), picture, text("<4.0 seconds>"), picture, text(QUESTION)]
    assert request.messages == [{"role": "user", "content": content}]
    assert list(request.inputs) == ["images"]


def test_hf_video_says_the_times(constant):
    request = lmm.messages(prefix_of(constant, [3, 100]), QUESTION, "hf-video")
    said = "The video lasts 12.0 seconds. The 2 frames shown were taken at 0.1s, 4.0s.\nWhat is it?"
    assert request.messages[0]["content"] == [{"type": "video"}, text(said)]
    assert request.inputs["do_sample_frames"] is False
    assert request.markers == ["0.1s", "4.0s"]
    silent = lmm.messages(prefix_of(constant, [3, 100]), QUESTION, "hf-video", tell_times=False)
    assert silent.messages[0]["content"] == [{"type": "video"}, text(QUESTION)]


def test_internvl(constant):
    request = lmm.messages(prefix_of(constant, [3, 100]), QUESTION, "internvl")
    picture = {"type": "image"}
    assert request.messages[0]["content"] == [
        text("Frame1 at 0.1 seconds: "), picture, text("\n"),
        text("Frame2 at 4.0 seconds: "), picture, text("\nWhat is it?"),
    ]  # fmt: skip
    assert request.inputs["crop_to_patches"] is False
    silent = lmm.messages(prefix_of(constant, [3]), QUESTION, "internvl", tell_times=False)
    assert silent.messages[0]["content"][0] == text("Frame1: ")


def test_llava_onevision(constant):
    request = lmm.messages(prefix_of(constant, [3, 100]), QUESTION, "llava-onevision")
    picture = {"type": "image"}
    content = [text("<0.1 seconds>"), picture, text("<4.0 seconds>"), picture, text(QUESTION)]
    assert request.messages[0]["content"] == content
    assert [number_in(np.asarray(p)) for p in request.inputs["images"]] == [3, 100]


CHOICES = [[7], [3, 59], [0, 10, 40], [0, 1, 2, 30, 58, 59], list(range(0, 55, 5))]


@pytest.mark.parametrize("frames", CHOICES, ids=lambda f: f"K={len(f)}")
@pytest.mark.parametrize("rate", ["constant", "variable"])
def test_markers_are_the_true_seconds(rate, frames, request):
    """One frame a marker: exact to 0.1 s. Pairs: halfway between the pair's true times."""
    decoder = request.getfixturevalue(rate)
    prefix = prefix_of(decoder, frames)
    assert decoder.info.constant_rate == (rate == "constant")
    read = {
        pairing: [float(m[1:].split()[0]) for m in paired_markers(video_metadata(prefix, places))]
        for pairing in ("duplicate", "pairs")
        for places in [sent_places(pairing, prefix.seconds.tolist())]
    }
    assert np.abs(np.array(read["duplicate"]) - prefix.seconds).max() <= 0.0501
    true = [*prefix.seconds, *prefix.seconds[-1:]][: len(frames) + len(frames) % 2]
    assert np.abs(np.array(read["pairs"]) - np.array(true).reshape(-1, 2).mean(axis=1)).max() <= 0.0506


def test_variable_rate_goes_by_milliseconds(variable):
    prefix = prefix_of(variable, [0, 10, 59])
    metadata = video_metadata(prefix, range(3))
    assert metadata["fps"] == 1000
    assert metadata["frames_indices"] == [round(1000 * s) for s in prefix.seconds]
    assert metadata["total_num_frames"] > metadata["frames_indices"][-1]


def test_a_lone_frame_is_sent_twice_where_a_pair_is_needed(constant):
    lone = prefix_of(constant, [100])
    for style in ("qwen", "vllm-video"):
        request = lmm.messages(lone, QUESTION, style)
        assert request.markers == ["<4.0 seconds>"]
    assert len(lmm.messages(lone, QUESTION, "qwen").inputs["videos"][0]) == 2
    assert request.extra_body["media_io_kwargs"]["video"]["num_frames"] == 2


def test_pictures_are_original_unless_limited(constant):
    prefix = prefix_of(constant, [3])
    assert lmm.messages(prefix, QUESTION, "internvl").images[0].size == (192, 128)
    small = lmm.messages(prefix, QUESTION, "internvl", limits=lmm.ImageLimits(max_side=96))
    assert small.images[0].size == (96, 64)
    assert number_in(np.asarray(small.images[0])) == 3
    few = lmm.messages(prefix, QUESTION, "internvl", limits=lmm.ImageLimits(max_pixels=3000))
    assert few.images[0].width * few.images[0].height <= 3000
    coarse = lmm.messages(prefix, QUESTION, limits=lmm.ImageLimits(quality=10))
    assert len(coarse.dumps()) < 0.6 * len(
        lmm.messages(prefix, QUESTION, limits=lmm.ImageLimits(quality=95)).dumps()
    )


@pytest.mark.parametrize("style", ["qwen", "hf-video", "internvl", "llava-onevision"])
def test_a_request_for_a_processor_reads_back(constant, style, tmp_path):
    request = lmm.messages(prefix_of(constant, [3, 100, 299]), QUESTION, style, pairing="pairs")
    request.save(tmp_path / "r.json")
    again = lmm.load(tmp_path / "r.json")
    assert (again.messages, again.processor, again.markers) == (
        request.messages,
        request.processor,
        request.markers,
    )
    assert (again.tokens, again.prefix.frames.tolist()) == (request.tokens, [3, 100, 299])
    assert [number_in(np.asarray(p)) for p in again.images] == [3, 100, 299]
    assert again.inputs.keys() == request.inputs.keys()


def test_a_request_for_a_server_is_its_body(constant, tmp_path):
    request = lmm.messages(prefix_of(constant, [3]), QUESTION, "vllm-video")
    request.save(tmp_path / "r.json", model="m")
    assert json.loads((tmp_path / "r.json").read_text()) == request.body("m")


def test_refusals(constant, variable):
    prefix = prefix_of(constant, [3])
    assert get_args(StyleName) == tuple(STYLES)
    with pytest.raises(
        ConfigError, match="there is no style 'phi'; choose from openai, gpt, gemini, vllm-video"
    ):
        lmm.messages(prefix, QUESTION, "phi")
    with pytest.raises(ConfigError, match="pairing 'images' sends no video"):
        lmm.messages(prefix, QUESTION, "vllm-video", pairing="images")
    with pytest.raises(ConfigError, match="must be one of auto, pairs, duplicate, images"):
        lmm.messages(prefix, QUESTION, "qwen", pairing="triples")
    with pytest.raises(ConfigError, match="the question is empty"):
        lmm.messages(prefix, "  ")
    with pytest.raises(ConfigError, match="is for servers"):
        _ = lmm.messages(prefix, QUESTION).inputs
    with pytest.raises(ConfigError, match="a server takes openai or vllm-video"):
        lmm.messages(prefix, QUESTION, "qwen").body()
    with pytest.raises(ConfigError, match="quality = 0"):
        lmm.ImageLimits(quality=0)


def test_a_prefix_alone_is_enough_and_a_changed_video_is_refused(tmp_path):
    from framenest import IndexMismatch

    path = numbered_video(tmp_path / "a.mp4", 20)
    prefix = prefix_of(open_video(path), [3, 7])
    assert lmm.messages(prefix, QUESTION).markers == ["<0.1 seconds>", "<0.3 seconds>"]
    numbered_video(path, 21)
    with pytest.raises(IndexMismatch, match="rank it again"):
        lmm.messages(prefix, QUESTION)
