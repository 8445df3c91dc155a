import json
import pickle
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from framenest import BudgetError, ConfigError, MECConfig, ScorerConfig
from framenest.config import VideoConfig
from framenest.rank_request import Budget, LookFor, RankRequest

REQUEST = RankRequest(
    video="talk.mp4",
    question="Who speaks?",
    options=("a man", "a woman"),
    look_for=LookFor(("a speaker",)),
    preset="residual",
    config=MECConfig.preset("residual").with_settings({"start": 2, "max_gap": 1.5, "horizon": 64}),
    scorer="tags",
    scoring=ScorerConfig(device="cuda:1", batch=4, subtitles="auto"),
    opening=VideoConfig(fps=2.0),
)


def test_a_request_survives_json_and_pickle():
    assert msgspec.convert(json.loads(json.dumps(REQUEST.to_json())), RankRequest) == REQUEST
    assert pickle.loads(pickle.dumps(REQUEST)) == REQUEST


def test_a_damaged_request_is_refused():
    with pytest.raises(msgspec.ValidationError, match=r"options\[0\]"):
        msgspec.convert(REQUEST.to_json() | {"options": [3]}, RankRequest)
    with pytest.raises(ConfigError, match="look_for"):
        msgspec.convert(REQUEST.to_json() | {"look_for": {"texts": []}}, RankRequest)


def test_the_identity_holds_everything_but_what_only_affects_speed():
    def identity(**changes):
        return replace(REQUEST, **changes).identity()

    faster = replace(REQUEST, scoring=ScorerConfig(subtitles="auto"))
    assert faster.identity() == REQUEST.identity()
    others = [
        identity(question="Who listens?"),
        identity(look_for=None),
        identity(scoring=ScorerConfig(subtitles="none")),
        identity(config=MECConfig.preset("residual")),
        identity(opening=VideoConfig()),
    ]
    assert REQUEST.identity() not in others


@pytest.mark.parametrize("frames", [0, -1, True, 2.0, "8", None, np.int64(0)])
def test_a_budget_is_a_whole_number_above_zero(frames):
    with pytest.raises(BudgetError, match="a budget must be a whole number, 1 or more, not "):
        Budget(frames)


def test_a_budget_counts_like_a_number():
    assert Budget(np.int64(8)) == 8
    assert list(range(20))[: Budget(3)] == [0, 1, 2]
    assert json.dumps([Budget(8)]) == "[8]"
    assert pickle.loads(pickle.dumps(Budget(8))) == 8


@pytest.mark.parametrize(("text", "problem"), [("8,", "not a frame budget"), ("8,0", "not 0"), ("x", "'x'")])
def test_a_text_that_holds_no_budgets_is_refused(text, problem):
    assert Budget.parse("32,8,8") == [8, 32]
    with pytest.raises(BudgetError, match=problem):
        Budget.parse(text)
    with pytest.raises(BudgetError, match="at least one"):
        Budget.ladder([])
