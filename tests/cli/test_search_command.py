"""framenest search."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieval"))
from colours import ColourScorer, colour_video

from command_line import run
from framenest import open_video
from plugin_packages import write_metadata


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A folder of three videos, and the scorer `colours` as an installed package, in workers too."""
    site = tmp_path / "site"
    write_metadata(site, "colours", "1", {"framenest.scorers": {"colours": "colours:ColourScorer"}})
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "retrieval")
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "library"
    folder.mkdir()
    colour_video(folder / "a.mp4", ("grey", 8), ("red", 4), ("grey", 8))
    colour_video(folder / "b.mp4", ("grey", 20), ("red", 2))
    colour_video(folder / "c.mp4", ("green", 20))
    return folder


def search(capsys, *arguments):
    return run(capsys, "search", *arguments, "--scorer", "colours", "--jobs", 2)


def test_moments_best_first(capsys, library):
    code, out, err = search(capsys, "something red", library)
    assert code == 0
    heading, first, second = (line.split("\t") for line in out.splitlines())
    assert heading == ["score", "from", "to", "best", "video", "why"]
    assert (first[1:3], first[4:]) == (["0:08.0", "0:12.0"], ["library/a.mp4", "looks like “something red”"])
    assert second[4] == "library/b.mp4"
    assert "3 videos done" in err
    code, again, err = run(capsys, "search", "something red", "--scorer", "colours")
    assert [line.split("\t")[:4] for line in again.splitlines()] == [heading[:4], first[:4], second[:4]]
    assert "done" not in err


def test_quiet_prints_the_moments_alone(capsys, library):
    code, out, err = search(capsys, "red", library, "--quiet")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 3


def test_json_is_one_object(capsys, library):
    code, out, _ = search(capsys, "red", library, "--json", "-n", 1)
    data = json.loads(out)
    (moment,) = data.pop("moments")
    assert data == {"query": "red", "verdict": "weak", "knows": [], "does_not_know": [], "summary": ""}
    assert code == 0
    assert list(moment)[:4] == ["video", "start", "end", "time"]
    assert {"score", "why", "source", "frame", "confident"} < set(moment)
    data = json.loads(search(capsys, "blue", library, "--json")[1])
    assert (data["verdict"], data["moments"]) == ("none", [])


def test_search_says_no(capsys, library, monkeypatch):
    monkeypatch.setattr(ColourScorer, "known_words", lambda *_: (("red",), ("unicorn",)), raising=False)

    def nothing(scorer, encoded, _):
        return np.zeros(len(encoded["colour"]), dtype=bool)

    monkeypatch.setattr(ColourScorer, "clearly_shows", nothing, raising=False)
    assert run(capsys, "index", library, "--scorer", "colours")[0] == 0
    code, out, _ = run(capsys, "search", "red unicorn", "--scorer", "colours")
    assert code == 0
    facts, _, *rows = out.splitlines()
    told = "nothing clearly matches; these moments are the nearest"
    assert facts == f"match weak  {told} (the scorer knows: red; does not know: unicorn)"
    assert all(re.match(r"weak \d\.\d\d\t", row) for row in rows)
    assert "nothing clearly matches (the" in run(capsys, "search", "blue", "--scorer", "colours")[1]


def test_clips_and_sheet(capsys, library, tmp_path):
    clips, sheet = tmp_path / "clips", tmp_path / "s.png"
    code, out, _ = search(capsys, "red <b>", library, "--to", clips, "--sheet", sheet)
    assert code == 0
    assert "2 clips in" in out
    assert [file.name for file in sorted(clips.iterdir())] == [
        "01_a_t000008.00s.mp4",
        "02_b_t000020.00s.mp4",
    ]
    assert open_video(clips / "01_a_t000008.00s.mp4").info.duration == pytest.approx(4 + 2 * 3)
    with Image.open(sheet) as drawn:
        assert drawn.width > drawn.height > 200


def test_videos_that_fail_are_reported_and_the_rest_is_searched(capsys, library, tmp_path):
    (library / "bad.mp4").write_text("no video")
    report = tmp_path / "failures.jsonl"
    code, out, err = search(capsys, "red", library, "--failures", report)
    assert code == 1
    assert "library/a.mp4" in out
    assert json.loads(report.read_text())["video"].endswith("bad.mp4")
    assert "1 video could not be searched: " in err
    assert "bad.mp4" in err


def test_one_line_for_each_kind_of_bad_input(capsys, library, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "bad.mp4").write_text("no video")
    for arguments, words in (
        (["red"], "nothing is indexed yet; give videos to index"),
        (["…", library], "has no words"),
        (["red", tmp_path / "empty"], "no videos found"),
        (["red", tmp_path / "gone.mp4"], "no such file"),
        (["red", tmp_path / "broken"], "no video can be searched"),
    ):
        code, out, err = search(capsys, *arguments)
        assert (code, out) == (2, "")
        assert words in err.splitlines()[-1]
    code, _, err = run(capsys, "search", "red", library, "--scorer", "tags")
    assert code == 2
    assert "framenest models fetch tags" in err
    code, _, err = run(capsys, "search", "red", library, "--scorer", f"table:{_table(tmp_path)}")
    assert code == 2
    assert "cannot search many videos" in err


def _table(folder):
    (folder / "scores.csv").write_text("frame,score\n0,0\n9,1\n")
    return folder / "scores.csv"


def test_index_keeps_the_vectors(capsys, library):
    assert run(capsys, "index", library, "--scorer", "colours")[0] == 0
    code, out, err = run(capsys, "search", "red", "--scorer", "colours", "--json")
    assert code == 0
    assert err == ""
    assert [Path(moment["video"]).name for moment in json.loads(out)["moments"]] == ["a.mp4", "b.mp4"]


def test_an_index_made_before_there_were_vectors_gets_them_without_decoding(capsys, library, cache):
    run(capsys, "index", library, "--scorer", "colours")
    for kind in ("vectors", "finished"):
        for file in (cache / kind).rglob("*.safetensors"):
            file.unlink()
    for file in (cache / "features").rglob("*.safetensors"):
        file.touch()
    code, out, _ = search(capsys, "red", library)
    assert code == 0
    assert "library/a.mp4" in out
