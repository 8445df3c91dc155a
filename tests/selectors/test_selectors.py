"""Every selector as a user meets it: exactly K distinct frames, in time order, with any scorer."""

import numpy as np
import pytest

from framenest import PRESETS, BudgetError, ConfigError, MECConfig, ScorerError, Selection, Selector, Session
from framenest.selectors import check_selector, load_selector, mec_config, needs_scorer, selector_names
from framenest.selectors import published_rules as rules
from framenest.selectors.built_in import (
    ScoredCandidates,
    every_second,
    exactly,
    nearest_seconds,
    whole_seconds,
)
from framenest.selectors.selection import load_result
from framenest.testing import TableScorer
from plugin_packages import install_example
from score_tables import zero_elsewhere

SCORES = zero_elsewhere({n: 0.1 + 0.8 * (150 <= n < 170) for n in range(0, 300, 5)})


class Vectors(TableScorer):
    """A table that also has vectors, so that every selector can use it."""

    def frame_vectors(self, encoded):
        angle = encoded["frame"] / 50
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def text_vector(self, question):
        return np.array([1.0, 0.0])


@pytest.fixture
def session():
    return Session(Vectors(SCORES))


OURS = [
    "mec", "min-gap", "uniform", "top-k", "aks", "aks-released", "wfs-sb", "bolt", "mdp3",
    "mdp3-segments", "facility-location",
]  # fmt: skip


def test_all_are_found_by_name():
    assert selector_names()[: len(OURS)] == OURS
    with pytest.raises(ConfigError, match="there is no selector 'best'; choose from mec, min-gap, uniform"):
        load_selector("best", Session(None))


@pytest.mark.parametrize("name", [n for n in OURS if n != "aks-released"])
@pytest.mark.parametrize("budgets", [[1], [8, 4], [12, 16, 64]])
def test_exactly_k_distinct_frames_in_time_order(session, clip, name, budgets):
    selector = load_selector(name, session)
    assert isinstance(selector, Selector)
    assert selector.name == name
    made = selector.select(clip, "Where is it?", budgets)
    assert list(made.prefixes) == sorted(budgets)
    for budget, prefix in made.prefixes.items():
        assert len(prefix) == budget
        assert (np.diff(prefix.frames) > 0).all()
        assert np.allclose(prefix.seconds, prefix.frames / 25)
        if prefix.ranks is not None:
            assert sorted(prefix.ranks.tolist()) == list(range(1, budget + 1))
    looked_at = {"uniform": range(1), "mec": range(13, 301), "min-gap": range(13, 301)}.get(
        name, range(12, 14)
    )
    assert made.stats["candidates"] in looked_at


def test_aks_as_released_is_short_below_32(session, clip):
    made = load_selector("aks-released", session).select(clip, "Where?", [8])
    assert len(made.prefix(8)) < 8


@pytest.mark.parametrize("name", OURS)
def test_a_short_video_gives_all_its_frames(session, frames, name):
    from framenest import open_video

    made = load_selector(name, session).select(open_video(frames[:5], fps=25), "Where?", [8])
    assert len(made.prefix(8)) <= 5
    if name not in ("aks-released",):
        assert made.prefix(8).frames.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["min-gap", "top-k", "mdp3", "facility-location"])
def test_those_that_rank_nest(session, clip, name):
    made = load_selector(name, session).select(clip, "Where?", [4, 8])
    assert set(made.prefix(4).frames.tolist()) <= set(made.prefix(8).frames.tolist())


def test_min_gap_orders_mecs_own_candidates(session, clip):
    """Two frames of 12 s can be 10 s apart, the third only 5 s."""
    ranking = load_selector("mec", session).rank(clip, "Where?")
    made = load_selector("min-gap", session).select(clip, "Where?", [1, 2, 64])
    assert set(made.prefix(64).frames.tolist()) <= set(ranking.pool.frames.tolist())
    assert made.prefix(1).frames.tolist() == [int(ranking.frames[0])]  # the best evidence
    assert made.stats["candidates"] == len(ranking.pool)
    by_rank = made.prefix(64).seconds[np.argsort(made.prefix(64).ranks)]
    assert np.abs(by_rank[1] - by_rank[0]) >= 5


def test_top_k_takes_the_most_relevant(session, clip):
    assert set(load_selector("top-k", session).select(clip, "Where?", [1]).prefix(1).frames.tolist()) == {150}


def test_mdp3_refuses_a_scorer_without_vectors(clip):
    selector = load_selector("mdp3", Session(TableScorer(SCORES)))
    with pytest.raises(
        ScorerError, match="mdp3 needs frame and text vectors, which scorer 'table' does not have"
    ):
        selector.select(clip, "Where?", [4])


def test_wfs_sb_says_what_its_diversity_is(clip):
    with_vectors = load_selector("wfs-sb", Session(Vectors(SCORES))).select(clip, "Where?", [4])
    without = load_selector("wfs-sb", Session(TableScorer(SCORES))).select(clip, "Where?", [4])
    assert with_vectors.stats["diversity"] == "the scorer's frame vectors"
    assert without.stats["diversity"] == "distance in time, since the scorer has no vectors"


class FrameVectors(TableScorer):
    """Vectors of frames and none of questions, as BLIP-2 has them."""

    frame_vectors = Vectors.frame_vectors


def test_wfs_sb_asks_for_no_vector_of_the_question(clip):
    """Frame vectors are all it needs for diversity; the choice is that of the rule with those vectors."""
    session = Session(FrameVectors(SCORES))
    made = load_selector("wfs-sb", session).select(clip, "Where?", [4])
    assert made.stats["diversity"] == "the scorer's frame vectors"
    grid = every_second(300, 25)
    vectors = session.scorer.frame_vectors({"frame": grid})
    scores = np.array([SCORES[n] for n in grid.tolist()])
    assert made.prefix(4).frames.tolist() == grid[rules.wfs_sb(scores, 4, vectors)].tolist()
    with pytest.raises(ScorerError, match="mdp3 needs frame and text vectors"):
        load_selector("mdp3", session).select(clip, "Where?", [4])


def test_wfs_sb_with_fewer_candidates_than_k_spreads_evenly_as_released(session, clip):
    """12 candidates in 300 frames: K = 12 is the rule's, from 13 on linspace(0, 299, K), rounded down."""
    made = load_selector("wfs-sb", session).select(clip, "Where?", [12, 13, 16])
    assert made.prefix(12).frames.tolist() == list(range(0, 300, 25))
    for budget in (13, 16):
        even = [i * 299 // (budget - 1) for i in range(budget)]
        assert made.prefix(budget).frames.tolist() == even


def test_budgets_are_checked(session, clip):
    with pytest.raises(BudgetError, match="1 or more"):
        load_selector("uniform", session).select(clip, "x", [0])
    made = load_selector("uniform", session).select(clip, "x", [4])
    with pytest.raises(BudgetError, match="holds budgets 4, not 8"):
        made.prefix(8)


def test_a_selection_round_trips(session, clip, tmp_path):
    made = load_selector("top-k", session).select(clip, "Where? – <b>", [4, 8])
    made.save(tmp_path / "s.json")
    for loaded in (Selection.load(tmp_path / "s.json"), load_result(tmp_path / "s.json")):
        assert (loaded.selector, loaded.question, loaded.scorer) == (
            made.selector,
            made.question,
            made.scorer,
        )
        for budget, prefix in made.prefixes.items():
            assert loaded.prefix(budget).frames.tolist() == prefix.frames.tolist()
            assert loaded.prefix(budget).ranks.tolist() == prefix.ranks.tolist()


def test_candidates_by_hand():
    """10 s at 29.97 fps: steps of 29 frames; BOLT rounds i·29.97."""
    assert whole_seconds(300, 29.97).tolist() == [29 * i for i in range(10)]
    assert every_second(300, 29.97).tolist() == [29 * i for i in range(11)]
    assert nearest_seconds(300, 29.97).tolist() == [0, 30, 60, 90, 120, 150, 180, 210, 240, 270]
    assert every_second(5, 0.5).tolist() == [0, 1, 2, 3, 4]


def test_bolts_power_is_a_setting(session):
    selector = load_selector("bolt:power=2.5", session)
    assert selector.name == "bolt:power=2.5"
    scores = np.random.default_rng(0).random(40)
    scored = ScoredCandidates(np.arange(40), scores, np.zeros((40, 1, 1, 3), np.uint8))
    for spec, power in (("bolt:power=2.5", 2.5), ("bolt", 3.0)):
        chosen = load_selector(spec, session).positions(scored, 16)
        assert chosen.tolist() == rules.bolt(scores, 16, power=power).tolist()
    assert load_selector("bolt:power=3", session).name == "bolt"
    for wrong, message in (
        ("bolt:2.5", "there is no preset '2.5'; give a setting as NAME=VALUE"),
        ("bolt:power=high", "power = 'high' is not allowed; it must be a number, 0 or more"),
        ("bolt:power=-1", "power = -1 is not allowed"),
        ("bolt:gamma=2", "there is no setting 'gamma'; choose from power"),
        ("aks:power=2", "there is no selector 'aks:power=2'; choose from mec"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_selector(wrong)


def test_topping_up_by_hand():
    """Duplicates go; the best unchosen come; then frames spread over the video."""
    scored = ScoredCandidates(
        np.array([0, 10, 20]), np.array([0.1, 0.9, 0.5]), np.zeros((3, 1, 1, 3), np.uint8)
    )
    assert exactly(np.array([0, 0]), scored, 2, 30).tolist() == [0, 10]
    assert exactly(np.array([], dtype=np.int64), scored, 1, 30).tolist() == [10]
    assert len(exactly(np.array([0]), scored, 7, 30)) == 7
    assert exactly(np.array([0]), scored, 99, 5 + 16).tolist() == list(range(21))


def test_a_selector_of_ones_own_is_found_through_its_entry_point(monkeypatch, tmp_path, clip):
    install_example(monkeypatch, tmp_path / "site", "selector_plugin")
    assert selector_names()[-1] == "middle-out"
    check_selector("middle-out")
    assert not needs_scorer("middle-out")
    chosen = load_selector("middle-out", Session(None)).select(clip, None, [3]).prefix(3)
    assert chosen.frames.tolist() == [149, 150, 151]
    assert chosen.ranks.tolist() == [2, 1, 3]


def test_what_follows_the_name_mec():
    config = mec_config("no-zoom+horizon=64+gamma=1.5")
    assert (config.discovery.zoom, config.ranking.horizon, config.ranking.gamma) == (0, 64, 1.5)
    assert mec_config("probing=keyframes").index.probing == "keyframes"
    based = mec_config("horizon=64", MECConfig.preset("no-zoom"))
    assert (based.discovery.zoom, based.ranking.horizon) == (0, 64)


@pytest.mark.parametrize("preset", PRESETS)
def test_mec_at_every_preset_selects(session, clip, preset):
    check_selector(f"mec:{preset}")
    made = load_selector(f"mec:{preset}", session).select(clip, "Where?", [4])
    assert len(made.prefix(4)) == 4


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("best", "there is no selector 'best'; choose from mec, min-gap"),
        ("mec:fast", "there is no preset 'fast'; choose from paper, residual, static-weights"),
        ("mec:zooms=1", "there is no setting 'zooms'; did you mean 'zoom'"),
        ("mec:horizon=x", "horizon = 'x'"),
        ("uniform:2", "there is no selector 'uniform:2'"),
        ("file:", "there is no selector 'file:'"),
    ],
)
def test_a_wrong_selector_is_refused_in_one_line_before_any_work(spec, said):
    for refuse in (check_selector, lambda wrong: load_selector(wrong, Session(None))):
        with pytest.raises(ConfigError) as refused:
            refuse(spec)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)


def test_which_selectors_choose_by_relevance():
    assert [needs_scorer(name) for name in ("mec:no-zoom", "aks", "uniform", "file:aks.json")] == [
        True, True, False, False,
    ]  # fmt: skip
