"""Ranking and selection files from elsewhere: what is wrong in them is named."""

import json
import math

import pytest

from command_line import run
from framenest import MEC, IndexConfig, MECConfig, Ranking, VideoError
from framenest.errors import IndexMismatch, StoreError
from framenest.report.document import document
from framenest.report.page import page
from framenest.selectors import load_selector
from framenest.selectors.selection import Selection, load_result
from framenest.session import Session
from framenest.video.opening import reopen
from json_places import put

SMALL = MECConfig(IndexConfig(base_probes=12, extra_probes=0))
EVIL = "\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e"
"""Writes to the clipboard, clears the screen, turns the direction of writing."""


@pytest.fixture
def saved(clip, tmp_path):
    """(file, its content) of a ranking."""
    file = tmp_path / "ranking.json"
    MEC(SMALL, None).rank(clip, None).save(file)
    return file, json.loads(file.read_text())


@pytest.fixture
def selected(clip, tmp_path):
    file = tmp_path / "selection.json"
    load_selector("uniform", Session(None)).select(clip, None, [2, 4]).save(file)
    return file, json.loads(file.read_text())


NUMBERS = [
    "video.num_frames", "video.duration", "video.fps", "video.width", "video.height", "video.start",
    "stats.candidates", "stats.decoded", "stats.largest_gap_seconds", "pool.num_frames", "pool.frames[1]",
    "pool.seconds[3]", "pool.evidence[0]", "pool.cues.change[2]", "ranks[0].rank", "ranks[1].frame",
    "ranks[2].seconds", "ranks[0].evidence", "ranks[0].coverage",
]  # fmt: skip


@pytest.mark.parametrize("place", NUMBERS)
def test_every_number_of_a_ranking_is_checked_and_named(saved, place):
    file, data = saved
    for value in (math.nan, math.inf, -math.inf, 1e300, 10**30, "7", None, [], True):
        file.write_text(json.dumps(put(data, place, value)))
        with pytest.raises(StoreError) as refused:
            Ranking.load(file)
        assert f"damaged ranking file: {place} must be" in str(refused.value), value
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("video", [], "video must be an object"),
        ("video.path", 3, "video.path must be a string"),
        ("video.path", "", "video.path is empty"),
        ("video.width", 0, "video.width must be a whole number, 1 or more"),
        ("video.duration", -1.0, "video.duration must be a number, 0 or more"),
        ("question", 5, "question must be a string"),
        ("options", "ab", "options must be a list"),
        ("options", [1], r"options\[0\] must be a string"),
        ("scorer", None, "scorer must be a string"),
        ("pool.is_zoom[1]", 1, r"pool.is_zoom\[1\] must be true or false"),
        ("pool.frames[1]", -1, r"pool.frames\[1\] must be a whole number, 0 or more"),
        ("pool.frames[1]", 10**9, "pool.frames must be below 300, the frames of the video"),
        ("pool.frames[1]", 0, "pool.frames must ascend"),
        ("pool.seconds[1]", 1e9, "pool.seconds must be at most 12, the duration of the video"),
        ("pool.seconds", [], "pool.seconds has 0 values"),
        ("pool.cues.change", [0.5], "pool.cues.change has 1 values"),
        ("pool.anchors", [0.5], r"pool.anchors\[0\] must be a whole number"),
        ("ranks", [], "ranks is empty"),
        ("ranks[1].rank", 1, r"ranks\[1\].rank must be 2"),
        ("ranks[0].from", 1, r"ranks\[0\].from must be a string"),
        ("pool.cues.smell", [], "pool.cues cannot be 'smell'"),
        ("pool.active", [3], "pool.active must be below 3, the segments of the probes"),
        ("config.discovery", 3, "config.discovery must be an object"),
        ("config.discovery", {"zoom": 1, "zom": 2}, "config.discovery has an unknown setting: zom"),
        ("config.other", {"zoom": 1}, "config.other has an unknown setting: other"),
        ("stats.seconds", {"order": "fast"}, "stats.seconds.. must be a number"),
        ("stats.match", {"value": 2, "verdict": "none"}, "stats.match.value must be a number"),
        ("stats.match", {"value": 0.5, "verdict": "x"}, "stats.match.verdict cannot be 'x'"),
    ],
)
def test_every_field_of_a_ranking_is_checked_and_named(saved, place, value, said):
    file, data = saved
    file.write_text(json.dumps(put(data, place, value)))
    with pytest.raises(StoreError, match=f"damaged ranking file: {said}"):
        load_result(file)


def test_what_can_be_read_can_be_shown(saved):
    """Whatever single value was changed. The service makes anew what cannot be read."""
    file, data = saved
    values = (
        10**400,
        2**53,
        -1,
        0,
        1e15,
        5e-324,
        math.nan,
        "",
        "\ud800",
        None,
        [],
        {},
        True,
        [[1]],
        {"a": [1]},
    )
    for place in _places(data):
        for value in values:
            file.write_text(json.dumps(put(data, place, value)))
            try:
                ranking = load_result(file)
            except (StoreError, IndexMismatch) as error:
                assert "\n" not in str(error)  # noqa: PT017 - named
                continue
            assert page(document([ranking]), {})
            assert ranking.dumps()
            assert ranking.prefix(1).frames.size == 1


def _places(data, path=""):
    """The place of every value; of a list, its first and its last."""
    keys = (
        data
        if isinstance(data, dict)
        else {0: 0, len(data) - 1: 0}
        if isinstance(data, list) and data
        else {}
    )
    for key in keys:
        place = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")
        yield place
        yield from _places(data[key], place)


@pytest.mark.parametrize(
    "name", ["video", "question", "options", "scorer", "config", "stats", "ranks", "pool"]
)
def test_a_missing_field_is_named(saved, name):
    file, data = saved
    del data[name]
    file.write_text(json.dumps(data))
    with pytest.raises(StoreError, match=f"{name} is missing"):
        Ranking.load(file)


def test_a_frame_that_is_ranked_twice_or_is_no_candidate(saved):
    file, data = saved
    for frame, said in ((data["ranks"][0]["frame"], "is ranked twice"), (1, "is not a candidate")):
        file.write_text(json.dumps(put(data, "ranks[1].frame", frame)))
        with pytest.raises(StoreError, match=rf"ranks\[1\].frame {said}"):
            Ranking.load(file)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("budgets", {}, "budgets is empty"),
        ("budgets", {"-1": {}}, "is not a budget"),
        ("budgets.2.frames", [0, math.nan], r"frames\[1\] must be a whole number"),
        ("budgets.2.frames", [5, 3], "frames must ascend"),
        ("budgets.2.seconds", [0.0], "seconds has 1 values"),
        ("budgets.2.seconds", [0.0, math.inf], r"seconds\[1\] must be a number"),
        ("budgets.2.ranks", [1, "2"], r"ranks\[1\] must be a whole number"),
        ("budgets.2.complete", 1, "complete must be true or false"),
        ("selector", 3, "selector must be a string"),
        ("stats.wall_seconds", math.inf, "not JSON compliant"),
        ("video.num_frames", 0, "video.num_frames must be a whole number"),
    ],
)
def test_every_field_of_a_selection_is_checked_and_named(selected, place, value, said):
    file, data = selected
    file.write_text(json.dumps(put(data, place, value)))
    with pytest.raises(StoreError, match=f"damaged selection file.* .*{said}"):
        Selection.load(file)


@pytest.mark.parametrize("place", ["ranks", "pool.seconds[0]", "video.duration"])
def test_a_report_is_refused_rather_than_blank(saved, capsys, tmp_path, place):
    file, data = saved
    file.write_text(json.dumps(put(data, place, [] if place == "ranks" else math.nan)))
    code, _, err = run(capsys, "report", file, "-o", tmp_path / "report.html")
    assert code == 2
    assert place in err
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("place", ["question", "scorer", "video.path", "video.notes"])
def test_control_characters_of_a_ranking_do_not_reach_the_terminal(saved, capsys, place):
    file, data = saved
    file.write_text(json.dumps(put(data, place, [EVIL] if place == "video.notes" else f"/tmp/{EVIL}")))
    code, out, err = run(capsys, "show", file)
    assert code == 0
    assert not set(EVIL) & set("\x1b\x07\x9b\u202e") & set(out + err)
    code, _, err = run(capsys, "extract", file, "-k", 2, "--to", file.parent / "frames")
    assert not set("\x1b\x07\x9b\u202e") & set(err)


def test_control_characters_of_names_and_errors_do_not_reach_the_terminal(saved, selected, capsys):
    for file, data, place in ((*selected, "selector"), (*saved, f"pool.cues.{EVIL}")):
        file.write_text(json.dumps(put(data, place, f"x{EVIL}")))
        _, out, err = run(capsys, "show", file)
        assert not set("\x1b\x07\x9b\u202e") & set(out + err)


def test_an_address_in_a_ranking_file_is_not_fetched_unless_asked(saved, selected, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("framenest.video.pyav.find", lambda url, *_, **__: asked.append(url) or 1 / 0)
    address = "http://127.0.0.1:9/clip.mp4"
    for file, data in (saved, selected):
        file.write_text(json.dumps(put(put(data, "video.path", address), "question", "What?")))
        with pytest.raises(
            VideoError, match=r"refusing to fetch a URL named in a ranking file; give it with video="
        ):
            reopen(load_result(file).video)
        for command in (
            ("extract", file, "-k", 2, "--to", file.parent / "frames"),
            ("report", file, "-o", file.parent / "report.html"),
            ("export", file, "-k", 2, "-o", file.parent / "request.json"),
        ):
            code, _, err = run(capsys, *command)
            assert (code, "refusing to fetch a URL" in err) == (2, True), command
    assert asked == []
    run(capsys, "extract", file, "-k", 2, "--to", file.parent / "frames", "--video", address)
    assert asked == [address]


def test_a_file_cannot_say_that_it_is_no_file(saved):
    file, data = saved
    data["video"]["from_file"] = False
    file.write_text(json.dumps(data))
    assert Ranking.load(file).video.from_file
