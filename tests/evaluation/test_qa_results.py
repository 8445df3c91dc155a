"""The append-only results file, and the tables made of it."""

import json

import pytest

from framenest.errors import ConfigError
from framenest.evaluation.qa_results import (
    QaResults,
    ScoredAnswers,
    budget_table,
    cost_table,
    main_table,
    markdown,
    regime_table,
)


def answer(run, name, budget, correct, *, selector="mec", category="short", group="", structure="", **more):
    return {
        "kind": "answer", "run": run, "id": name, "selector": selector, "budget": budget, "video": "v",
        "category": category, "group": group, "structure": structure, "answer": "A",
        "choice": "A" if correct else "B", "correct": correct, "error": None, "frames": budget,
        "frames_seconds": 1.0, "selection": {"seconds": 2.0, "kept": False, "candidates": 600},
        "said": {"text": "A", "seconds": 3.0},
    } | more  # fmt: skip


def test_what_was_answered_is_known_again(tmp_path):
    first = QaResults(tmp_path / "r.jsonl")
    run = first.begin({"dataset": "videomme", "model": "m"})
    first.append(answer(run, "1", 8, True))
    first.append(answer(run, "2", 8, False, error="the server went away"))
    again = QaResults(tmp_path / "r.jsonl")
    assert again.begin({"dataset": "videomme", "model": "m"}) == run
    assert again.has(run, "1", "mec", 8)
    assert not again.has(run, "1", "mec", 16)
    assert not again.has(run, "1", "uniform", 8)
    assert not again.has(run, "2", "mec", 8)  # it failed: to be tried again
    assert again.begin({"dataset": "videomme", "model": "other"}) != run
    assert len(again.answers()) == 2


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_line_cut_short_is_dropped_and_written_over(tmp_path, cut):
    file = tmp_path / "r.jsonl"
    results = QaResults(file)
    run = results.begin({"dataset": "videomme"})
    results.append(answer(run, "1", 8, True))
    results.append(answer(run, "2", 8, True))
    file.write_bytes(file.read_bytes()[:-cut])
    again = QaResults(file)
    assert again.has(run, "1", "mec", 8)
    assert again.has(run, "2", "mec", 8) == (cut == 1)  # only its line end was lost
    again.append(answer(run, "2", 8, True))
    again.append(answer(run, "3", 8, True))
    whole = QaResults(file)
    assert all(whole.has(run, name, "mec", 8) for name in "123")


def test_another_file_is_refused(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"question": "What?"}\n')
    with pytest.raises(ConfigError, match="not a results file"):
        QaResults(tmp_path / "r.jsonl")


def test_a_file_without_a_line_of_json_is_refused_unless_a_kill_left_it(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text("notes of mine\nand more\n")
    with pytest.raises(ConfigError, match="not a results file"):
        QaResults(file)
    file.write_text('{"kind": "run", "run": "ab')
    assert QaResults(file).runs == {}


@pytest.fixture
def results(tmp_path):
    """MEC: all right at every budget; uniform: half of it. Two benchmarks in one file."""
    made = QaResults(tmp_path / "r.jsonl")
    run = made.begin({"dataset": "videomme", "model": "m"})
    for budget in (8, 16, 32, 64, 128, 256):
        for i, category in enumerate(("short", "long")):
            made.append(answer(run, f"{i}", budget, True, category=category))
            made.append(answer(run, f"{i}", budget, i == 0, category=category, selector="uniform"))
    other = made.begin({"dataset": "mlvu", "model": "m"})
    made.append(answer(other, "x", 8, True, category="ego"))
    made.append(answer(other, "y", 8, False, category="ego", error="broken"))
    return made


def test_the_main_table_has_the_papers_columns(results):
    rows = main_table(ScoredAnswers([results]))
    assert list(rows[0]) == ["K", "Selector", "Short", "Medium", "Long", "Overall", "Non-Lin.", "Micro Acc.",
                             "LVB", "MLVU", "Answered"]  # fmt: skip
    assert [(row["K"], row["Selector"]) for row in rows[:3]] == [(8, "mec"), (8, "uniform"), (16, "mec")]
    mec, uniform = rows[:2]
    assert (mec["Overall"], mec["MLVU"], mec["LVB"], mec["Medium"]) == (100, 100, None, None)
    assert (uniform["Short"], uniform["Long"], uniform["Overall"]) == (100, 0, 50)
    assert (
        markdown(rows).splitlines()[2]
        == "| 8 | mec | 100.00 |  | 100.00 | 100.00 |  |  |  | 100.00 | 3 of 4 |"
    )


def test_averages_over_budgets(results):
    rows = {row["Selector"]: row for row in regime_table(ScoredAnswers([results]))}
    assert rows["uniform"] == {"Selector": "uniform", "Low": 50, "Med.": 50, "High": 50, "Avg.": 50}
    by_budget = {row["Selector"]: row for row in budget_table(ScoredAnswers([results]))}
    assert by_budget["mec"]["256"] == 100


def test_an_average_that_lacks_a_budget_is_empty(tmp_path):
    made = QaResults(tmp_path / "r.jsonl")
    run = made.begin({"dataset": "videomme", "model": "m"})
    for budget in (8, 16, 32):
        made.append(answer(run, "1", budget, True))
    (row,) = regime_table(ScoredAnswers([made]))
    assert (row["Low"], row["Med."], row["Avg."]) == (100, None, None)


def test_runs_that_differ_are_told_apart(results):
    run = results.begin({"dataset": "videomme", "model": "bigger"})
    results.append(answer(run, "1", 8, False))
    rows = main_table(ScoredAnswers([results]))
    assert {(row["model"], row["K"]) for row in rows if row["Selector"] == "mec"} >= {("m", 8), ("bigger", 8)}


def test_costs_leave_out_selections_that_were_kept(tmp_path):
    made = QaResults(tmp_path / "r.jsonl")
    run = made.begin({"dataset": "videomme", "model": "m"})
    made.append(answer(run, "1", 8, True))
    made.append(answer(run, "1", 16, True))
    kept = {"seconds": 0.0, "kept": True, "candidates": 500}
    made.append(answer(run, "2", 8, True, selection=kept, choice=None))
    (row,) = cost_table(ScoredAnswers([made]))
    assert (row["Candidates"], row["Selection s"], row["Answer s"]) == (550, 2.0, 3.0)
    assert (row["Unreadable"], row["Answers"]) == (1, 3)


def test_costs_take_the_selection_that_ran_and_tell_runs_apart(tmp_path):
    made = QaResults(tmp_path / "r.jsonl")
    ran, kept = ({"seconds": s, "kept": k, "candidates": 500} for s, k in ((4.0, False), (0.0, True)))
    for dataset in ("videomme", "mlvu"):
        run = made.begin({"dataset": dataset, "model": "m"})
        made.append(answer(run, "1", 8, True, selection=ran if dataset == "mlvu" else ran | {"seconds": 2.0}))
        made.append(answer(run, "1", 16, True, selection=kept))
    (row,) = cost_table(ScoredAnswers([made]))
    assert row["Selection s"] == 3.0


def test_an_answer_in_several_files_counts_once_and_a_failure_never_replaces_it(tmp_path):
    files = []
    for name, errors in (("a", [None, "busy", None]), ("b", [None, None, "busy"])):
        made = QaResults(tmp_path / name)
        run = made.begin({"dataset": "videomme", "model": "m"})
        for i, error in enumerate(errors):
            made.append(answer(run, str(i), 8, name == "b" or i == 2, error=error))
        files.append(made)
    scored = ScoredAnswers(files)
    assert len(scored.records(*scored.settings, "mec")) == 3
    (row,) = main_table(scored)
    assert row["Overall"] == 100
    assert "Answered" not in row


def test_failed_questions_are_seen(tmp_path):
    made = QaResults(tmp_path / "r.jsonl")
    run = made.begin({"dataset": "videomme", "model": "m"})
    made.append(answer(run, "1", 8, True))
    made.append(answer(run, "2", 8, False, error="busy"))
    made.append(answer(run, "2", 16, False, error="busy"))
    assert [(r["Overall"], r["Answered"]) for r in main_table(ScoredAnswers([made]))] == [
        (100, "1 of 2"), (None, "0 of 1"),
    ]  # fmt: skip
    for table in (regime_table, budget_table, cost_table):
        assert table(ScoredAnswers([made]))[0]["Answered"] == "1 of 3"


def test_two_sets_of_annotations_are_two_rows_and_benchmarks_share_one(tmp_path):
    made = QaResults(tmp_path / "r.jsonl")
    for dataset, annotations in (("videomme", "test.parquet"), ("mlvu", "json")):
        run = made.begin({"dataset": dataset, "model": "m", "annotations": annotations})
        made.append(answer(run, "1", 8, True, category="ego"))
    (row,) = main_table(ScoredAnswers([made]))
    assert (row["Overall"], row["MLVU"]) == (100, 100)
    run = made.begin({"dataset": "mlvu", "model": "m", "annotations": "test_mcq_gt.json"})
    made.append(answer(run, "1", 8, False, category="ego"))
    rows = main_table(ScoredAnswers([made]))
    assert {row["annotations"]: row["MLVU"] for row in rows} == {
        "": None, "json": 100, "test_mcq_gt.json": 0,
    }  # fmt: skip


def test_every_line_is_json(results):
    kinds = [json.loads(line)["kind"] for line in results.path.read_text().splitlines()]
    assert kinds.count("run") == 2
