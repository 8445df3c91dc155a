"""The document of a report says what the ranking says."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from framenest import MEC, MECConfig
from framenest.errors import ConfigError
from framenest.method.ordering import RULES
from framenest.report.document import document, preset_of
from framenest.selectors import load_selector
from framenest.session import Session
from framenest.testing import ArrayDecoder, TableScorer
from score_tables import zero_elsewhere


@pytest.fixture
def video(frames):
    return ArrayDecoder(frames, fps=10)


@pytest.fixture
def scorer():
    return TableScorer(zero_elsewhere({30: 1.0, 90: 0.8}))


def test_columns_are_those_of_the_ranking(video, scorer):
    ranking = MEC(scorer=scorer).rank(video, "Where?")
    made = document([ranking])
    json.dumps(made)
    (entry,) = made["rankings"]
    assert entry["ranks"]["frames"] == ranking.frames.tolist()
    assert entry["pool"]["frames"] == ranking.pool.frames.tolist()
    # Rounded to the same tenth as in the terminal only if they are not rounded before.
    assert entry["ranks"]["seconds"] == ranking.seconds.tolist()
    measures = {"evidence": ranking.evidence, **ranking.cues, **ranking.terms}
    assert set(measures) == {
        *("evidence", "relevance", "change", "observability"),
        *("coverage", "diversity", "utility"),
    }
    for name, values in measures.items():
        np.testing.assert_allclose(entry["ranks"][name], values, atol=5.1e-5)
    assert {len(column) for column in entry["ranks"].values()} == {len(ranking)}
    drawn = {"evidence": ranking.pool.evidence, **ranking.pool.cues}
    assert [curve["name"] for curve in entry["curves"]] == list(drawn)
    for curve in entry["curves"]:
        np.testing.assert_allclose(curve["values"], drawn[curve["name"]], atol=5.1e-5)
    assert entry["curves"][0]["weight"] is None  # evidence is the sum of the others
    assert entry["stats"]["seconds"] == ranking.stats.seconds
    assert made["video"]["num_frames"] == 120


def test_what_is_said_is_one_more_cue(video, scorer):
    ranking = MEC(scorer=scorer).rank(video, "Where?")
    speech = np.linspace(0, 1, len(ranking.pool), dtype=np.float32)
    heard = replace(ranking, pool=replace(ranking.pool, cues={**ranking.pool.cues, "speech": speech}))
    (entry,) = document([heard])["rankings"]
    curves = {curve["name"]: curve for curve in entry["curves"]}
    assert curves["speech"]["weight"] == 0.6
    np.testing.assert_allclose(curves["speech"]["values"], speech, atol=5.1e-5)
    np.testing.assert_allclose(entry["ranks"]["speech"], heard.cues["speech"], atol=5.1e-5)
    names = [curve["name"] for curve in document([ranking])["rankings"][0]["curves"]]
    assert names == ["evidence", "relevance", "change", "observability"]


@pytest.mark.parametrize("preset", ["paper", "no-coverage", "evidence-only", "reverse"])
def test_values_times_weights_add_up_to_the_utility(video, scorer, preset):
    ranking = MEC(MECConfig.preset(preset), scorer=scorer).rank(video, "Where?")
    (entry,) = document([ranking])["rankings"]
    parts = entry["rule"]["parts"]
    assert [part["name"] for part in parts] == ["evidence", "coverage", "diversity"]
    assert [part["weights"][0] for part in parts] == [1, 0, 0]  # the first rank has evidence alone
    total = sum(np.multiply(part["values"], part["weights"]) for part in parts)
    np.testing.assert_allclose(total, entry["ranks"]["utility"], atol=3e-4)


def test_the_factors_of_the_residual_rule_multiply_to_the_utility(video, scorer):
    ranking = MEC(preset="residual", scorer=scorer).rank(video, "Where?")
    (entry,) = document([ranking])["rankings"]
    assert entry["rule"]["joins"] == "product"
    total = np.prod([part["values"] for part in entry["rule"]["parts"]], axis=0)
    np.testing.assert_allclose(total, entry["ranks"]["utility"], atol=3e-4)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_explains_every_term(video, scorer, name):
    ranking = MEC(scorer=scorer, rule=name).rank(video, "Where?")
    rule = document([ranking])["rankings"][0]["rule"]
    assert [term["name"] for term in rule["terms"]] == list(ranking.terms)


def test_a_file_without_the_terms_of_its_rule_is_shown_all_the_same(video, scorer):
    ranking = MEC(scorer=scorer).rank(video, "Where?")
    rule = document([replace(ranking, terms={})])["rankings"][0]["rule"]
    assert (rule["terms"], rule["parts"]) == ([], [])


def test_why_a_frame_comes_next(video, scorer):
    for preset in ("paper", "residual"):
        ranking = MEC(preset=preset, scorer=scorer).rank(video, "Where?")
        (entry,) = document([ranking])["rankings"]
        assert (entry["roles"], entry["reasons"]) == (ranking.roles, ranking.reasons)
        assert {"the beginning", "the end"} <= {*ranking.reasons}
        away = [re.fullmatch(r"([\d.]+) s from rank (\d+)", reason) for reason in ranking.reasons]
        assert any(away)
        for place, found in enumerate(away):
            if found:
                gaps = abs(ranking.seconds[:place] - ranking.seconds[place])
                assert float(found[1]) == pytest.approx(gaps[int(found[2]) - 1], abs=0.06)
                assert gaps.min() == gaps[int(found[2]) - 1]


def test_active_segments_cover_their_probes_and_no_others(video, scorer):
    config = MECConfig().with_settings({"base_probes": 40, "extra_probes": 0})
    ranking = MEC(config, scorer=scorer).rank(video, "Where?")
    spans = document([ranking])["rankings"][0]["active"]
    probes = ranking.pool.seconds[~ranking.pool.is_zoom]
    length = config.discovery.segment_length
    inside = {i // length for i, second in enumerate(probes) if any(a <= second <= b for a, b in spans)}
    assert inside == set(ranking.pool.active)
    assert len(spans) == len(ranking.pool.active)


def test_presets_are_recognised_by_their_settings():
    assert preset_of(MECConfig()) == ("paper", {})
    assert preset_of(MECConfig().with_settings({"start": 3.0, "end": 9.0})) == ("paper", {})
    assert preset_of(MECConfig.preset("back-loaded")) == ("back-loaded", {})
    assert preset_of(MECConfig().with_settings({"zoom": 4})) == ("paper", {"zoom": 4})


def test_labels_name_what_differs(video, scorer):
    mec, ablation = MEC(scorer=scorer), MEC(MECConfig.preset("no-zoom"), scorer=scorer)
    selection = load_selector("uniform", Session(scorer)).select(video, "Where?", [4, 8])

    def labels(*results, names=()):
        return [entry["label"] for entry in document(results, names=names)["rankings"]]

    first = mec.rank(video, "Where?")
    assert labels(first, ablation.rank(video, "Where?"), selection) == ["mec", "mec no-zoom", "uniform"]
    assert labels(first, mec.rank(video, "When?")) == ["Where?", "When?"]
    assert labels(first, mec.rank(video, None)) == ["Where?", "(no question)"]
    assert labels(first, first, names=["a", "b"]) == ["a", "b"]


def test_a_selection_keeps_its_budgets(video, scorer):
    selection = load_selector("uniform", Session(scorer)).select(video, "Where?", [8, 4])
    entry = document([selection])["rankings"][0]
    assert list(entry["budgets"]) == ["4", "8"]
    assert entry["budgets"]["4"]["frames"] == selection.prefix(4).frames.tolist()
    assert entry["budgets"]["4"]["ranks"] is None


def test_one_report_is_of_one_video(video, scorer, frames):
    other = ArrayDecoder(frames[::-1], fps=10)
    mec = MEC(scorer=scorer)
    with pytest.raises(ConfigError, match="different videos"):
        document([mec.rank(video, "Where?"), mec.rank(other, "Where?")])
    with pytest.raises(ConfigError, match="at least one"):
        document([])
