"""Selections kept on disk."""

import json

import pytest

from framenest.errors import BudgetError, StoreError
from framenest.evaluation.selection_cache import SelectionCache
from framenest.models import CATALOGUE


@pytest.fixture
def table(tmp_path):
    """Scores of one's own: the end of the clip is what is asked for."""
    file = tmp_path / "scores.json"
    file.write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    return f"table:{file}"


def selected(cache, video, text, selector, budget):
    """The frames, selected unless they are in the cache."""
    cache.select(str(video), text, selector, [budget])
    return cache.prefix(str(video), text, selector, budget)


def test_one_ranking_serves_every_budget(clip, table):
    cache = SelectionCache(table)
    small = selected(cache, clip, "What is last?", "mec", 4)
    assert cache.misses == 1
    again = SelectionCache(table)  # as in another process
    large = again.prefix(str(clip), "What is last?", "mec", 16)
    assert again.misses == 0
    assert set(small.frames.tolist()) < set(large.frames.tolist())


def test_a_selector_that_does_not_rank_selects_once_per_budget(clip, table):
    cache = SelectionCache(table)
    for budget, made in ((4, 1), (8, 2), (4, 2), (8, 2)):
        assert len(selected(cache, clip, "What is last?", "aks", budget)) == budget
        assert cache.misses == made


def test_all_budgets_are_selected_at_once(clip, table):
    cache = SelectionCache(table)
    cache.select(str(clip), "What is last?", "aks", [4, 8])
    cache.select(str(clip), "What is last?", "aks", [8, 16, 4])
    assert cache.misses == 2
    assert [len(cache.prefix(str(clip), "What is last?", "aks", k)) for k in (4, 8, 16)] == [4, 8, 16]


@pytest.mark.parametrize("selector", ["mec", "aks"])
def test_reading_selects_nothing_that_takes_a_scorer(clip, table, selector):
    cache = SelectionCache(table)
    cache.select(str(clip), "What is last?", "aks", [4])
    with pytest.raises(StoreError, match=f"no selection by {selector} with 8 frames for 'What is last"):
        cache.prefix(str(clip), "What is last?", selector, 8)
    assert cache.misses == 1


def test_other_questions_settings_and_scores_are_other_selections(clip, table, tmp_path):
    cache = SelectionCache(table)
    for text, selector in (("a", "mec"), ("b", "mec"), ("a", "mec:no-zoom"), ("a", "mec:horizon=64")):
        cache.select(str(clip), text, selector, [4])
    assert cache.misses == 4
    (tmp_path / "scores.json").write_text(json.dumps({"0": 1.0, "1": 0.0, "299": 0.0}))
    changed = SelectionCache(table)
    changed.select(str(clip), "a", "mec", [4])
    assert changed.misses == 1


def test_a_package_that_reads_the_screen_matters_only_where_it_is_read(clip, table, monkeypatch):
    """The paper's rule reads nothing; `residual` reads if the question asks for something written."""
    made = []
    for installed in (False, True):
        monkeypatch.setattr(type(CATALOGUE["ocr"]), "installed", lambda _, here=installed: here)
        cache = SelectionCache(table)
        for selector in ("mec", "mec:no-zoom", "mec:residual"):
            cache.select(str(clip), "What is last?", selector, [4])
        made.append(cache.misses)
    assert made == [3, 1]


def test_other_weights_under_the_same_name_are_another_scorer(tmp_path):
    (tmp_path / "mine").mkdir()
    made = []
    for weights in (b"first", b"second"):
        (tmp_path / "mine" / "model.safetensors").write_bytes(weights)
        made.append(SelectionCache(f"clip:{tmp_path / 'mine'}").scorer)
    assert all(name.startswith("clip mine@") for name in made)
    assert made[0] != made[1]


def test_a_budget_without_frames_is_refused(clip, tmp_path):
    """As AKS's released code chooses none below 32 where no part stands out."""
    file = tmp_path / "flat.json"
    file.write_text(json.dumps({str(i): 0.5 for i in range(300)}))
    with pytest.raises(BudgetError, match="no frame was chosen for a budget of 8"):
        selected(SelectionCache(f"table:{file}"), clip, "What?", "aks-released", 8)


def test_uniform_needs_no_scorer(clip):
    kept = SelectionCache(None)
    assert kept.prefix(str(clip), "What?", "uniform", 3).frames.tolist() == [0, 150, 299]


def test_lists_made_elsewhere_are_read_each_time(clip, tmp_path):
    for frames in ([1, 5, 9], [2, 6, 10]):
        (tmp_path / "mine.json").write_text(json.dumps([frames]))
        kept = SelectionCache(None)
        chosen = kept.prefix(str(clip), "What?", f"file:{tmp_path / 'mine.json'}", 3)
        assert chosen.frames.tolist() == frames


def test_a_damaged_file_is_made_anew(clip, table, cache):
    selections = SelectionCache(table)
    selected(selections, clip, "What?", "mec", 4)
    (file,) = (cache / "selections").rglob("*.json")
    file.write_text("{")
    selected(selections, clip, "What?", "mec", 4)
    assert selections.misses == 2


def test_a_budget_beyond_the_horizon_is_refused(clip, table):
    with pytest.raises(BudgetError, match="horizon"):
        selected(SelectionCache(table), clip, "What?", "mec:horizon=8", 9)
