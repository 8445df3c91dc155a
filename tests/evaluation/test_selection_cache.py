"""Selections kept on disk."""

import json

import pytest

from framenest.errors import BudgetError
from framenest.evaluation.selection_cache import SelectionCache


@pytest.fixture
def table(tmp_path):
    """Scores of one's own: the end of the clip is what is asked for."""
    file = tmp_path / "scores.json"
    file.write_text(json.dumps({str(i): i / 300 for i in range(300)}))
    return f"table:{file}"


def test_one_ranking_serves_every_budget(clip, table):
    kept = SelectionCache(table)
    small = kept.prefix(str(clip), "What is last?", "mec", 4)
    assert kept.misses == 1
    again = SelectionCache(table)  # as in another process
    large = again.prefix(str(clip), "What is last?", "mec", 16)
    assert again.misses == 0
    assert set(small.frames.tolist()) < set(large.frames.tolist())


def test_a_selector_that_does_not_rank_selects_once_per_budget(clip, table):
    kept = SelectionCache(table)
    for budget, made in ((4, 1), (8, 2), (4, 2), (8, 2)):
        assert len(kept.prefix(str(clip), "What is last?", "aks", budget)) == budget
        assert kept.misses == made


def test_other_questions_settings_and_scores_are_other_selections(clip, table, tmp_path):
    kept = SelectionCache(table)
    for text, selector in (("a", "mec"), ("b", "mec"), ("a", "mec:no-zoom"), ("a", "mec:horizon=64")):
        kept.prefix(str(clip), text, selector, 4)
    assert kept.misses == 4
    (tmp_path / "scores.json").write_text(json.dumps({"0": 1.0, "1": 0.0, "299": 0.0}))
    changed = SelectionCache(table)
    changed.prefix(str(clip), "a", "mec", 4)
    assert changed.misses == 1


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
        SelectionCache(f"table:{file}").prefix(str(clip), "What?", "aks-released", 8)


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
    kept = SelectionCache(table)
    kept.prefix(str(clip), "What?", "mec", 4)
    (file,) = (cache / "selections").rglob("*.json")
    file.write_text("{")
    kept.prefix(str(clip), "What?", "mec", 4)
    assert kept.misses == 2


def test_a_budget_beyond_the_horizon_is_refused(clip, table):
    with pytest.raises(BudgetError, match="horizon"):
        SelectionCache(table).prefix(str(clip), "What?", "mec:horizon=8", 9)
