"""A passage that answers the question is among the first three ranks, whatever the frames show."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framenest import MEC, Session
from framenest.config import PRESETS, RankingConfig, ScorerConfig
from framenest.method.cues import encode
from framenest.method.ordering import RULES, choose, greedy, residual
from framenest.scorers.speech import ANSWERS, Speech
from framenest.testing import ArrayDecoder, TableScorer
from framenest.transcript import Line, Transcript
from media import numbered_video
from score_tables import zero_elsewhere

NONE = -np.inf


@pytest.mark.parametrize(
    ("utility", "before", "spoken", "chosen"),
    [
        ([NONE, NONE, 0.9, 0.1, 0.3], [0, 1], [3, 4], 4),  # the best frame of the passage
        ([NONE, NONE, 0.9, 0.3, 0.3], [0, 1], [3, 4], 3),  # the earlier one of two equals
        ([NONE, NONE, 0.9, 0.1, 0.3], [0, 1], [1, 3], 2),  # rank 2 is in the passage
        ([NONE, NONE, 0.9, 0.1, 0.3], [0, 1], [], 2),  # no passage answers the question
        ([NONE, 0.2, 0.9, 0.1, 0.3], [0], [3], 2),  # ranks 1 and 2 are free
        ([NONE, NONE, NONE, 0.1, 0.3], [0, 1, 2], [3], 4),  # and so are those after rank 3
    ],
)
def test_the_third_rank_by_hand(utility, before, spoken, chosen):
    mask = np.isin(np.arange(5), spoken)
    assert choose(np.array(utility), np.array(before), mask) == chosen
    assert choose(np.array(utility), np.array(before), None) == np.argmax(utility)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(RULES)), st.integers(1, 40))
def test_rules_show_a_passage_by_rank_3_and_change_nothing_else_before(seed, rule, horizon):
    rng = np.random.default_rng(seed)
    count = int(rng.choice([1, 2, 3, 8, 30]))
    seconds = np.sort(rng.uniform(0, 600, count))
    evidence = rng.random(count).astype(np.float32)
    looks = encode(rng.integers(0, 256, (count, 3, 4, 3), dtype=np.uint8))
    blank = rng.random(count) < 0.3
    start = int(rng.integers(0, count))
    spoken = np.isin(np.arange(count), np.arange(start, start + int(rng.integers(0, 4))))
    config = RankingConfig(rule=rule, horizon=horizon)

    def order(mask):
        if rule == "paper":
            return greedy((seconds * 25).astype(np.int64), evidence, looks, 15_000, config, mask).order
        return residual(seconds, evidence, evidence, looks, config, blank, mask).order

    free, found = order(None), order(spoken)
    assert sorted(set(found.tolist())) == sorted(found.tolist())
    assert found[:2].tolist() == free[:2].tolist()
    if not spoken.any() or spoken[free[:3]].any():
        assert found.tolist() == free.tolist()
    elif len(found) > 2:
        assert spoken[found[2]]


class Encoder:
    """Knows no words; the tests say how high passages score."""

    name = "none"

    def many(self, sentences):
        return np.zeros((len(sentences), 1), np.float32)


def heard(monkeypatch, lines, scores):
    """Every session hears these lines; the passages that they make have these scores, again and again."""

    def hear(session, decoder, start, end):
        found = Transcript("a.srt", tuple(lines)).within(start, end)
        return found, Speech(found, Encoder(), session.store) if found.lines else None

    monkeypatch.setattr(Session, "heard", hear)
    monkeypatch.setattr(Speech, "scores", lambda self, _: np.resize(np.float32(scores), len(self.passages)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), preset=st.sampled_from(sorted(PRESETS)))
def test_every_passage_in_every_video(monkeypatch, seed, preset):
    """Gaps between probes, gaps between frames, equal and overlapping passages, windows, descriptions."""
    rng = np.random.default_rng(seed)
    fps = float(rng.choice([0.2, 2.0, 10.0]))
    count = int(rng.integers(4, 300))
    clip = ArrayDecoder(rng.integers(0, 256, (count, 4, 6, 3), dtype=np.uint8), fps=fps)
    starts = np.sort(rng.uniform(0, count / fps, int(rng.integers(1, 6))))
    lines = [Line(s, s + float(rng.choice([0.05, 1.0, 8.0])), "words") for s in starts.tolist()]
    heard(monkeypatch, lines, rng.choice([0.1, 0.79, 0.81, 0.95], 4))
    first, last = np.sort(rng.choice(count, 2, replace=False)) if rng.random() < 0.5 else (0, count - 1)
    seconds = clip.seconds[first : last + 1]
    mec = MEC(
        preset=preset,
        scorer=TableScorer(dict(enumerate(rng.random(count)))),
        base_probes=int(rng.choice([2, 6, 60])),
        extra_probes=0,
        start=float(seconds[0]),
        end=float(seconds[-1]),
    )
    ranking = mec.rank(clip, "anything", look_for=["a barn"] if rng.random() < 0.3 else ())
    speech = mec.session.heard(clip, seconds[0], seconds[-1])[1]
    if speech is None or speech.scores("").max() < ANSWERS:
        return
    best = speech.passages[int(speech.scores("").argmax())]
    during = (seconds >= best.start) & (seconds <= best.end)
    frames = seconds[during] if during.any() else seconds[seconds < best.start][-1:]
    assert np.isin(ranking.seconds[:3], frames).any()


def test_a_frame_that_does_not_decode_is_replaced_by_another_of_the_passage(monkeypatch):
    """Frames 0 and 99 are the probes, 40 to 50 the passage, of which only 48 decodes."""

    class Broken(ArrayDecoder):
        def _image(self, number):
            return None if 40 <= number <= 50 and number != 48 else super()._image(number)

    pixels = np.random.default_rng(0).integers(0, 256, (100, 4, 6, 3), dtype=np.uint8)
    heard(monkeypatch, [Line(40.0, 50.0, "words")], [0.9])
    ranking = MEC(scorer=TableScorer({0: 0, 99: 0}), base_probes=2, extra_probes=0, zoom=0).rank(
        Broken(pixels, fps=1), "anything"
    )
    assert 48 in ranking.frames[:3]
    assert ranking.stats.substitutes == ((45, 39), (50, 48))


def test_of_equal_passages_the_earlier_is_shown(monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (100, 4, 6, 3), dtype=np.uint8)
    heard(monkeypatch, [Line(20.0, 22.0, "words"), Line(60.0, 62.0, "words")], [0.9])
    scorer = TableScorer(zero_elsewhere({60: 1.0, 61: 1.0}, 100))
    ranking = MEC(scorer=scorer).rank(ArrayDecoder(pixels, fps=1), "anything")
    assert 60 <= ranking.seconds[0] <= 62
    assert ((ranking.seconds[:3] >= 20) & (ranking.seconds[:3] <= 22)).any()


SRT = (
    "1\n00:00:01,000 --> 00:00:03,000\nThe hall was built by a bishop.\n\n"
    "2\n00:00:08,200 --> 00:00:09,300\nThe treaty was signed in Helsinki.\n"
)
CITIES = {10: 0.95, 60: 0.9, 130: 0.9, 170: 0.85, 290: 0.8}
"""Frames that show a city, none of them while the treaty is spoken of."""


def test_a_spoken_answer_comes_before_the_fourth_picture_of_a_city(tmp_path, tags_store):
    video = numbered_video(tmp_path / "treaty.mp4", 300)
    (tmp_path / "treaty.srt").write_text(SRT)
    session = Session(TableScorer(zero_elsewhere(CITIES)), scoring=ScorerConfig(subtitles="auto"))

    def ranked(look_for=(), **given):
        mec = MEC(session=session, **{"base_probes": 31, "extra_probes": 0, **given})
        return mec.rank(video, "In which city was the treaty signed?", look_for=look_for)

    def shown(ranking):
        return ((ranking.seconds >= 8.2) & (ranking.seconds <= 9.3)).tolist()

    for preset in PRESETS:
        # A λs this small moves no frame by itself.
        ranking = ranked(preset=preset, speech_weight=1e-6)
        assert any(shown(ranking)[:3]), preset
        few = ranked(preset=preset, base_probes=3, zoom=0)  # no probe in the passage
        assert any(shown(few)[:3]), preset
    for rule in ("paper", "residual"):
        small = {"preset": rule, "speech_weight": 1e-6}
        assert shown(ranked(**small))[:3] == [False, False, True]
        assert ranked(**small).roles[2] == "evidence"
        assert "treaty" in ranked(**small).reasons[2], "what is said is the reason"
        assert any(shown(ranked(["a city"], **small))[:3])
        assert any(shown(ranked(start=4.0, end=8.5, **small))[:3])
        assert not any(shown(ranked(end=8.0, **small)))
        assert [len(ranked(horizon=h, **small)) for h in (1, 2)] == [1, 2]
        # Without a weight, what is said counts for nothing.
        assert not any(shown(ranked(preset=rule, speech_weight=0.0))[:3])
