"""A file of messages from anyone: every field is checked, and what is wrong is named in one line."""

import json
import math

import pytest

from framenest import MEC, IndexConfig, MECConfig, StoreError, lmm
from json_places import put

SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))


@pytest.fixture(scope="module")
def written(clip, tmp_path_factory):
    prefix = MEC(SMALL, None, store=tmp_path_factory.mktemp("store")).rank(clip, None).prefix(3)
    file = tmp_path_factory.mktemp("messages") / "r.json"
    lmm.messages(prefix, "What is it?", "qwen", pairing="pairs").save(file)
    return json.loads(file.read_text())


def load(data, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(data))
    return lmm.load(tmp_path / "r.json")


def test_what_was_written_is_read(written, tmp_path):
    assert len(load(written, tmp_path).images) == len(written["pictures"]) > 0


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("style", 3, "style must be a string"),
        ("video", [], "video must be an object"),
        ("video.duration", math.nan, "video.duration must be a number"),
        ("budget", 0, "budget must be a whole number, 1 or more"),
        ("frames[1]", -1, r"frames\[1\] must be a whole number, 0 or more"),
        ("frames[1]", 0, "frames must ascend"),
        ("frames[2]", 10**9, "frames must be below 300, the frames of the video"),
        ("seconds[0]", math.inf, r"seconds\[0\] must be a number"),
        ("seconds", [0.0], "seconds has 1 values for 3 frames"),
        ("ranks", [1, 2, "3"], r"ranks\[2\] must be a whole number"),
        ("ranks", [1], "ranks has 1 values for 3 frames"),
        ("complete", 1, "complete must be true or false"),
        ("why", 1, "why must be a string"),
        ("markers", "soon", "markers must be a list"),
        ("tokens", [1, 2], "tokens must be a list of length 3, not 2"),
        ("tokens[1]", 1.5, r"tokens\[1\] must be a whole number"),
        ("messages", {}, "messages must be a list"),
        ("messages[0]", "Hello", r"messages\[0\] must be an object"),
        ("processor", [], "processor must be an object"),
        ("pictures", [], "pictures is empty"),
        ("pictures[1]", 5, r"pictures\[1\] must be a string"),
        ("pictures[1]", "data:image/jpeg;base64,R0lG", r"pictures\[1\] is not an image"),
        ("pictures[1]", "data:image/jpeg;base64,=", r"pictures\[1\] is not an image"),
    ],
)
def test_every_field_is_checked_and_named(written, tmp_path, place, value, said):
    with pytest.raises(StoreError, match=f"damaged messages file: .*{said}") as refused:
        load(put(written, place, value), tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["style", "video", "budget", "frames", "seconds", "ranks", "complete", "markers", "tokens",
     "messages", "processor", "pictures"],
)  # fmt: skip
def test_a_missing_field_is_named(written, tmp_path, name):
    with pytest.raises(StoreError, match=f"damaged messages file: {name} is missing"):
        load({key: value for key, value in written.items() if key != name}, tmp_path)
