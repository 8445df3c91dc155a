"""ask --rewrite: the model writes what to look for, and the frames are chosen for that."""

import json

import pytest

from command_line import run
from framenest import Ranking
from framenest.lmm.ask import descriptions
from scripted_server import ScriptedServer


@pytest.fixture
def table(tmp_path):
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n149,0\n150,1\n151,0\n299,0\n")
    return f"table:{tmp_path / 'scores.csv'}"


@pytest.mark.parametrize(("answer", "found"), [
    ("A kiln\nCups", ("A kiln", "Cups")),
    ("Here are some:\n\n- A kiln.\n* **Cups**\n3) \"A shelf\"", ("A kiln.", "Cups", "A shelf")),
    ("a\nb\nc\nd\ne\na", ("a", "b", "c", "d")),
    ("a\na", ("a",)),
    ("", ()),
    ("Descriptions:\n", ()),
    ("x" * 999, ("x" * 200,)),
])  # fmt: skip
def test_descriptions_in_an_answer(answer, found):
    assert descriptions(answer) == found


def test_the_model_writes_what_is_looked_for(capsys, clip, table, tmp_path):
    with ScriptedServer("1. A glowing kiln\n2. Cups on a shelf", "Cups.") as server:
        given = ("-k", "4", "--scorer", table, "--base-url", server.url, "-o", tmp_path / "r.json", "--json")
        look = ("--rewrite", "--look-for", "hands", "--option", "cups", "--option", "tiles")
        code, out, err = run(capsys, "ask", clip, "What is fired?", *given, *look)
        first, second = [request[2]["messages"][-1]["content"] for request in server.requests[-2:]]
    assert code == 0
    assert [part["type"] for part in first] == ["text"]  # no pictures
    assert "Question: What is fired?\nA. cups\nB. tiles" in first[0]["text"]
    assert [part["type"] for part in second].count("image_url") == 4
    assert "looking for: hands; A glowing kiln; Cups on a shelf" in err
    kept = Ranking.load(tmp_path / "r.json").look_for
    assert kept.texts == ("hands", "A glowing kiln", "Cups on a shelf")
    assert kept.written_by == "scripted"
    assert json.loads(out)["look_for"]["written_by"] == "scripted"


def test_a_model_that_writes_nothing_is_an_error(capsys, clip, table):
    with ScriptedServer("Sure:", "Cups.") as server:
        code, _, err = run(
            capsys, "ask", clip, "What?", "-k", "4", "--scorer", table, "--base-url", server.url, "--rewrite"
        )
    assert code == 2
    assert "wrote no descriptions; ask without rewriting" in err


def test_rewriting_is_for_mec(capsys, clip):
    with ScriptedServer("Cups.") as server:
        given = ("--base-url", server.url, "--rewrite", "--selector", "uniform")
        code, _, err = run(capsys, "ask", clip, "What?", "-k", "4", *given)
        asked = len([request for request in server.requests if request[2]])
    assert (code, asked) == (2, 0)
    assert "--rewrite is for the selector mec, not for uniform" in err


def test_a_question_that_is_too_long_for_the_model(capsys, clip, table):
    told = "This model's maximum context length is 64 tokens. However, your request has 180 input tokens."
    with ScriptedServer(
        (400, {"error": {"message": told, "type": "BadRequestError", "code": 400}})
    ) as server:
        given = ("-k", "4", "--scorer", table, "--base-url", server.url, "--rewrite")
        code, _, err = run(capsys, "ask", clip, "What?", *given)
    assert code == 2
    assert "the question alone exceeds the context (64 tokens)" in err
