"""Does anything in the video match at all? An absolute answer, as far as a scorer has one."""

import json

import numpy as np
import pytest
from PIL import Image

from command_line import run
from framenest import MEC, MECConfig, Ranking, ScorerError
from framenest.config import IndexConfig
from framenest.errors import StoreError
from framenest.protocols import MatchStrength
from framenest.scorers.calibration import Calibrated, sigmoid
from framenest.testing import ArrayDecoder, TableScorer
from json_places import put
from score_tables import zero_elsewhere


def test_levels():
    found = [MatchStrength.of(value, strong=0.7, none=0.3).verdict for value in (0.9, 0.7, 0.5, 0.3, 0.29)]
    assert found == ["strong", "strong", "weak", "weak", "none"]


def test_better_verdicts_come_first():
    found = [MatchStrength(0.9, "cannot tell"), MatchStrength(0.2, "none"), MatchStrength(0.5, "weak")]
    assert max(found, key=lambda one: one.order).verdict == "weak"


class Probabilities(Calibrated):
    """Scores are the logits that frames carry in their first pixel."""

    name, version, inputs = "probabilities", "1", ()
    own_relevance, own_calibration = "probability", "none"
    match_levels = (0.5, 0.1)
    runs = 0

    def encode(self, frames):
        return {"logit": frames.frames.astype(np.float64) - 10}

    def scores(self, encoded, question, reference):
        Probabilities.runs += 1
        return encoded["logit"]

    def plain(self, scores):
        return sigmoid(scores)


def test_the_models_own_relevance_of_the_best_frame():
    scorer = Probabilities()
    probes = {"logit": np.array([-5.0, 1.0])}
    assert scorer.match_strength(probes, "x") == MatchStrength(0.7311, "strong")
    assert scorer.match_strength({"logit": np.array([-5.0])}, "x").verdict == "none"
    assert scorer.match_strength({"logit": np.zeros(0)}, "x") is None
    Probabilities.runs = 0
    scorer.match(probes, "again")
    scorer.match_strength(probes, "again")
    assert Probabilities.runs == 1, "the probes are scored once"


def test_a_ranking_carries_it_into_its_file_and_out_again(tmp_path):
    clip = ArrayDecoder(np.zeros((12, 8, 8, 3), np.uint8), fps=1)
    config = MECConfig(IndexConfig(base_probes=6, extra_probes=0))
    ranking = MEC(config, Probabilities(), store=tmp_path).rank(clip, "x")
    assert ranking.stats.match == MatchStrength(0.7311, "strong")
    ranking.save(tmp_path / "r.json")
    assert Ranking.load(tmp_path / "r.json").stats == ranking.stats
    assert (
        MEC(config, TableScorer(zero_elsewhere({0: 1.0})), store=tmp_path).rank(clip, "x").stats.match is None
    )
    assert MEC(config, Probabilities(), store=tmp_path).rank(clip, None).stats.match is None


class Naming(Probabilities):
    """Names its frames by number."""

    name = "naming"

    def labels(self, encoded, question, reference):
        return [f"{question} {logit + 10:.0f}" for logit in encoded["logit"]]


def test_what_frames_show_is_in_the_pool_the_file_the_report_and_the_table(tmp_path, capsys):
    clip = ArrayDecoder(np.zeros((12, 8, 8, 3), np.uint8), fps=1)
    config = MECConfig(IndexConfig(base_probes=6, extra_probes=0))
    ranking = MEC(config, Naming(), store=tmp_path).rank(clip, "cup")
    shown = [(role, reason) for role, reason in zip(ranking.roles, ranking.reasons, strict=True)]
    matching = ranking.frames[np.array(ranking.roles) == "evidence"]
    assert [reason for role, reason in shown if role == "evidence"] == [f"cup {frame}" for frame in matching]
    assert 0 < len(matching) < len(ranking)
    ranking.save(tmp_path / "r.json")
    again = Ranking.load(tmp_path / "r.json")
    assert again.pool.labels == ranking.pool.labels
    assert again.terms.keys() == ranking.terms.keys()
    assert (again.roles, again.reasons) == (ranking.roles, ranking.reasons)
    for arguments in ([], ["--csv"]):
        assert ranking.reasons[0] in run(capsys, "show", tmp_path / "r.json", *arguments)[1]
    data = json.loads((tmp_path / "r.json").read_text())
    (tmp_path / "short.json").write_text(json.dumps(put(data, "pool.seen", ["cup"])))
    with pytest.raises(StoreError, match=r"pool\.seen"):
        Ranking.load(tmp_path / "short.json")
    del data["pool"]["seen"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert Ranking.load(tmp_path / "old.json").reasons[0].startswith("relevance ")


def test_a_scorer_must_name_every_frame(tmp_path, monkeypatch):
    monkeypatch.setattr(Naming, "labels", lambda *_: ["cup"])
    clip = ArrayDecoder(np.zeros((12, 8, 8, 3), np.uint8), fps=1)
    with pytest.raises(ScorerError, match="scorer 'naming': labels must return 12 strings"):
        MEC(scorer=Naming(), store=tmp_path).rank(clip, "cup")


def test_tags_tell_what_is_there_from_what_is_not(tag_scorer, tags_store, shared_data):
    """Photographs of COCO with their captions; asked for what the first shows, and for what none shows."""
    photos = sorted((shared_data / "photos").glob("*.jpg"))[:24]
    if len(photos) < 24:
        pytest.skip("the photographs are not here")
    frames = np.stack([np.asarray(Image.open(photo).convert("RGB").resize((320, 240))) for photo in photos])
    config = MECConfig(IndexConfig(base_probes=24, extra_probes=0))
    mec = MEC(config, tag_scorer, store=tags_store)
    absent = mec.rank(frames, "When does the orchestra play the violin concerto?", fps=1).stats.match
    assert absent.verdict != "strong"
    assert 0 <= absent.value <= 1
    values = {
        question: mec.rank(frames, question, fps=1).stats.match.value
        for question in ("Where is a person?", "Where is the cat?", "Where is food on a plate?")
    }
    assert max(values.values()) > absent.value
