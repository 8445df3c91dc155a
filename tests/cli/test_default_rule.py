"""Everything made for use ranks by `residual`; what reproduces the paper keeps the paper's rule."""

import pytest

import framenest as fn
from command_line import run
from framenest.selectors import load_selector, mec_config

QUESTION = "Where is it?"


@pytest.fixture
def rankings(clip, table):
    """The frames of each rule, best first; the first eight differ."""
    found = {
        name: fn.MEC(preset=name, scorer=table).rank(clip, QUESTION).frames.tolist()
        for name in ("residual", "paper")
    }
    assert set(found["residual"][:8]) != set(found["paper"][:8])
    return found


@pytest.mark.parametrize(("given", "rule"), [((), "residual"), (("--preset", "paper"), "paper")])
def test_rank(capsys, clip, table, rankings, tmp_path, given, rule):
    code, _, err = run(capsys, "rank", clip, QUESTION, "--scorer", table, "-o", tmp_path / "r.json", *given)
    assert code == 0, err
    made = fn.Ranking.load(tmp_path / "r.json")
    assert made.config.ranking.rule == rule
    assert made.frames.tolist() == rankings[rule]


@pytest.mark.parametrize(
    ("selector", "rule"), [("mec", "residual"), ("mec:horizon=64", "residual"), ("mec:paper", "paper")]
)
def test_select(capsys, clip, table, rankings, tmp_path, selector, rule):
    given = ("--selector", selector, "-k", 8, "--scorer", table, "-o", tmp_path / "s.json")
    code, _, err = run(capsys, "select", clip, QUESTION, *given)
    assert code == 0, err
    chosen = fn.Selection.load(tmp_path / "s.json").prefix(8)
    assert chosen.frames.tolist() == sorted(rankings[rule][:8])


def test_python(clip, table, rankings):
    assert fn.rank(clip, QUESTION, scorer=table).frames.tolist() == sorted(rankings["residual"][:8])
    paper = fn.rank(clip, QUESTION, scorer=table, preset="paper")
    assert paper.frames.tolist() == sorted(rankings["paper"][:8])
    assert fn.MEC(scorer=table).rank(clip, QUESTION).frames.tolist() == rankings["paper"]
    assert fn.MECConfig().ranking.rule == "paper"


def test_evaluations_keep_the_papers_rule(clip, table, rankings):
    assert mec_config("").ranking.rule == "paper"
    chosen = load_selector("mec", fn.Session(table)).select(clip, QUESTION, [8]).prefix(8)
    assert chosen.frames.tolist() == sorted(rankings["paper"][:8])
