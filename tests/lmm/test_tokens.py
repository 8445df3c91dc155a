"""Token estimates, worked by hand."""

import pytest

from framenest.image_tokens import QWEN_VIDEO, image_cells
from framenest.lmm.messages import estimate
from framenest.lmm.prompt import DIRECTLY, cannot_tell, citations, cited_places, full_question, not_shown


def test_qwen_images():
    assert image_cells(640, 352) == 20 * 11
    assert image_cells(64, 64) == 8 * 8  # enlarged to 65,536 pixels
    assert image_cells(8192, 8192) == 128 * 128  # shrunk to 16,777,216


def test_qwen_video_shares_its_pixels_among_the_frames():
    assert image_cells(640, 352, limits=QWEN_VIDEO, count=8) == 20 * 11
    # 256 frames of 1920 × 1080 into 25,165,824 pixels: by √21.09, 418.0 × 235.1, down to whole cells
    assert image_cells(1920, 1080, limits=QWEN_VIDEO, count=256) == 13 * 7


@pytest.mark.parametrize(
    ("style", "pairing", "frames"),
    [
        ("openai", "pairs", 5 * 220),
        ("vllm-video", "pairs", 3 * 220),
        ("qwen", "pairs", 3 * 220),
        ("qwen", "duplicate", 5 * 220),
        ("qwen", "images", 5 * 220),
        ("hf-video", "pairs", 5 * 196),
        ("hf-video", "duplicate", 10 * 196),
        ("internvl", "pairs", 5 * 256),
        ("llava-onevision", "pairs", 5 * 23 * 13),
    ],
)
def test_each_style(style, pairing, frames):
    tokens = estimate(style, [1.0, 2.0, 3.0, 4.0, 5.0], [(640, 352)] * 5, "x" * 40, pairing=pairing)
    assert tokens.frames == frames
    assert tokens.text == 26
    assert tokens.total == tokens.frames + tokens.times + tokens.text


def test_options():
    for given, lettered in (
        (["A. x", "B. y"], "A. x\nB. y"),
        (["(A) x", "(B) y"], "A. x\nB. y"),
        (["A) x", "B) y"], "A. x\nB. y"),
        (["x", "y"], "A. x\nB. y"),
        (["B. x", "A. y"], "A. B. x\nB. A. y"),  # not in order: not their letters
        (["A", "B"], "A. A\nB. B"),
        (["A cup", "B"], "A. A cup\nB. B"),
    ):
        assert full_question("What?", given) == f"What?\n{lettered}\n{DIRECTLY}"


def test_cannot_tell():
    assert all(map(cannot_tell, ["CANNOT TELL", " Cannot tell.\n", "**CANNOT TELL**", "'cannot tell'"]))
    said = ["CANNOT TELL. The frames do not show it.", "Cannot tell:\nno kiln", "CANNOT TELL\n\nThey do not."]
    assert all(map(cannot_tell, said))
    assert not cannot_tell("Cannot tell, but most likely B")
    assert not any(map(cannot_tell, ["", "A", "I cannot tell", "cannot tell whether it is B, so A"]))


def test_cited():
    seconds = [0.04, 12.34, 61.0]
    assert cited_places("It is red [0.0s] and [61.0 seconds].", seconds) == [0, 2]
    assert cited_places("between [12.3s, 61.0s]", seconds) == [1, 2]
    assert cited_places("at [1:01] and [0:00:12.3]", seconds) == [1, 2]
    assert cited_places("at 12.3 seconds, [frame 5]", seconds) == [1]


@pytest.mark.parametrize(
    ("answer", "places"),
    [
        ("It opens <9.9 seconds>.", [1]),
        ("It opens [9.9s].", [1]),
        ("It opens at 9.9 s, closes after 61.0 seconds.", [1, 2]),
        ("from 0:10 to 1:01", [1, 2]),
        ("[10s] and [59 s]", [1, 2]),  # to the nearest frame
        ("halfway [5.0s], [55 s] and [1:00:00]", []),
        ("for 30 s, at 9.1 s", []),  # no frame was taken then
        ("see [1], [61], [9.9]", [1, 2]),  # a footnote, and numbers that are times
        ("a ratio of 16:9 in 4:3", []),
        ("<b>bold</b> <think>", []),
    ],
)
def test_times_are_recognised_as_they_were_sent(answer, places):
    assert cited_places(answer, [0.04, 9.93, 61.0]) == places
    assert cited_places(answer, []) == []


def test_citations_say_where_they_stand():
    answer = "A kiln 🔥 [9.9s, 61.0 seconds], for 30 s; it ends at 1:01."
    found = [(answer[start:end], places) for start, end, places in citations(answer, [0.04, 9.93, 61.0])]
    assert found == [("9.9s", [1]), ("61.0 seconds", [2]), ("1:01", [2])]


def test_times_that_were_not_shown_cite_no_frame():
    answer = "A shelf [20:54], [20:54], a kiln [20:26.9] and [20:28]; for 30 s, see [3]."
    seconds = [1200.0, 1226.9]
    assert cited_places(answer, seconds) == [1]
    assert not_shown(answer, seconds) == ["20:54"]
    assert not_shown("between [1200.9s, 1213.4s]", [1200.0, 1201.0]) == ["1213.4s"]


def test_frames_of_one_told_time_are_cited_together():
    assert cited_places("[5.1s]", [5.0, 5.0, 5.3]) == [0, 1]
    assert cited_places("[5.0s]", [5.01, 5.04]) == [0, 1]
