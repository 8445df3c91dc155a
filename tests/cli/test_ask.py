"""framenest ask as a user runs it, against a scripted server: answers, citations, the ladder, errors."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from command_line import run
from framenest import BudgetError, Prefix, Ranking, Selection, lmm, open_video
from framenest.cache.directory import DirectoryStore
from framenest.protocols import GUESS, MatchStrength
from framenest.scorers import advice
from framenest.scorers.video_features import VideoFeatures
from scripted_server import ScriptedServer

pytest.importorskip("openai", reason="needs the extra `ask`")
from framenest.lmm.ask import ask
from framenest.lmm.client import Client

SECRET = "sk-very-secret-0123456789"
UNIFORM = ["--selector", "uniform"]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def times_in(turn):
    return [p["text"] for p in turn["content"] if p["type"] == "text" and p["text"].startswith("<")]


def test_an_answer_with_its_citations(capsys, clip):
    with ScriptedServer("A bar code [0.0s] that changes [8.0s].") as server:
        code, out, err = run(capsys, "ask", clip, "What is it?", "-k", 4, "--base-url", server.url, *UNIFORM)
        turn = server.turns()[0]
    assert (code, err) == (0, "")
    assert out.startswith("A bar code [0.0s] that changes [8.0s].")
    assert re.search(r"cited\s+0:00\.0 \(frame 0\)", out)
    assert re.search(r"cited\s+0:08\.0 \(frame 199\)", out)
    assert re.search(r"shown\s+0:00\.0 0:04\.0 0:08\.0 0:12\.0", out)
    assert re.search(r"^4\t4\t100\t7\t", out, re.M)
    assert times_in(turn) == ["<0.0 seconds>", "<4.0 seconds>", "<8.0 seconds>", "<12.0 seconds>"]
    asked = turn["content"][-1]["text"]
    assert asked.startswith("What is it?\nAfter each statement give the times")
    assert "CANNOT TELL" not in asked


def test_what_was_ranked_is_saved_for_the_other_commands(capsys, clip, table, tmp_path):
    output = tmp_path / "asked.json"
    with ScriptedServer("Bars <6.2 seconds>, until 6.4 s.") as server:
        given = ("-k", 4, "--scorer", table, "--base-url", server.url, "-o", output)
        code, out, _ = run(capsys, "ask", clip, "What is it?", *given)
        told = times_in(server.turns()[0])
    assert code == 0
    ranking = Ranking.load(output)
    assert ranking.question == "What is it?"
    assert told == [f"<{second:.1f} seconds>" for second in ranking.prefix(4).seconds]
    assert out.rstrip().endswith(f"written to {output}")
    code, _, err = run(capsys, "ask", clip, "?", "--base-url", server.url, "-o", tmp_path, "--quiet")
    assert (code, "is a directory" in err) == (2, True)


@pytest.mark.parametrize(
    ("question", "step"),
    [
        ("When does the unicorn come?", "framenest models fetch"),
        ("Wann kommt das Einhorn herein?", "tags understands English; ask in English"),
    ],
)
def test_a_guess_is_not_silent(clip, tmp_path, question, step):
    match, store = MatchStrength(0.3, "cannot tell", (), ("unicorn",)), DirectoryStore(tmp_path)
    (hint,) = advice("tags 2 (relative to the video)", question, match, store)
    assert step in hint
    assert advice("tags 2", question, replace(match, verdict="weak"), store) != []
    assert "English" not in str(advice("tags 2", "a cup of coffee", match, store))
    assert advice("tags 2", question, replace(match, verdict="strong"), store) == []
    assert advice("tags 2", question, None, store) == []


def test_a_question_about_text_names_what_reads_it(tmp_path, monkeypatch):
    match, store = MatchStrength(0.3, "weak"), DirectoryStore(tmp_path)
    monkeypatch.setattr("framenest.models.ModelEntry.installed", lambda _: False)
    first, _ = advice("tags 2", "Who directed the film?", match, store)
    assert re.match(r"the question asks for something written; to read it, run: .*\[tags\]", first)
    assert "written" not in advice("tags 2", "When is a cup there?", match, store)[0]


def test_ask_says_that_the_frames_are_a_guess(capsys, clip, table, monkeypatch):
    match = MatchStrength(0.3, "cannot tell", (), ("unicorn",))
    monkeypatch.setattr(VideoFeatures, "match_strength", lambda *_: match)
    with ScriptedServer("A") as server:
        asked = ("ask", clip, "Is there a unicorn?", "-k", 4, "--scorer", table, "--base-url", server.url)
        err = run(capsys, *asked)[2]
    assert f"note: {GUESS}" in err


def test_where_nothing_matches_frames_are_spread_evenly_unless_a_selector_is_named(
    capsys, clip, table, monkeypatch
):
    """The note and the frames sent agree."""
    monkeypatch.setattr(VideoFeatures, "match_strength", lambda *_: MatchStrength(0.01, "none"))
    said = "nothing in this video clearly matches the question; "
    with ScriptedServer("A", "B", "C") as server:
        common = (
            "ask",
            clip,
            "Is there a dog?",
            "-k",
            4,
            "--scorer",
            table,
            "--base-url",
            server.url,
            "--json",
        )
        _, out, err = run(capsys, *common)
        even = json.loads(out)
        _, out, err_named = run(capsys, *common, "--selector", "mec")
        best = json.loads(out)
    assert f"{said}sending frames at even intervals" in err
    assert (even["selector"], [f["frame"] for f in even["frames"]]) == ("uniform", [0, 100, 199, 299])
    assert f"{said}these are the best frames" in err_named
    assert best["selector"] == "mec"
    assert any(150 <= f["frame"] < 160 for f in best["frames"])


def test_a_choice_may_be_a_number_below_zero(capsys, clip):
    with ScriptedServer("B") as server:
        given = (
            "--option",
            "-5",
            "--option",
            "3",
            "--option",
            "-.5",
            "--base-url",
            server.url,
            "-k",
            2,
            "--json",
            *UNIFORM,
        )
        code, _, _ = run(capsys, "ask", clip, "How warm is it?", *given)
        asked = server.turns()[0]["content"][-1]["text"]
    assert code == 0
    assert asked.splitlines()[1:4] == ["A. -5", "B. 3", "C. -.5"]


def test_options_are_lettered_and_json_comes_out(capsys, clip):
    with ScriptedServer("B") as server:
        code, out, _ = run(
            capsys, "ask", clip, "What is it?", "--option", "a cup", "--option", "bars",
            "--base-url", server.url, "-k", 2, "--json", *UNIFORM,
        )  # fmt: skip
        asked = server.turns()[0]["content"][-1]["text"]
    assert code == 0
    assert asked.splitlines()[:3] == ["What is it?", "A. a cup", "B. bars"]
    assert asked.splitlines()[3:] == ["Answer with the option's letter from the given choices directly."]
    data = json.loads(out)
    assert (data["answer"], data["budget"], data["options"]) == ("B", 2, ["a cup", "bars"])
    assert [f["frame"] for f in data["frames"]] == [0, 299]
    assert data["steps"][0]["prompt_tokens"] == 100
    assert (data["selector"], data["model"]) == ("uniform", "scripted")


LADDER = ["-k", "2,4,8", "--base-url"]


def test_the_ladder_goes_up_only_while_the_model_cannot_tell(capsys, clip):
    with ScriptedServer("CANNOT TELL", "It is a bar code.", "never") as server:
        code, out, _ = run(capsys, "ask", clip, "What is it?", *LADDER, server.url, *UNIFORM)
        sizes = [len(times_in(server.turns(i)[0])) for i in range(len(server.requests))]
        offers = ["CANNOT TELL" in server.turns(i)[0]["content"][-1]["text"] for i in range(2)]
    assert code == 0
    assert sizes == [2, 4]
    assert offers == [True, True]
    rows = [line.split("\t") for line in out.splitlines() if re.match(r"[248]\t", line)]
    assert [(row[0], row[-1]) for row in rows] == [("2", "cannot tell"), ("4", "an answer")]


def test_the_last_rung_has_no_way_out(capsys, clip):
    with ScriptedServer("CANNOT TELL") as server:
        _, out, _ = run(capsys, "ask", clip, "What is it?", "--json", *LADDER, server.url, *UNIFORM)
        assert len(server.requests) == 3
        assert "CANNOT TELL" not in server.turns()[0]["content"][-1]["text"]
    steps = json.loads(out)["steps"]
    assert [(s["budget"], s["frames_sent"], s["cannot_tell"]) for s in steps] == [
        (2, 2, True), (4, 4, True), (8, 8, False),
    ]  # fmt: skip


def nested(decoder):
    """Prefixes of 2 and 4 frames, the smaller inside the larger."""
    chosen = {}
    for frames in ([10, 90], [10, 40, 90, 110]):
        numbers = np.array(frames, dtype=np.int64)
        chosen[len(frames)] = Prefix(decoder.info, len(frames), numbers, decoder.seconds[numbers], None)
    return Selection(decoder.info, "What?", "by hand", "none", chosen, {})


def test_a_time_that_was_not_shown_is_no_citation(capsys, clip):
    asks = ("ask", clip, "What is it?", "-k", 4, *UNIFORM)
    with ScriptedServer("Bars [0:00] and a code [20:54].", "Bars [0:00] and a code [20:54].") as server:
        out = run(capsys, *asks, "--base-url", server.url)[1]
        data = json.loads(run(capsys, *asks, "--base-url", server.url, "--json")[1])
    assert re.findall(r"cite[sd]\s+(.*)", out) == ["0:00.0 (frame 0)", "20:54, which was not shown"]
    assert data["not_shown"] == ["20:54"]


def test_a_time_between_two_fused_frames_cites_both(frames):
    """vLLM's processor writes <5.0 seconds> for frames at 1.0 and 9.0."""
    decoder = open_video(frames, fps=10)
    with ScriptedServer("Bars [5.0s].") as server, Client(server.url, "m") as client:
        chosen = nested(decoder)
        asked = ask(client, chosen, "What?", [2], style="vllm-video", pairing="pairs", video=decoder)
    assert asked.cited == [0, 1]


def test_by_default_far_frames_keep_their_own_times(frames):
    decoder = open_video(frames, fps=10)
    with ScriptedServer("Bars [9.0s].") as server, Client(server.url, "m") as client:
        asked = ask(client, nested(decoder), "What?", [2], style="vllm-video", video=decoder)
        sent = server.requests[-1][2]["media_io_kwargs"]["video"]["frames_indices"]
    assert sent == [10, 10, 90, 90]
    assert asked.cited == [1]


def test_a_follow_up_question(frames):
    decoder = open_video(frames, fps=10)
    request = lmm.messages(nested(decoder).prefix(2), "What?", video=decoder)
    with ScriptedServer("Bars.", "Twelve.") as server, Client(server.url, "m") as client:
        first = client.answer(request)
        assert client.answer(request.then(first.text, "How many?")).text == "Twelve."
        assert [turn["role"] for turn in server.turns()] == ["user", "assistant", "user"]
        assert server.turns()[2]["content"] == [{"type": "text", "text": "How many?"}]
    video = lmm.messages(nested(decoder).prefix(2), "What?", "vllm-video", video=decoder)
    assert video.then("Bars.", "How many?").extra_body == video.extra_body


def test_a_budget_ladder_needs_rungs(frames):
    decoder = open_video(frames, fps=10)
    with pytest.raises(BudgetError, match="at least one"):
        ask(None, nested(decoder), "What?", [], video=decoder)


def test_times_can_be_left_out(capsys, clip):
    with ScriptedServer("B") as server:
        run(capsys, "ask", clip, "What?", "-k", 2, "--no-times", "--base-url", server.url, *UNIFORM)
        assert times_in(server.turns()[0]) == []


def test_control_characters_do_not_reach_the_terminal(capsys, clip):
    with ScriptedServer("A\x1b[2J :smile: [bold]kiln") as server:
        _, out, _ = run(capsys, "ask", clip, "What?", "-k", 2, "--base-url", server.url, *UNIFORM)
    assert out.startswith(r"A\x1b[2J :smile: [bold]kiln")
    assert "\x1b" not in out


def test_thinking_is_shown_beside_the_answer(capsys, clip):
    def thinks(handler, body):
        assert body["chat_template_kwargs"] == {"enable_thinking": True}
        handler.stream([{"content": "<think>Hm"}, {"content": ".</think>\n\nB"}])

    with ScriptedServer(thinks) as server:
        code, out, err = run(
            capsys, "ask", clip, "What?", "-k", 2, "--thinking", "on", "--base-url", server.url, *UNIFORM
        )
    assert code == 0
    assert out.startswith("B\n")
    assert "Hm." in err.splitlines()


def test_an_answer_that_was_cut_off_is_noted(capsys, clip):
    def cut(handler, body):
        handler.stream("It is", finish="length")

    with ScriptedServer(cut) as server:
        _, _, err = run(capsys, "ask", clip, "What?", "-k", 2, "--base-url", server.url, *UNIFORM)
    assert "the answer was cut off; raise the limit with --answer-tokens" in err


def test_trouble_is_one_line_and_exit_code_2(capsys, clip, tmp_path):
    def dies(handler, body):
        handler.stream("It is a", die=True)

    too_long = (400, {"error": {"message": "maximum context length is 400 tokens, you requested 900 tokens"}})
    for reply, said in [
        (dies, "broke off mid-answer"),
        (too_long, "3 should fit (-k 3)"),
        ((404, {"error": {"message": "no such model"}}), "does not serve 'other'; it lists scripted"),
        ((401, {"error": {"message": f"bad key {SECRET}"}}), "the API key in $OPENAI_API_KEY was rejected"),
    ]:
        with ScriptedServer(reply) as server:
            given = ["--base-url", server.url, "--model", "other", "--answer-tokens", 10, *UNIFORM]
            code, out, err = run(capsys, "ask", clip, "What?", "-k", 8, *given)
        assert code == 2
        assert said in err
        assert err.splitlines()[-1].startswith("error: ")
        assert SECRET not in out + err
    note = "lists scripted; trying other anyway"
    assert note in err
    code, _, err = run(capsys, "ask", clip, "What?", "--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    assert (code, "cannot connect" in err) == (2, True)


def test_the_key_is_in_no_file(capsys, clip, tmp_path, cache):
    with ScriptedServer("B") as server:
        code, out, err = run(
            capsys, "ask", clip, "What?", "-k", 2, "--json", "--base-url", server.url, *UNIFORM
        )
        assert server.requests[0][1]["authorization"] == f"Bearer {SECRET}"
    assert code == 0
    assert SECRET not in out + err
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not any(SECRET.encode() in file.read_bytes() for file in files)


def test_quiet_prints_the_answer_and_what_it_cites(capsys, clip, tmp_path):
    with ScriptedServer("Bars <4.0 seconds>.") as server:
        given = ("-k", 4, "--selector", "uniform", "--base-url", server.url, "-o", tmp_path / "a.json", "-q")
        code, out, err = run(capsys, "ask", clip, "What is it?", *given)
    assert (code, err) == (0, "")
    assert re.fullmatch(r"Bars <4\.0 seconds>\.\s+cited\t0:04\.0 \(frame 100\)\n", out), out


TOO_MANY = (400, {"error": {"message": "At most 3 image(s) may be provided in one prompt."}})


def test_a_limit_of_images_is_read_from_the_error(capsys, clip, table):
    """The best frames that fit are sent instead."""
    with ScriptedServer(TOO_MANY, "Bars.") as server:
        given = ("-k", "8,16", "--scorer", table, "--base-url", server.url)
        code, out, err = run(capsys, "ask", clip, "What?", *given)
        assert code == 0
        assert [len(times_in(server.turns(number)[0])) for number in (0, 1)] == [8, 3]
        assert "CANNOT TELL" not in server.turns()[0]["content"][-1]["text"]  # there are no more to ask for
    assert f"{server.url} takes at most 3 images; it got the best 3 frames" in err
    assert re.search(r"^3\t3\t", out, re.M)


def test_a_limit_of_images_is_kept(clip, ranking):
    chosen = Ranking.load(ranking)
    with ScriptedServer(TOO_MANY, "Bars.") as server, Client(server.url) as client:
        replies = [ask(client, chosen, "What?", 8) for _ in range(2)]
        assert [len(times_in(server.turns(number)[0])) for number in range(3)] == [8, 3, 3]
    assert {tuple(reply.prefix.frames) for reply in replies} == {tuple(chosen.prefix(3).frames)}


def test_a_budget_in_tokens(capsys, clip, table):
    """Of 96 × 64, an image is 10 × 7 cells: five fit into 400 tokens."""
    given = ("--scorer", table, "--tokens", 400, "--tiers")
    with ScriptedServer("Bars.") as server:
        assert run(capsys, "ask", clip, "What?", *given, "--base-url", server.url)[0] == 0
        assert len(times_in(server.turns()[0])) == 5
        asked = len(server.requests)
        for wrong, why in (
            (["-k", 8], "--budget has no effect: --tokens says how many frames"),
            (["--selector", "uniform"], "--tokens is for the selector mec, not for uniform; give -k"),
            (["--style", "vllm-video"], "--tiers has no effect: the frames of a video have one size"),
        ):
            code, _, err = run(capsys, "ask", clip, "What?", *given, *wrong, "--base-url", server.url)
            assert (code, why in err) == (2, True), err
        code, _, err = run(capsys, "ask", clip, "What?", "--tiers", "--base-url", server.url)
        assert (code, "--tiers has no effect: only --tokens has tiers" in err) == (2, True)
        assert len(server.requests) == asked


def test_a_server_that_refuses_what_it_allows(capsys, clip):
    with ScriptedServer(TOO_MANY, models=["m"]) as server:
        code, _, err = run(capsys, "ask", clip, "What?", "-k", 8, "--base-url", server.url, *UNIFORM)
    assert (code, len(server.requests)) == (2, 2)
    assert "answered 400: At most 3 image(s) may be provided" in err
