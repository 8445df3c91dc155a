"""`framenest evaluate qa` against a fake server in OpenAI's protocol: it says what it was told to say."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
import toy_benchmarks

from framenest.cli import main
from framenest.evaluation.qa_results import QaResults
from framenest.evaluation.selection_cache import SelectionCache
from processes import PATIENCE
from scripted_server import ScriptedServer, completion

pytest.importorskip("openai", reason="needs the extra `ask`")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys") / "home"
    toy_benchmarks.write_home(folder)
    return folder


@pytest.fixture
def place(home, tmp_path, monkeypatch):
    """Annotations, videos and scores; the working directory of each test."""
    shutil.copytree(home, tmp_path / "home")
    (tmp_path / "scores.json").write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


def arguments(server, *more, dataset="videomme", annotations="videomme", videos="videomme"):
    return [
        "evaluate", "qa", "--dataset", dataset, "--annotations", f"home/{annotations}.json",
        "--videos", f"home/{videos}", "--base-url", server.url, "--scorer", "table:scores.json",
        "--budgets", "2,4", "--jobs", "3", *more,
    ]  # fmt: skip


def run(*given):
    with pytest.raises(SystemExit) as stopped:
        main([*given])
    return stopped.value.code


def pictures(body):
    return sum(part["type"] == "image_url" for part in body["messages"][-1]["content"])


def says_b_with_four_frames(handler, body):
    handler.send_json(200, completion("B" if pictures(body) == 4 else "The answer is A."))


def test_a_benchmark_with_two_selectors_and_two_budgets(place, capsys):
    with ScriptedServer(says_b_with_four_frames) as server:
        assert run(*arguments(server)) == 0
        asked = server.requests
    assert len(asked) == 6 * 2 * 2
    assert Counter(pictures(body) for _, _, body in asked) == {2: 12, 4: 12}
    text = asked[0][2]["messages"][-1]["content"][-1]["text"]
    assert text.endswith("D. Four.\nAnswer with the option's letter from the given choices directly.")
    assert "subtitles" not in text
    assert {(b["temperature"], b["max_tokens"]) for _, _, b in asked} == {(0.0, 1024)}
    assert asked[0][2]["chat_template_kwargs"] == {"enable_thinking": False}

    records = QaResults("results.jsonl").answers()
    assert {r["choice"] for r in records if r["budget"] == 2} == {"A"}
    assert {r["choice"] for r in records if r["budget"] == 4} == {"B"}
    assert all(r["correct"] == (r["choice"] == r["answer"]) for r in records)
    printed = capsys.readouterr().out
    header = next(line for line in printed.splitlines() if "Selector" in line)
    columns = [
        "K",
        "Selector",
        "Short",
        "Medium",
        "Long",
        "Overall",
        "Non-Lin.",
        "Micro",
        "Acc.",
        "LVB",
        "MLVU",
    ]
    assert header.split() == columns
    # answers are A B C D A B: two As, two Bs
    rows = [line.split() for line in printed.splitlines() if line.split()[1:2] == ["mec"]]
    assert [row[5] for row in rows] == ["33.33", "33.33"]


def test_a_second_run_asks_nothing_and_a_new_budget_selects_nothing(place):
    with ScriptedServer("A") as server:
        assert run(*arguments(server)) == 0
        first = len(server.requests)
        assert run(*arguments(server)) == 0
        assert len(server.requests) == first
        assert run(*arguments(server, "--budgets", "2,4,6", "--selectors", "mec")) == 0
        assert len(server.requests) == first + 6
    new = [r for r in QaResults("results.jsonl").answers() if r["budget"] == 6]
    assert all(r["selection"]["kept"] for r in new)


def test_a_killed_run_goes_on_where_it_was(place):
    """SIGKILL in mid-work: nothing that was answered is asked again, nothing is lost."""
    killed = threading.Event()

    def reply(handler, body):
        if len(server.requests) > 8:
            killed.wait(PATIENCE)
        handler.send_json(200, completion("A"))

    with ScriptedServer(reply) as server:
        command = [sys.executable, "-m", "framenest", *arguments(server), "--quiet"]
        work = subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while len(server.requests) < 9:  # three at a time, so that six are answered and written
            assert work.poll() is None
            time.sleep(0.01)
        work.send_signal(signal.SIGKILL)
        work.wait()
        killed.set()
        answered = [r for r in QaResults("results.jsonl").answers() if r["error"] is None]
        before = len(server.requests)
        assert 0 < len(answered) <= 8
        assert run(*arguments(server)) == 0
        assert len(server.requests) - before == 24 - len(answered)
    done = QaResults("results.jsonl").answers()
    assert len(done) == 24
    assert all(record["error"] is None for record in done)


def test_reasoning_is_not_the_answer(place):
    with ScriptedServer("<think>Could be A. Or C? The answer is D.</think>\n\nB") as server:
        assert run(*arguments(server, "--thinking", "on", "--selectors", "uniform", "--limit", "2")) == 0
        _, _, body = server.requests[0]
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    assert body["max_tokens"] == 8192
    assert {r["choice"] for r in QaResults("results.jsonl").answers()} == {"B"}


def test_failures_are_noted_and_tried_again(place, capsys):
    def reply(handler, body):
        if pictures(body) == 4:
            handler.send_json(400, {"error": {"message": "this picture is broken"}})
        else:
            handler.send_json(200, completion("A"))

    with ScriptedServer(reply) as server:
        assert run(*arguments(server, "--selectors", "uniform")) == 2
        assert "6 answers are missing" in capsys.readouterr().err
        errors = [r["error"] for r in QaResults("results.jsonl").answers() if r["budget"] == 4]
        assert all("this picture is broken" in error for error in errors)
        server.replies[:] = ["A"]
        asked = len(server.requests)
        assert run(*arguments(server, "--selectors", "uniform")) == 0
        assert len(server.requests) == asked + 6
    assert all(r["error"] is None for r in QaResults("results.jsonl").answers())


def test_a_server_that_is_broken_stops_the_run(place, capsys):
    with ScriptedServer((400, {"error": {"message": "out of order"}})) as server:
        code = run(*arguments(server, "--budgets", "1,2,3,4,5", "--jobs", "1"))
        assert len(server.requests) <= 25
    assert code == 2
    assert "out of order" in capsys.readouterr().err


def test_no_server_is_told_before_the_work(place, capsys):
    with ScriptedServer("A") as server:
        gone = arguments(server)
    for more in ((), ("--model", "named")):
        assert run(*gone, *more) == 2
    assert "is the server running?" in capsys.readouterr().err
    assert not (place / "results.jsonl").exists()


def test_a_missing_or_broken_video_is_noted_and_the_rest_goes_on(place, capsys):
    rows = toy_benchmarks.videomme()
    for i in (1, 2, 3):
        rows[i]["videoID"] = "gone" if i < 3 else "broken"
    (place / "home/videomme.json").write_text(json.dumps(rows))
    (place / "home/videomme/data/broken.mp4").write_bytes(b"this is no video")
    many = ("--budgets", "1,2,3,4,5,6", "--selectors", "mec,uniform,aks")
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *many)) == 2
        assert len(server.requests) == 3 * 3 * 6
    said = capsys.readouterr().err
    assert "1 of 3 videos are not in home/videomme, such as gone" in said
    assert f"{3 * 3 * 6} answers are missing" in said
    errors = {r["video"]: r["error"] for r in QaResults("results.jsonl").answers()}
    assert errors["clip"] is None
    assert "no such file" in errors["gone"]
    assert "not a video" in errors["broken"]


def test_no_video_at_all_is_told_before_the_work(place, capsys):
    (place / "home/videomme/data/clip.mp4").unlink()
    with ScriptedServer("A") as server:
        assert run(*arguments(server)) == 2
    assert "clip: no such file in home/videomme" in capsys.readouterr().err


def test_what_fails_for_all_stops_at_once(place, capsys):
    with ScriptedServer("A") as server:
        assert run(*arguments(server, "--selectors", "mec:horizon=1")) == 2
        assert server.requests == []
    assert "too few for a budget of 2" in capsys.readouterr().err


def test_a_short_horizon_is_asked_at_the_budgets_it_serves(place, capsys):
    """So all of the paper's horizons fit into one command."""
    with ScriptedServer("A") as server:
        assert run(*arguments(server, "--selectors", "mec:horizon=2,mec", "--limit", "1")) == 0
        assert len(server.requests) == 3
    assert "mec:horizon=2 ranks fewer frames; not asked at 4" in capsys.readouterr().err
    asked = {(r["selector"], r["budget"]) for r in QaResults("results.jsonl").answers()}
    assert asked == {("mec", 2), ("mec", 4), ("mec:horizon=2", 2)}


def test_all_four_benchmarks_fill_one_table(place, capsys):
    with ScriptedServer("A") as server:
        for dataset, annotations, videos in (
            ("videomme", "videomme", "videomme"),
            ("videomme-v2", "videomme_v2", "videomme_v2"),
            ("longvideobench", "longvideobench", "datasets"),
            ("mlvu", "mlvu", "mlvu"),
        ):
            more = ("--selectors", "mec", "--budgets", "2")
            given = arguments(server, *more, dataset=dataset, annotations=annotations, videos=videos)
            assert run(*given) == 0
    capsys.readouterr()
    assert run("evaluate", "table", "results.jsonl", "--markdown") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    # Video-MME: 2 of 6 are A, the first short and the second medium. Video-MME-v2: only the first question
    # of each group is right, 100/12 in [1, [2, 3], 4] and 100/16 by relevance. LongVideoBench: 1 of 2.
    assert last == "| 2 | mec | 50.00 | 50.00 | 0.00 | 33.33 | 7.29 | 25.00 | 50.00 | 0.00 |"
    assert run("evaluate", "table", "results.jsonl", "--kind", "cost", "--json", "cost.json") == 0
    (row,) = json.loads((place / "cost.json").read_text())
    assert row["Answers"] == 18


def test_subtitles_only_where_asked_for(place):
    (place / "subs").mkdir()
    (place / "subs/clip.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\n<i>Good morning</i>\n\n2\n"
                                         "00:00:03,000 --> 00:00:04,000\nNumber nine\n")  # fmt: skip
    with ScriptedServer("A") as server:
        assert (
            run(*arguments(server, "--prompt-transcripts", "subs", "--limit", "1", "--selectors", "uniform"))
            == 0
        )
        text = server.requests[0][2]["messages"][-1]["content"][-1]["text"]
    assert text.startswith(
        "This video's subtitles are listed below:\nGood morning\nNumber nine\nWhich number"
    )


def test_a_video_without_subtitles_is_asked_without(place, capsys):
    (place / "subs").mkdir()
    with ScriptedServer("A") as server:
        assert (
            run(*arguments(server, "--prompt-transcripts", "subs", "--limit", "1", "--selectors", "uniform"))
            == 0
        )
        assert "subtitles" not in server.requests[0][2]["messages"][-1]["content"][-1]["text"]
    assert "1 of 1 videos have no subtitles in subs" in capsys.readouterr().err


def test_subtitles_that_only_choose_frames_are_not_taken_for_sent(place, capsys):
    (place / "subs").mkdir()
    more = ("--subtitles", "subs", "--limit", "1", "--selectors", "uniform")
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *more)) == 0
        assert "--subtitles chooses frames" in capsys.readouterr().err
        assert run(*arguments(server, *more, "--prompt-transcripts", "subs")) == 0
    assert "--subtitles chooses frames" not in capsys.readouterr().err


def test_everything_but_the_frames_as_lmms_eval_does_it(place):
    """Its system prompt, prompt, token limit, and its reading of an answer that ours calls B."""
    helpful = "You are a helpful assistant."
    more = ("--system", helpful, "--prompt", "lmms-eval", "--parse", "lmms-eval", "--limit", "1")
    with ScriptedServer("The answer is B because A is wrong.") as server:
        for given in (more, (*more, "--answer-tokens", "99")):
            assert run(*arguments(server, *given, "--selectors", "uniform", "--budgets", "2")) == 0
        (first, second) = (body for _, _, body in server.requests)
    assert first["messages"][0] == {"role": "system", "content": helpful}
    assert first["messages"][1]["content"][-1]["text"].startswith("Select the best answer to the following")
    assert (first["max_tokens"], second["max_tokens"]) == (16, 99)
    results = QaResults("results.jsonl")
    assert {record["choice"] for record in results.answers()} == {"A"}
    settings = next(iter(results.runs.values()))
    assert (settings["prompt"], settings["parse"], settings["answer_tokens"]) == (
        "lmms-eval",
        "lmms-eval",
        16,
    )


SAID = "1\n00:00:08,000 --> 00:00:09,500\n{}\n"


def test_frames_are_chosen_by_what_is_said(place, capsys, tags_store):
    """And chosen again where the subtitle file has changed, but not where it has not."""
    (place / "scores.json").write_text(json.dumps({"0": 0, "299": 0}))
    (place / "subs").mkdir()
    chosen = {}
    for name, said in {
        "deaf": None,
        "heard": "Which number is it? It is number two.",
        "other": "Hm.",
    }.items():
        more = ["--selectors", "mec", "--limit", "1", "--budgets", "1", "--results", f"{name}.jsonl"]
        if said is not None:
            (place / "subs/clip.srt").write_text(SAID.format(said))
            more += ["--subtitles", "subs"]
        with ScriptedServer("A") as server:
            assert run(*arguments(server, *more)) == 0, capsys.readouterr().err
            chosen[name] = server.requests[0][2]["messages"][-1]["content"]
        (record,) = QaResults(f"{name}.jsonl").answers()
        assert record["selection"]["kept"] is False
    assert chosen["heard"] != chosen["deaf"] == chosen["other"]
    assert 7.0 < float(chosen["heard"][0]["text"][1:].split()[0]) < 10.0
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *more[:-3], "again.jsonl", *more[-2:])) == 0
    (record,) = QaResults("again.jsonl").answers()
    assert record["selection"]["kept"] is True


def test_one_subtitle_file_is_not_that_of_a_benchmark(place, capsys):
    (place / "clip.srt").write_text(SAID.format("Hm."))
    rows = json.loads((place / "home/videomme.json").read_text())
    rows[0]["videoID"] = "another"
    (place / "home/videomme.json").write_text(json.dumps(rows))
    with ScriptedServer("A") as server:
        assert run(*arguments(server, "--subtitles", "clip.srt")) == 2
    assert "--subtitles FILE is for one video" in capsys.readouterr().err


def test_what_a_server_may_not_take_is_left_to_it(place):
    more = ("--thinking", "server", "--temperature", "server", "--limit", "1", "--selectors", "uniform")
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *more)) == 0
        body = server.requests[0][2]
    assert not {"chat_template_kwargs", "temperature"} & set(body)
    (settings,) = QaResults("results.jsonl").runs.values()
    assert (settings["thinking"], settings["temperature"]) == (None, None)
    assert settings["annotations"] == "videomme.json"


def test_lists_are_looked_up_by_the_question_whatever_is_scored(place):
    row = {"video": "clip.mp4", "question": "Which number is shown 0 seconds in?", "frame_idx": [7, 9]}
    (place / "mine.json").write_text(json.dumps([row]))
    more = ("--query", "question+options", "--selectors", "file:mine.json", "--budgets", "2", "--limit", "1")
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *more)) == 0
        assert pictures(server.requests[0][2]) == 2


def test_a_plan_asks_and_selects_nothing(place, capsys):
    more = ("--plan", "--model", "tiny", "--selectors", "mec,uniform,aks")
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *more)) == 0
        assert server.requests == []
    assert not (place / "results.jsonl").exists()
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    # six questions at K = 2 and 4 for each selector: 36 frames of 64 × 48 in 65,536 pixels, 8 × 6 cells or so
    assert [row[:4] for row in rows if row[:1] in (["mec"], ["all"])] == [
        ["mec", "6", "12", "36"], ["all", "18", "36", "108"],
    ]  # fmt: skip
    assert "hours: unknown until each selector" in printed
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *more[1:], "--limit", "2")) == 0
        capsys.readouterr()
        assert run(*arguments(server, *more)) == 0
    printed = capsys.readouterr().out
    assert "hours: unknown" not in printed
    (total,) = (line.split() for line in printed.splitlines() if line.split()[:1] == ["all"])
    assert total[1:4] == ["12", "24", "72"]
    assert float(total[-1]) >= 0


def test_a_plan_names_its_model(place, capsys):
    with ScriptedServer("A") as server:
        assert run(*arguments(server, "--plan")) == 2
    assert "--plan asks no server; name the model" in capsys.readouterr().err


def test_the_work_is_shared_among_processes_by_video(place):
    """Each part asks about other videos, all of a video's questions at once; together it is everything."""
    rows = toy_benchmarks.videomme()
    for i, row in enumerate(rows):
        row["videoID"] = f"clip{i // 2}"
        shutil.copy("home/videomme/data/clip.mp4", f"home/videomme/data/clip{i // 2}.mp4")
    (place / "home/videomme.json").write_text(json.dumps(rows))
    asked = []
    with ScriptedServer("A") as server:
        for part in ("1/2", "2/2"):
            more = ("--part", part, "--results", f"r{part[0]}.jsonl", "--selectors", "uniform")
            assert run(*arguments(server, *more)) == 0
            asked.append({r["video"] for r in QaResults(f"r{part[0]}.jsonl").answers()})
        assert len(server.requests) == 6 * 2
        assert asked == [{"clip0", "clip2"}, {"clip1"}]
        assert run(*arguments(server, "--part", "3/2")) == 2
    runs = [QaResults(f"r{part}.jsonl").runs for part in "12"]
    assert list(runs[0]) == list(runs[1])  # one run in two files


def test_how_the_scorer_runs_is_part_of_the_run_where_it_changes_numbers(place):
    with ScriptedServer("A") as server:
        for more in ((), ("--device", "cpu", "--keep-features"), ("--precision", "float32")):
            assert run(*arguments(server, "--limit", "1", "--selectors", "mec", *more)) == 0
        assert len(server.requests) == 2 * 2  # the second command is the first one's run
    scorers = [settings["scorer"] for settings in QaResults("results.jsonl").runs.values()]
    assert [scorer.endswith(", precision float32") for scorer in scorers] == [False, True]


@pytest.mark.parametrize(("thinking", "streams"), [("off", None), ("on", True), ("server", True)])
def test_a_model_that_may_think_is_streamed(place, thinking, streams):
    """So that the time limit is one on silence: reasoning may take longer than any total."""
    more = ("--thinking", thinking, "--limit", "1", "--selectors", "uniform", "--budgets", "2")
    with ScriptedServer("<think>hm</think>B") as server:
        assert run(*arguments(server, *more)) == 0
        assert server.requests[0][2].get("stream") == streams
    (record,) = QaResults("results.jsonl").answers()
    assert record["choice"] == "B"


def test_each_selector_may_score_a_text_of_its_own(place, monkeypatch):
    """In one run: WFS-SB with the choices, as released, and MEC with the question alone."""
    asked, select = set(), SelectionCache._select

    def noted(cache, video, text, selector, budgets):
        asked.add((selector, text))
        return select(cache, video, text, selector, budgets)

    monkeypatch.setattr(SelectionCache, "_select", noted)
    more = ("--query", "wfs-sb=question+options", "--selectors", "mec,mec:no-zoom,wfs-sb", "--limit", "1")
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *more)) == 0
    question = "Which number is shown 0 seconds in?"
    with_options = f"{question} A. One. B. Two. C. Three. D. Four."
    assert asked == {("mec", question), ("mec:no-zoom", question), ("wfs-sb", with_options)}
    (settings,) = QaResults("results.jsonl").runs.values()
    assert settings["query"] == "question,wfs-sb=question+options"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--query", "options"), "query = 'options'; it must be one of question, question+options"),
        (("--query", "wfs=question"), "there is no selector 'wfs'"),
        (("--selectors", "best"), "there is no selector 'best'"),
        (("--selectors", "mec:fast"), "there is no preset 'fast'"),
        (("--budgets", "0"), "must be 1 or more"),
        (("--videos", "nowhere"), "no such folder"),
        (("--category", "endless"), "no questions of category"),
        (("--annotations", "home/mlvu.json"), "not the annotations of videomme"),
    ],
)
def test_wrong_settings_are_told_in_one_line(place, capsys, more, said):
    with ScriptedServer("A") as server:
        assert run(*arguments(server, *more)) == 2
        assert server.requests == []
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_scorer_is_named_on_purpose(place, capsys):
    with ScriptedServer("A") as server:
        given = [g for g in arguments(server) if g not in ("--scorer", "table:scores.json")]
        assert run(*given) == 2
        assert "give a scorer" in capsys.readouterr().err
        assert run(*given, "--selectors", "uniform", "--limit", "1") == 0


def test_the_key_reaches_no_file(place, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with ScriptedServer((500, {"error": {"message": "you sent sk-very-secret"}})) as server:
        run(*arguments(server, "--retries", "0", "--limit", "1", "--selectors", "uniform"))
        assert server.requests[0][1]["authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in (place / "results.jsonl").read_text()
