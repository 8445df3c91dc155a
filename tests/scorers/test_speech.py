"""What is said around a frame as a cue: passages, their scores, where they lie."""

import numpy as np
import pytest

from framenest.scorers.question_text import SentenceEncoder, items, mentions
from framenest.scorers.speech import Speech, passages
from framenest.transcript import Line, Transcript

TALK = (
    "Welcome back to the workshop, it is good to see so many of you here.",
    "The barn behind the house was a stable for two hundred years.",
    "We heated the kiln to twelve hundred degrees and left it like that overnight.",
    "My sister prefers to work with paper, she says clay is too heavy.",
    "The barn door has to be painted again before the winter.",
    "Mister Tanaka sold his share of the company to a rival in Osaka.",
    "Questions can be asked at the end, there is coffee next door.",
    "Some of these tools were made by my grandfather.",
)


class Kept(dict):
    def put(self, key, header, arrays):
        self[key] = dict(header), dict(arrays)


@pytest.fixture(scope="module")
def encoder(warm_tags_store):
    return SentenceEncoder(warm_tags_store)


@pytest.fixture(scope="module")
def talk(encoder):
    lines = [Line(10.0 * i, 10.0 * i + 5, text) for i, text in enumerate(TALK)]
    return Speech(Transcript("talk.srt", tuple(lines)), encoder, Kept())


def test_a_question_finds_the_line_that_answers_it(talk):
    for question, place in (
        ("How hot did the kiln get?", 2),
        ("To whom did Tanaka sell his part of the firm?", 5),
        ("Who made the tools?", 7),
    ):
        best, *others = talk.best(question, 3)
        assert best.text == TALK[place]
        assert best.score > 0.6
        assert all(other.score < 0.5 for other in others)


def test_a_question_about_something_else_finds_nothing(talk):
    for question in ("What colour is the train?", "Which animal jumps over the fence?", "What is it?"):
        assert talk.scores(question).max() < 0.3


def test_the_cue_lies_where_it_is_said(talk):
    seconds = np.arange(0.0, 80.0, 2.0)
    cue = talk.cue(seconds, "How hot did the kiln get?")
    assert cue.dtype == np.float32
    assert ((cue >= 0) & (cue <= 1)).all()
    high = seconds[cue > 0.5]
    assert high.min() >= 19
    assert high.max() <= 26


def test_what_is_said_between_two_probes_is_not_missed(talk):
    probes = np.array([0.0, 40.0, 79.0])
    question = "How hot did the kiln get?"
    assert talk.cue(probes, question).max() < 0.01
    cue = talk.cue(probes, question, every_passage=True)
    assert cue.argmax() == 1
    assert cue.max() == pytest.approx(talk.scores(question).max() / 2)  # enough to look closer there


def test_few_moments_are_high_where_all_is_about_the_question(encoder):
    lines = [
        Line(5.0 * i, 5.0 * i + 4, f"Kiln number {i} was heated to {900 + i} degrees.") for i in range(60)
    ]
    scores = Speech(Transcript("a.srt", tuple(lines)), encoder, Kept()).scores("How hot did kiln 42 get?")
    assert (scores > 0.5).mean() <= 0.06
    assert scores.argmax() == 42


def test_short_lines_are_joined_and_pauses_part_them():
    lines = [
        Line(0, 2, "a"),
        Line(2, 4, "b"),
        Line(4, 6, "c"),
        Line(6, 8, "d"),
        Line(20, 40, "e"),
        Line(40, 41, "f"),
    ]
    assert [p.text for p in passages(lines)] == ["a b c", "b c d", "c d", "d", "e", "f"]
    assert passages([]) == []


def test_vectors_are_kept(encoder, monkeypatch):
    store, said = Kept(), Transcript("a.srt", (Line(0.0, 4.0, TALK[2]),))
    first = Speech(said, encoder, store)
    monkeypatch.setattr(SentenceEncoder, "many", None)
    again = Speech(said, encoder, store)
    monkeypatch.undo()
    question = "How hot did the kiln get?"
    assert np.array_equal(first.scores(question), again.scores(question))


def test_words_are_mentions_in_any_form():
    wanted = items('Who fires the "old kiln" of Tanaka in 1953?')
    assert [item.text for item in wanted] == ["old kiln", "1953", "fires", "tanaka"]
    said = ["The old kiln was fired in 1953 by TANAKA.", "Firing takes a day, 11953 of them.", ""]
    assert mentions(wanted, said).tolist() == [[1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
