"""Selections made before a model is loaded, over toy rows and a fake of lmms-eval's loader."""

import json
import shutil
import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace

import pytest

from framenest.cli import main
from framenest.errors import BudgetError, ConfigError
from framenest.evaluation.lmms_eval.preparation import prepare
from framenest.evaluation.selection_cache import SelectionCache
from framenest.scorers.table import TableScorer

SELECTORS = ("mec", "aks", "wfs-sb", "uniform", "native")
QUESTIONS = ("First?", "Second?", "Third?")


@pytest.fixture
def place(tmp_path, monkeypatch, clip):
    """Two videos of which the questions alternate, and a task of each selector."""
    for number, name in enumerate(("a", "b")):
        shutil.copy(clip, tmp_path / f"{name}.mp4")
        with (tmp_path / f"{name}.mp4").open("ab") as file:
            file.write(bytes([number]))  # another content
    (tmp_path / "scores.json").write_text(json.dumps({str(i): i / 300 for i in range(300)}))

    def doc_to_visual(row):
        path = tmp_path / f"{row['videoID']}.mp4"
        if not path.exists():
            sys.exit(f"video path:{path} does not exist, please check")
        return [str(path)]

    def rows():
        return json.loads((tmp_path / "rows.json").read_text())

    def kwargs(selector):
        settings = {"benchmark": "videomme", "selector": selector, "scorer": f"table:{tmp_path}/scores.json"}
        return {"video_of": "toy_utils.doc_to_visual", "framenest": settings}

    known = {f"toy_{name}": kwargs(name) for name in SELECTORS} | {"mmmu": {}}
    monkeypatch.setitem(sys.modules, "toy_utils", SimpleNamespace(doc_to_visual=doc_to_visual))
    loader = ModuleType("lmms_eval.tasks")
    loader.TaskManager = lambda **_: SimpleNamespace(all_tasks=[*known])
    loader.get_task_dict = lambda names, *_: {
        name: SimpleNamespace(lmms_eval_specific_kwargs=known[name], eval_docs_no_media=rows())
        for name in names
    }
    monkeypatch.setitem(sys.modules, "lmms_eval.tasks", loader)
    log = SimpleNamespace(logger=SimpleNamespace(disable=lambda _: None))
    monkeypatch.setitem(sys.modules, "loguru", log)
    write_rows(tmp_path, "ab")
    return tmp_path


def write_rows(place, videos):
    rows = [{"videoID": v, "question": q, "options": ["A. x"]} for q in QUESTIONS for v in videos]
    (place / "rows.json").write_text(json.dumps(rows))


TOYS = tuple(f"toy_{name}" for name in SELECTORS)


def test_every_question_is_selected_once_at_all_budgets(place):
    done = prepare(TOYS, place, [2, 8])
    assert done.pop("seconds") > 0
    assert done == {"videos": 2, "selected": 2 * 3 * 4, "present": 0, "failures": []}  # none for native
    again = prepare(TOYS, place, [8, 2])
    assert (again["selected"], again["present"]) == (0, 2 * 3 * 4)
    more = prepare(TOYS, place, [2, 4])
    assert (more["selected"], more["present"]) == (2 * 3 * 3, 2 * 3)  # one ranking of MEC serves all
    cache = SelectionCache(f"table:{place}/scores.json")
    for selector in SELECTORS[:3]:
        assert len(cache.prefix(str(place / "b.mp4"), "Third?", selector, 4)) == 4
    assert cache.misses == 0


def test_parts_share_the_videos_and_a_limit_counts_questions_of_each_task(place):
    parts = [prepare(TOYS[:2], place, [2], part=(number, 2)) for number in (1, 2)]
    assert [part["videos"] for part in parts] == [1, 1]
    assert [part["selected"] for part in parts] == [3 * 2, 3 * 2]
    few = prepare(TOYS[:2], place, [2], limit=1)
    assert (few["videos"], few["present"]) == (1, 2)


def test_features_too_large_for_the_cache_are_decoded_once(place, monkeypatch):
    """For all questions, selectors and budgets of a video, though its questions stand apart."""
    encoded, encode = defaultdict(list), TableScorer.encode

    def counted(self, frames):
        encoded[current[-1]].extend(frames.frames.tolist())
        return encode(self, frames)

    current, select = [], SelectionCache.select

    def noted(self, video, *more):
        current.append(video)
        return select(self, video, *more)

    monkeypatch.setattr(TableScorer, "encode", counted)
    monkeypatch.setattr(SelectionCache, "select", noted)
    monkeypatch.setattr("framenest.scorers.feature_store.KEPT_BY_DEFAULT", 0)
    prepare(TOYS, place, [2, 8])
    assert len(encoded) == 2
    for frames in encoded.values():
        assert len(frames) == len(set(frames)) > 12


def test_a_missing_or_broken_video_is_one_line_and_the_others_are_selected(place, capsys):
    write_rows(place, "agbz")
    (place / "z.mp4").write_bytes(b"no video")
    done = prepare(TOYS, place, [2, 8])
    gone, broken = done["failures"]
    assert gone == f"video path:{place}/g.mp4 does not exist, please check"
    assert broken.startswith(f"{place}/z.mp4: not a video")
    assert broken.count(f"{place}") == 1
    assert done["selected"] == 2 * 3 * 4
    parts = [prepare(TOYS, place, [2, 8], part=(number, 2))["failures"] for number in (1, 2)]
    assert sorted(line for part in parts for line in part) == sorted(done["failures"])
    with pytest.raises(SystemExit) as stopped:
        main(["lmms-eval", "prepare", *TOYS, "--include-path", str(place), "--budgets", "2"])
    assert stopped.value.code == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [f"error: {gone}", f"error: {broken}"]
    assert printed.out.endswith("24 were there, 2 videos failed\n")


def test_budgets_beyond_the_horizon_are_said_or_refused_before_any_selection(place):
    """Refused if the selector serves no other; a table of horizons asks for all budgets at once."""
    said = []
    for _ in range(2):  # also where the ranking is in the cache
        with pytest.raises(BudgetError, match="mec ranks 256 frames, too few for a budget of 512"):
            prepare(TOYS, place, [512])
        prepare(TOYS, place, [8, 512], tell=said.append)
    line = (
        "mec ranks 256 frames, too few for a budget of 512; give it a longer horizon, as in mec:horizon=512"
    )
    assert said == [line, line]


def test_tasks_that_are_not_there_or_not_ours_are_refused(place):
    with pytest.raises(ConfigError, match="lmms-eval has no task toy_x"):
        prepare(["toy_x"], place, [2])
    with pytest.raises(ConfigError, match="task mmmu is not one of Framenest's"):
        prepare(["mmmu"], place, [2])


@pytest.mark.parametrize("part", ["9/8", "0/8", "1", "1/0", "a/b"])
def test_a_wrong_part_is_refused_before_anything_is_loaded(capsys, monkeypatch, part):
    monkeypatch.setitem(sys.modules, "lmms_eval.tasks", None)
    with pytest.raises(SystemExit):
        main(["lmms-eval", "prepare", "framenest_videomme", "--budgets", "8", "--part", part])
    assert f"'{part}' must be i/n" in capsys.readouterr().err


def test_tasks_and_prepare_read_the_same_selectors(place, capsys, monkeypatch):
    """With spaces, too."""
    given = []

    def write_tasks(store, selectors, **settings):
        given.append((selectors, settings["scorer"], settings["query"]))
        return place

    monkeypatch.setattr("framenest.cli.evaluate.write_tasks", write_tasks)
    options = ["--selectors", "mec, aks", "--scorer", "tags", "--query", "question+options"]
    for words in (["tasks"], ["prepare", "toy_uniform", "--budgets", "2"]):
        with pytest.raises(SystemExit) as stopped:
            main(["lmms-eval", *words, *options])
        assert stopped.value.code == 0, capsys.readouterr().err
    assert given == [(["mec", "aks"], "tags", "question+options")] * 2
