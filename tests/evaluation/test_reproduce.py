"""benchmarks/reproduce.py and benchmarks/efficiency.py: the paper's tables from lmms-eval's results."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import toy_benchmarks

from framenest import ConfigError, StoreError
from framenest.progress import Timing
from framenest.video.decoder import Decoder
from framenest.video.opening import open_video
from media import numbered_video
from scripted_server import ScriptedServer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAPER = json.loads((BENCHMARKS / "paper.json").read_text())


@pytest.fixture
def script(monkeypatch):
    """A benchmark's names, run as a script would find its neighbours."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: runpy.run_path(str(BENCHMARKS / f"{name}.py"))


QUESTIONS = {"videomme": 2700, "videomme-v2": 3200, "longvideobench": 1337, "mlvu": 2174}


def lmms_eval_file(
    path,
    budget,
    tasks,
    *,
    name="qwen3_5",
    model="pretrained=Qwen/Qwen3.5-9B",
    more="enable_thinking=False",
    left=0,
    failed=0,
    failure="[LMMS_EVAL_REQUEST_FAILED after 5 retries] Connection error.",
):
    """Results and samples as lmms-eval 0.7.3 writes them, as far as they are read.

    left: how many questions of each task have no answer; failed: how many have a failed request's.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({
        "results": {name: {"alias": name, **scores} for name, (_, scores) in tasks.items()},
        "configs": {
            name: {"task": name, "lmms_eval_specific_kwargs": {"default": {
                "video_of": "…", "framenest": {"selector": "mec", "scorer": "blip2", **settings}}}}
            for name, (settings, _) in tasks.items()
        },
        "config": {"model": name, "model_args": f"{model},max_num_frames={budget},{more}"},
    }))  # fmt: skip
    for name, (settings, _) in tasks.items():
        count = QUESTIONS.get(settings.get("benchmark"), 0)
        count = 900 if re.search("_(short|medium|long)(_|$)", name) else count
        count = 502 if "mlvu_test" in name else count
        lines = [json.dumps({"doc_id": i, "filtered_resps": "A"}) for i in range(count - left)]
        for place in range(failed):
            lines[place] = json.dumps({"doc_id": place, "filtered_resps": [failure]})
        lines += lines[:1]  # processes of several GPUs may repeat a question
        samples = path.with_name(path.name.replace("_results.json", f"_samples_{name}.jsonl"))
        samples.write_text("\n".join(lines) + "\n")


def tasks_of(selector, scores):
    """The four tasks of a selector with the eight numbers of the paper's columns."""
    short, medium, long, overall, nonlinear, micro, lvb, mlvu = scores
    own = {} if selector == "mec" else {"selector": selector}
    tail = "" if selector == "mec" else "_" + selector.replace("-", "_")
    return {
        f"framenest_videomme{tail}": ({"benchmark": "videomme", **own}, {
            "videomme_perception_score,none": overall, "videomme_perception_score_stderr,none": "N/A",
            "videomme_short,none": short, "videomme_medium,none": medium, "videomme_long,none": long}),
        f"framenest_videomme_v2{tail}": ({"benchmark": "videomme-v2", **own}, {
            "videomme_v2_overall_score,none": nonlinear, "videomme_v2_overall_acc,none": micro}),
        f"framenest_longvideobench_val{tail}": ({"benchmark": "longvideobench", **own},
                                                {"lvb_acc,none": lvb / 100}),
        f"framenest_mlvu_dev{tail}": ({"benchmark": "mlvu", **own}, {"mlvu_percetion_score,none": mlvu}),
    }  # fmt: skip


def efficiency_file(path, ends):
    rows = {
        name: {"candidates": 600.0, "runs": 1, "decode_seconds": 1.5, "encode_seconds": 7.0,
               "match_seconds": 0.5, "rule_seconds": 0.25, "frames_seconds": 2.0, "model_seconds": 3.0,
               "encode_in_selection": {"preprocessing_seconds": 1.25, "selection_seconds": 8.0},
               "encode_in_preprocessing": {"preprocessing_seconds": 6.25, "selection_seconds": 3.0},
               "end_to_end_seconds": end,
               "budgets": {str(k): {"end_to_end_seconds": end + k / 100} for k in (8, 16, 32, 64, 128, 256)}}
        for name, end in ends.items()
    }  # fmt: skip
    path.write_text(json.dumps({"rows": rows}))


def test_lmms_eval_files_fill_the_main_table_and_both_summary_figures(script, tmp_path, capsys):
    """The paper's own numbers as lmms-eval would have written them: no difference anywhere."""
    for k, rows in PAPER["main"].items():
        for name, scores in rows.items():
            file = tmp_path / f"logs/{name}-{k}/Qwen__Qwen3.5-9B/20261101_results.json"
            lmms_eval_file(file, k, tasks_of(name, scores))
    efficiency_file(tmp_path / "e.json", {name: row[-1] for name, row in PAPER["efficiency"].items()})
    module = script("reproduce")
    module["main"](
        [str(tmp_path / "logs"), "--efficiency", str(tmp_path / "e.json"), "-o", str(tmp_path / "mine.md")]
    )
    page, printed = (tmp_path / "mine.md").read_text(), capsys.readouterr().out
    tables = dict(part.split("\n\n", 1) for part in page.removeprefix("## ").split("\n\n## "))
    named = {name: tables[title] for name, title in module["TITLES"].items() if title in tables}
    cells = [line.split("|")[3].strip() for line in named["summary"].strip().splitlines()[2:]]
    figures = ("3.77", "0.63", "47.37", "51.19")
    assert cells == [cell for figure in figures for cell in (figure, figure, "+0.00")]
    assert named["main"].count("| difference |" + " +0.00 |" * 8) == 24
    assert "difference | +0.00 |  | +0.00 |" in named["budgets"]
    assert "| Qwen/Qwen3.5-9B | framenest_videomme | 8 | 2,700 | 2,700 | 0 | blip2 |" in named["runs"]
    assert "| `mec:no-zoom` | paper |" in printed  # every table, also without numbers of one's own


def test_both_readings_of_the_papers_columns_stand_beside_it(script, tmp_path):
    efficiency_file(tmp_path / "e.json", {"uniform": 5.0, "mec": 20.0})
    module = script("reproduce")
    made = module["tables"](module["Own"]([], str(tmp_path / "e.json")))
    for place, own in (("selection", "1.25 | 8.00"), ("preprocessing", "6.25 | 3.00")):
        _, below = made["efficiency"].split(
            f"| mec | {place} | paper | 635.40 | 5.48 | 7.89 |  | 9.72 | 23.09 |\n"
        )
        assert below.startswith(f"|  |  | yours | 600.00 | {own} | 2.00 | 3.00 | 20.00 |\n")
    assert "| uniform, yours | 1.50 | 7.00 | 0.50 | 0.25 | 2.00 | 3.00 | 5.00 |" in made["parts"]
    assert "| aks, yours |  |  |  |  |  |  |  |" in made["parts"]


def test_ablations_horizons_thinking_and_other_models_by_their_tasks(script, tmp_path):
    for k in (8, 16, 32, 64, 128, 256):
        zoom = {
            "framenest_videomme_mec_no_zoom": (
                {"benchmark": "videomme", "selector": "mec:no-zoom"},
                {"videomme_perception_score,none": 70.0 + k},
            )
        }
        lmms_eval_file(tmp_path / f"a{k}/20261101_results.json", k, zoom)
        for name in ("uniform", "mec"):
            score = 60.0 + 2 * (name == "mec")
            task = tasks_of(name, [score] * 8)
            thinking = tmp_path / f"t{name}{k}/20261101_results.json"
            lmms_eval_file(thinking, k, task, more="enable_thinking=True")
            intern = tmp_path / f"i{name}{k}/20261101_results.json"
            lmms_eval_file(intern, k, task, model="pretrained=InternVL3_5-8B-Instruct-HF")
    module = script("reproduce")
    made = module["tables"](module["Own"]([str(tmp_path)]))
    assert "|  | yours | 82.00 | 118.00 | 262.00 | 154.00 |" in made["ablation"]
    assert "|  | difference | +17.74 | +48.06 | +188.09 | +84.63 |" in made["ablation"]
    assert "|  | yours | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 |" in made["thinking"]
    assert "| LongVideoBench, mec, yours |" + " 62.00 ± 1.33 (1,337) |" * 5 in made["internvl"]
    assert "yours | 60" not in made["main"]


def main_row(*cells):
    counts = (*["900"] * 3, "2,700", "3,200", "3,200", "1,337", "2,174")
    shown = (cell if "(" in cell else f"{cell} ({count})" for cell, count in zip(cells, counts, strict=True))
    return f"| yours | {' | '.join(shown)} |"


def test_scores_have_the_number_of_answers_and_the_standard_error_of_a_proportion(script, tmp_path):
    """Of all 2,700 questions, or of the 900 of a duration; none where a score is no proportion."""
    for k in (8, 16):
        lmms_eval_file(tmp_path / f"{k}/1_results.json", k, tasks_of("mec", [50.0] * 8))
    module = script("reproduce")
    made = module["tables"](module["Own"]([str(tmp_path)]))["main"]
    part, whole, v2, lvb = "50.00 ± 1.67", "50.00 ± 0.96", "50.00 ± 0.88", "50.00 ± 1.37"
    assert made.count(main_row(part, part, part, whole, "50.00", v2, lvb, "50.00")) == 2


@pytest.mark.parametrize(
    ("name", "model", "more", "thinks"),
    [
        ("qwen3_5", "pretrained=Qwen/Qwen3.5-9B", "x=1", True),
        ("qwen3_5", "pretrained=Qwen/Qwen3.5-9B", "enable_thinking=False", False),
        ("qwen3_5", "pretrained=Qwen/Qwen3.5-9B", "enable_thinking=True", True),
        ("qwen3_5", "pretrained=/models/mine", "x=1", True),
        ("qwen3_vl", "pretrained=/models/qwen3.5-9b", "x=1", True),
        ("qwen3_vl", "pretrained=Qwen/Qwen3-VL-8B", "x=1", False),
        ("vllm", "model=Qwen/Qwen3.5-9B", "x=1", True),
        ("async_openai", "model_version=Qwen/Qwen3.5-9B", "x=1", False),  # the server's setting
    ],
)
def test_qwen3_5_thinks_unless_it_is_told_not_to(script, tmp_path, name, model, more, thinks):
    task = {"framenest_videomme": ({"benchmark": "videomme"}, {"videomme_perception_score,none": 50.0})}
    lmms_eval_file(tmp_path / "1_results.json", 8, task, name=name, model=model, more=more)
    (run,) = script("lmms_eval_results")["read_result_files"](tmp_path)
    assert run.thinking == thinks


@pytest.mark.parametrize(
    "kind",
    [
        {"left": 700},
        {"failed": 700},
        {"left": 600, "failed": 100},
        {"failed": 700, "failure": ""},
        {"failed": 700, "failure": 'Error: can only concatenate str (not "NoneType") to str'},
    ],
)
def test_a_score_over_fewer_answers_is_marked_and_in_no_mean(script, tmp_path, kind):
    """`--limit`, and requests that failed or were answered with nothing, which lmms-eval scores as wrong."""
    scores = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    for k in (8, 16, 32, 64, 128, 256):
        tasks = tasks_of("mec", scores)
        lmms_eval_file(tmp_path / f"{k}/1_results.json", k, tasks)
    part = {name: task for name, task in tasks_of("mec", scores).items() if name == "framenest_videomme"}
    module = script("reproduce")
    made = module["tables"](module["Own"]([str(tmp_path)]))
    row = main_row("1.00 ± 0.33", "2.00 ± 0.47", "3.00 ± 0.57", "4.00 ± 0.38", "5.00", "6.00 ± 0.42",
                   "7.00 ± 0.70", "8.00")  # fmt: skip
    assert made["main"].count(row) == 6
    assert "|  | yours | 4.00 | 4.00 | 4.00 | 4.00 |" in made["ablation"]

    lmms_eval_file(tmp_path / "partial/2_results.json", 8, part, **kind)  # a complete run comes before it
    assert module["tables"](module["Own"]([str(tmp_path)]))["main"] == made["main"]

    lmms_eval_file(tmp_path / "8/1_results.json", 8, part, **kind)
    made = module["tables"](module["Own"]([str(tmp_path / "8"), str(tmp_path / "16")]))
    marked = "4.00 (2,000 of 2,700)"
    assert f"| {marked} |" in made["main"]
    assert "difference" not in made["main"].split(marked)[1].splitlines()[1]
    assert "yours" not in made["ablation"]
    row = f"| framenest_videomme | 8 | 2,000 | 2,700 | {kind.get('failed', 0)} | blip2 |"
    assert row in made["runs"]


@pytest.mark.parametrize(
    ("changed", "more", "said"),
    [
        ({"scorer": "tags"}, {}, "scorer is 'blip2' in .* and 'tags' in "),
        ({"query": "question+options"}, {}, "query is 'question' in .* and 'question.options' in "),
        ({"pairing": "auto"}, {}, "pairing is 'pairs' in "),
        ({"version": "0.0.2"}, {}, "framenest is '0.0.1' in "),
        ({}, {"more": "enable_thinking=False,max_pixels=4096"}, "model arguments is '' in "),
        ({}, {"model": "pretrained=somebody/Qwen3.5-9B-AWQ"}, "model is 'Qwen/Qwen3.5-9B' in "),
    ],
)
def test_two_ways_of_running_are_refused(script, tmp_path, changed, more, said):
    common = {"pairing": "pairs", "query": "question", "version": "0.0.1"}
    for number, (own, options) in enumerate([({}, {}), (changed, more)], 1):
        tasks = {name: ({**common, **settings, **own}, scores)
                 for name, (settings, scores) in tasks_of("mec", [50.0] * 8).items()}  # fmt: skip
        lmms_eval_file(tmp_path / f"{number}_results.json", 8 * number, tasks, **options)
    with pytest.raises(ConfigError, match=said):
        script("reproduce")["Own"]([str(tmp_path)])


def test_thinking_that_ends_without_an_answer_is_no_failure(script, tmp_path):
    task = {"framenest_videomme": ({"benchmark": "videomme"}, {"videomme_perception_score,none": 50.0})}
    lmms_eval_file(tmp_path / "1_results.json", 8, task, more="enable_thinking=True", failed=3, failure=" ")
    (run,) = script("lmms_eval_results")["read_result_files"](tmp_path)
    assert (run.answered, run.failed) == (2700, 0)


@pytest.mark.parametrize(("name", "whole"), [("mlvu_dev", 2174), ("mlvu_test_aks", 502)])
def test_each_set_of_mlvu_has_its_number_of_questions(script, tmp_path, name, whole):
    """Not the number that lmms-eval has loaded, of a part for example."""
    task = {f"framenest_{name}": ({"benchmark": "mlvu"}, {"mlvu_percetion_score,none": 50.0})}
    for left in (0, 100):
        lmms_eval_file(tmp_path / f"{left}_results.json", 8, task, left=left)
    found = script("lmms_eval_results")["read_result_files"](tmp_path)
    assert [(run.answered, run.questions) for run in found] == [(whole, whole), (whole - 100, whole)]


def test_both_sets_of_mlvu_and_scores_that_contradict_are_refused(script, tmp_path):
    module = script("reproduce")
    for number, name in enumerate(("framenest_mlvu_dev", "framenest_mlvu_test")):
        task = {name: ({"benchmark": "mlvu"}, {"mlvu_percetion_score,none": 50.0})}
        lmms_eval_file(tmp_path / f"mlvu/{number}_results.json", 8, task)
    with pytest.raises(ConfigError, match=r"MLVU's set is 'dev' in .* and 'test' in "):
        module["Own"]([str(tmp_path / "mlvu")])
    for number in (1, 2):
        scores = [50.0 + number] * 8
        lmms_eval_file(tmp_path / f"twice/{number}_results.json", 8, tasks_of("mec", scores))
    with pytest.raises(ConfigError, match="have different scores for Overall of mec at K = 8"):
        module["tables"](module["Own"]([str(tmp_path / "twice")]))


def test_what_is_read_of_a_result_file(script, tmp_path):
    read_result_files = script("lmms_eval_results")["read_result_files"]
    part = {
        "framenest_videomme_long_wfs_sb": (
            {"benchmark": "videomme", "selector": "wfs-sb"},
            {"videomme_perception_score,none": 44.0},
        )
    }
    lmms_eval_file(tmp_path / "1_results.json", 64, part | {"mmmu_val": ({}, {"acc,none": 1.0})})
    (found,) = read_result_files(tmp_path)
    assert (found.selector, found.budget, found.thinking) == ("wfs-sb", 64, False)
    assert found.scores == {"Long": 44.0}
    assert (found.answered, found.failed, found.questions) == (900, 0, 900)
    (tmp_path / "1_samples_framenest_videomme_long_wfs_sb.jsonl").unlink()
    with pytest.raises(StoreError, match="missing; run lmms-eval with --log_samples"):
        read_result_files(tmp_path)
    (tmp_path / "2_results.json").write_text("[]")
    with pytest.raises(ConfigError, match="not a result file of lmms-eval"):
        read_result_files(tmp_path / "2_results.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="no result files of lmms-eval in this folder"):
        read_result_files(tmp_path / "empty")
    with pytest.raises(StoreError, match="cannot be read"):
        read_result_files(tmp_path / "gone.json")


def test_a_run_names_one_number_of_frames(script, tmp_path):
    """The model's argument and the frames in the message must agree."""
    read_result_files = script("lmms_eval_results")["read_result_files"]
    for frames, known in ((32, True), (16, False)):
        task = {"framenest_mlvu_dev": ({"benchmark": "mlvu", "frames_as": "frames", "frames": frames}, {})}
        lmms_eval_file(tmp_path / "1_results.json", 32, task)
        if known:
            assert read_result_files(tmp_path)[0].budget == 32
        else:
            with pytest.raises(ConfigError, match=r"names no single number of frames: \[16, 32\]"):
                read_result_files(tmp_path)


def test_the_figure_of_accuracy_over_latency(script, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    for k, rows in PAPER["main"].items():
        for name, scores in rows.items():
            lmms_eval_file(tmp_path / f"logs/{name}-{k}/1_results.json", k, tasks_of(name, scores))
    efficiency_file(tmp_path / "e.json", {"uniform": 5.0, "mec": 20.0, "aks": 40.0})
    module = script("reproduce")
    points = module["tradeoff"](module["Own"]([str(tmp_path / "logs")], str(tmp_path / "e.json")))
    assert points["mec"][0] == ("paper", 23.09, pytest.approx(59.28, abs=0.01))
    assert points["mec"][1] == ("8", 20.08, 53.44)
    assert points["aks"][-1] == ("mean", pytest.approx(40.84), pytest.approx(58.65, abs=0.01))
    assert [label for label, *_ in points["wfs-sb"]] == ["paper"]
    assert points["uniform"][0] == ("8", 5.08, PAPER["main"]["8"]["uniform"][2])  # no star of the paper's
    assert "uniform" not in module["tradeoff"](module["Own"]())
    module["draw"](points, str(tmp_path / "tradeoff.png"))
    assert (tmp_path / "tradeoff.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def measured(script, tmp_path, monkeypatch, capsys):
    """efficiency.py on two toy videos, with a scripted server."""
    pytest.importorskip("openai", reason="needs the extra `ask`")
    toy_benchmarks.write_home(tmp_path / "home")
    rows = toy_benchmarks.videomme()
    rows[2]["videoID"] = "other"
    (tmp_path / "home/videomme.json").write_text(json.dumps(rows))
    shutil.copy(numbered_video(tmp_path / "o.mp4", 120), tmp_path / "home/videomme/data/other.mp4")
    (tmp_path / "scores.json").write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks/efficiency.py"])
    with ScriptedServer("A") as server:
        script("efficiency")["main"]([
            "home/videomme.json", "--videomme", "--videos", "home/videomme/data", "--category", "long",
            "--scorer", "table:scores.json", "--budgets", "2,4", "--base-url", server.url, "-o", "e.json",
            "--selectors", "mec,aks,wfs-sb,uniform",
        ])  # fmt: skip
        asked = len(server.requests)
    return json.loads((tmp_path / "e.json").read_text()), asked, capsys.readouterr().out


def test_every_part_of_the_cost_is_measured_for_every_selector(measured):
    result, asked, printed = measured
    assert asked >= 2 * 2 * 4  # two long questions, two budgets, four selectors
    assert (result["questions"], result["videos"], result["budgets"]) == (2, 2, [2, 4])
    for name, row in result["rows"].items():
        assert row["runs"] == (1 if name == "mec" else 2)
        for cells in (row, row["together"], *row["budgets"].values()):
            chosen = sum(cells[f"{part}_seconds"] for part in ("decode", "encode", "match", "rule"))
            shown = cells["frames_seconds"] + cells["model_seconds"]
            assert cells["end_to_end_seconds"] == pytest.approx(chosen + shown)
            for place in ("selection", "preprocessing"):
                assert sum(cells[f"encode_in_{place}"].values()) == pytest.approx(chosen)
            scored = [cells["encode_seconds"] > 0, cells["match_seconds"] > 0]
            assert scored == [name != "uniform"] * 2
            assert min(cells["decode_seconds"], cells["frames_seconds"], cells["model_seconds"]) > 0
        both = [row["budgets"][k]["end_to_end_seconds"] for k in ("2", "4")]
        assert row["end_to_end_seconds"] == pytest.approx(np.mean(both))
        frames = sum(row["budgets"][k]["frames_seconds"] for k in ("2", "4"))
        assert row["together"]["frames_seconds"] == pytest.approx(frames)
    mec, aks = result["rows"]["mec"], result["rows"]["aks"]
    assert mec["budgets"]["2"]["rule_seconds"] == mec["budgets"]["4"]["rule_seconds"]  # one ranking for both
    assert aks["candidates"] == (12 + 4) / 2
    moved = [aks[f"encode_in_{place}"]["selection_seconds"] for place in ("selection", "preprocessing")]
    assert moved[0] - moved[1] == pytest.approx(aks["encode_seconds"])
    assert "less time than aks" in printed
    assert "less time than uniform" not in printed
    assert re.search(r"mec +│ paper +│ +635.40 │ +5.48 │ +7.89 │ +│ +9.72 │ +23.09", printed)
    assert printed.count("encode in selection") == printed.count("encode in preprocessing") == 4


def test_frames_are_timed_without_a_model(script, tmp_path, monkeypatch):
    numbered_video(tmp_path / "short.mp4", 60)
    numbered_video(tmp_path / "long.mp4", 300)
    rows = [{"video": f"{v}.mp4", "question": "One?", "intervals": [[0, 1]]} for v in ("short", "long")]
    (tmp_path / "qa.json").write_text(json.dumps(rows))
    (tmp_path / "scores.json").write_text(json.dumps({"0": 1.0, "299": 0.0}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks/efficiency.py"])
    shared = ["qa.json", "--scorer", "table:scores.json", "--budgets", "2", "--selectors", "uniform,mec"]
    script("efficiency")["main"]([*shared, "--minutes", "0.1", "-o", "e.json"])
    result = json.loads((tmp_path / "e.json").read_text())
    assert (result["questions"], result["videos"]) == (1, 1)  # the short video is left out
    for row in result["rows"].values():
        assert row["frames_seconds"] > 0
        assert row["model_seconds"] is row["together"]["model_seconds"] is None
    with pytest.raises(SystemExit):
        script("efficiency")["main"]([*shared, "--minutes", "1"])


def test_the_parts_sum_to_the_wall_clock(script, monkeypatch):
    ticks = iter([0, 1, 3, 10, 14, 20, 21, 100])
    monkeypatch.setattr("framenest.progress.time", SimpleNamespace(perf_counter=ticks.__next__))
    timed, timing = script("efficiency")["timed"], Timing()

    def work(made):
        for stage in ("timeline", "encode", "order"):
            with timing(stage):
                pass
        return made

    assert timed(timing, work, "a selection") == (
        "a selection", {"decode": 2, "encode": 4, "match": 0, "rule": 100 - 2 - 4}
    )  # fmt: skip


def test_stages_that_overlap_are_refused(script, monkeypatch):
    ticks = iter([0, 1, 2, 8, 9, 10])
    monkeypatch.setattr("framenest.progress.time", SimpleNamespace(perf_counter=ticks.__next__))
    timing = Timing()

    def work():
        with timing("decode"), timing("encode"):
            pass

    with pytest.raises(AssertionError, match="stages overlap"):
        script("efficiency")["timed"](timing, work)


def test_all_frames_are_decoded_before_the_first_is_encoded(script, clip):
    decoder = open_video(clip)
    read, seen = decoder.read, []

    def counted(frames, *, sizes=(None,)):
        for batch in read(frames, sizes=sizes):
            for row in range(len(batch)):
                seen.append(int(batch.frames[row]))
                yield batch.rows(np.arange(len(batch)) == row)

    decoder.read = counted
    video = script("efficiency")["DecodedFirst"](decoder)
    assert isinstance(video, Decoder)
    batches = video.read(np.array([0, 5, 9]))
    assert seen == []  # the reader's thread decodes, while the stage "decode" waits for it
    assert next(batches).frames.tolist() == [0]
    assert seen == [0, 5, 9]


def test_no_selector_lives_off_anothers_features(script, tmp_path, monkeypatch):
    """Each decodes its own candidates again, whatever was measured before it."""
    from framenest.scorers.table import TableScorer

    numbered_video(tmp_path / "v.mp4", 120)
    rows = [{"video": "v.mp4", "question": q, "intervals": [[0, 1]]} for q in ("One?", "Two?")]
    (tmp_path / "qa.json").write_text(json.dumps(rows))
    (tmp_path / "scores.json").write_text(json.dumps({"0": 1.0, "1": 0.0, "299": 0.0}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks/efficiency.py"])
    encoded, real = [], TableScorer.encode
    monkeypatch.setattr(TableScorer, "encode", lambda *given: encoded.append(len(given[1])) or real(*given))
    script("efficiency")["main"](
        ["qa.json", "--scorer", "table:scores.json", "--budgets", "2", "--selectors", "top-k,wfs-sb"]
    )
    assert encoded.count(5) == 2  # the grid of 5 s, once for each, and not again for the second question
