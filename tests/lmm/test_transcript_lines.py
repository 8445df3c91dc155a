"""What is said, beside the frames of a message in every style."""

import json

import pytest

from framenest.lmm.messages import STYLES, messages, said_beside
from framenest.selectors import load_selector
from framenest.session import Session
from framenest.transcript import Line, Transcript

SAID = Transcript("a.srt", (Line(0.2, 1.0, "Good morning."), Line(6.0, 7.0, "Now we fire it.")))


@pytest.fixture
def prefix(clip):
    return load_selector("uniform", Session(None)).select(clip, None, [4]).prefix(4)  # 0, 4, 8 and 12 s


def test_every_line_once_beside_the_nearest_frame():
    lines = (Line(1.0, 2.0, "a"), Line(3.0, 4.0, "b"), Line(3.5, 9.0, "c"), Line(40.0, 41.0, "far"))
    assert said_beside([0.0, 4.0, 10.0], Transcript("", lines)) == ['Said: "a"', 'Said: "b c"', ""]


def test_the_farthest_lines_go_first_where_there_is_no_room():
    lines = [Line(float(i), i + 0.5, "four words are here") for i in range(10)]
    said = said_beside([0.0, 9.0], Transcript("", tuple(lines)), tokens=12)  # six tokens a line
    assert said == ['Said: "four words are here"', 'Said: "four words are here"']
    assert said_beside([0.0], Transcript("", tuple(lines)), tokens=1) == [""]
    assert said_beside([0.0, 9.0], None) == ["", ""]


@pytest.mark.parametrize("style", STYLES)
def test_every_style_carries_it(prefix, clip, style):
    plain = messages(prefix, "What is fired?", style, video=clip)
    request = messages(prefix, "What is fired?", style, video=clip, transcript=SAID)
    text = json.dumps(request.messages)
    assert text.count("Good morning.") == text.count("Now we fire it.") == 1
    assert text.index("Good morning.") < text.index("Now we fire it.") < text.index("What is fired?")
    assert "Good morning." not in json.dumps(plain.messages)
    assert request.tokens.text > plain.tokens.text
    assert request.tokens.frames == plain.tokens.frames


def test_it_stands_after_its_frame(prefix, clip):
    content = messages(prefix, "What is fired?", video=clip, transcript=SAID).messages[0]["content"]
    kinds = [part.get("text", "image")[:8] for part in content]
    first, second, third, fourth = (
        ["<0.0 sec", "image"],
        ["<4.0 sec", "image"],
        ["<8.0 sec", "image"],
        ["<12.0 se"],
    )
    assert kinds == [*first, 'Said: "G', *second, *third, 'Said: "N', *fourth, "image", "What is "]
