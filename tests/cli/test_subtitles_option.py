"""--subtitles on the command line: found by itself, named, turned off, and bad files."""

import json
import re

import pytest

from command_line import FAST, run
from media import numbered_video
from scripted_server import ScriptedServer

SRT = "1\n00:00:08,000 --> 00:00:09,500\nWe heated the kiln to twelve hundred degrees.\n"
ASKED = "How hot did the kiln get?"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbered_video(tmp_path / "kiln.mp4", 300)
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n299,0\n")
    (tmp_path / "kiln.srt").write_text(SRT)
    return tmp_path


def rank(capsys, *arguments):
    return run(capsys, "rank", "kiln.mp4", ASKED, "--scorer", "table:scores.csv", *FAST, *arguments)


def test_rank_finds_subtitles_and_says_so(capsys, place, tags_store):
    code, out, _ = rank(capsys, "-o", "ranking.json")
    assert code == 0
    assert "speech\t1 lines of kiln.srt\n" in out
    said = "“We heated the kiln to twelve hundred degrees.”"
    first = re.search(
        rf"^1\t0:0[^\t]*\tevidence\t(.* · )?{said}$", out, re.M
    )  # after what was seen, if anything
    assert first
    code, shown, _ = run(capsys, "show", "ranking.json")
    assert code == 0
    assert first[0] in shown


def test_none_is_as_if_there_were_none(capsys, place, tags_store):
    files = []
    for arguments in (("--subtitles", "none"), ()):
        assert rank(capsys, *arguments, "-o", "ranking.json")[0] == 0
        files.append(json.loads((place / "ranking.json").read_text()))
        (place / "kiln.srt").unlink(missing_ok=True)
    for file in files:
        file["stats"] = None
    assert files[0] == files[1]
    assert "speech" not in files[0]["pool"]["cues"]


def test_bad_subtitles_are_noted_or_refused(capsys, place, tags_store):
    (place / "kiln.srt").write_text("no times in here\n")
    code, out, _ = rank(capsys)
    assert code == 0
    assert "kiln.srt:notasubtitlefile" in "".join(out.split())  # folded anywhere
    for name, said in (
        ("kiln.srt", "not a subtitle file"),
        ("gone.srt", "no such file"),
        ("", "subtitles = '' is not allowed"),
    ):
        code, _, err = rank(capsys, "--subtitles", name)
        assert code == 2
        assert said in err


def test_one_file_is_not_that_of_many_videos(capsys, place):
    numbered_video(place / "other.mp4", 60)
    code, _, err = run(
        capsys, "index", "kiln.mp4", "other.mp4", "--scorer", "none", "--subtitles", "kiln.srt"
    )
    assert code == 2
    assert "--subtitles FILE is for one video" in err


def test_index_says_what_it_found(capsys, place, tags_store):
    code, out, _ = run(capsys, "index", "kiln.mp4", "--scorer", "table:scores.csv", "--set", "base_probes=8")
    assert code == 0
    assert "1 lines of kiln.srt" in out


def test_recall_with_subtitles(capsys, place, tags_store):
    asked = [{"video": "kiln.mp4", "question": ASKED, "intervals": [[8.0, 9.5]]}]
    (place / "qa.json").write_text(json.dumps(asked))
    hits = []
    for arguments in ((), ("--subtitles", "auto")):
        command = (
            "evaluate",
            "recall",
            "qa.json",
            "--scorer",
            "table:scores.csv",
            "--selectors",
            "mec",
            "--budgets",
        )
        assert run(capsys, *command, "1", "--json", "out.json", "--quiet", *arguments)[0] == 0
        hits.append(json.loads((place / "out.json").read_text())["selectors"]["mec"]["1"]["hit"])
    assert hits == [0.0, 1.0]


def test_export_sends_what_is_said(capsys, place, tags_store):
    assert rank(capsys, "-o", "ranking.json")[0] == 0
    for arguments, times in (
        ((), 0),
        (("--with-transcript",), 1),
        (("--with-transcript", "--transcript-tokens", "3"), 0),
    ):
        code, out, _ = run(capsys, "export", "ranking.json", "-k", "4", "-o", "-", *arguments)
        assert code == 0
        assert out.count("twelve hundred degrees") == times
    assert rank(capsys, "-o", "deaf.json", "--subtitles", "none")[0] == 0
    code, _, err = run(capsys, "export", "deaf.json", "-k", "4", "-o", "-", "--with-transcript")
    assert code == 2
    assert "no transcript was found; rank with --subtitles FILE" in err


def test_ask_sends_what_is_said(capsys, place, tags_store):
    with ScriptedServer("Hot.") as server:
        given = (
            "ask",
            "kiln.mp4",
            ASKED,
            "-k",
            "4",
            "--scorer",
            "table:scores.csv",
            "--base-url",
            server.url,
        )
        assert run(capsys, *given, "--with-transcript")[0] == 0
        text = json.dumps(server.requests[-1][2]["messages"])
    assert text.count("twelve hundred degrees") == 1
