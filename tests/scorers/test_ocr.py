"""Text on screen: words by hand, a real reader on drawn text, and what is written in a ranking."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from framenest import MEC, MECConfig, Ranking, Session
from framenest.config import IndexConfig, ScorerConfig
from framenest.errors import MissingExtra
from framenest.protocols import MatchStrength
from framenest.scorers.calibration import sigmoid
from framenest.scorers.ocr import MAX_LINES, OcrScorer, ScreenText, is_line, read_lines, texts
from framenest.scorers.question_text import (
    Phrase,
    asks_for,
    has_kind_of_text,
    items,
    likeness,
    matching,
)
from framenest.scorers.table import TableScorer
from framenest.testing import ArrayDecoder
from media import encode_video
from score_tables import zero_elsewhere

pytest.importorskip("rapidfuzz", reason="needs the extra `tags`")


def test_what_a_question_names():
    assert items('When does "OPEN 24h" appear near the Louvre in 1889?') == [
        Phrase("open 24h", "phrase"),
        Phrase("1889", "number"),
        Phrase("near", "word"),
        Phrase("louvre", "name"),
    ]
    assert items("What is shown on the screen?") == []


def test_likeness_by_hand():
    """One letter of seven wrong is 85.7 %, which counts 10.7 of 25; a number must be exact."""
    wanted = [Phrase("platform", "word"), Phrase("42", "number"), Phrase("grand hotel", "phrase")]
    texts = ["PLATFORM 42", "Platfomm 420", "the Grand Hotel, 1912", ""]
    found = likeness(wanted, texts)
    assert found[0] == pytest.approx([1, 1, 0], abs=0.2)
    assert found[1, 1] == 0
    assert found[1, 0] == pytest.approx((87.5 - 75) / 25)
    assert found[2, 2] == 1
    assert (found[3] == 0).all()


def test_what_stands_on_every_frame_tells_nothing():
    """A channel's name in the corner: 1 − (1 − 0.8·(1 − 1)) = 0; on one frame of four 0.8·0.75."""
    wanted = [Phrase("orient", "name")]
    everywhere = ["orient"] * 4
    assert matching(wanted, everywhere, everywhere).tolist() == [0, 0, 0, 0]
    once = ["orient", "", "", "other"]
    assert matching(wanted, once, once) == pytest.approx([0.6, 0, 0, 0])


@pytest.mark.parametrize(
    "question",
    [
        "What is written on the wall?",
        "Who directed the film?",
        "Who is the art director of the film?",
        "What does the sign say?",
        "Which word is typed in the search box?",
        "What is the web address of the shop?",
        "When does the clock show 02:37?",
        'When does "OPEN 24h" appear?',
        "Who gave financial support?",
        "According to the caption, who was first?",
        "What's the title?",
        "When is the word Blender on screen?",
        "What does it say on the door?",
        "What score is displayed?",
        "Which label is visible on the box?",
        "directed by whom?",
        "Who is the narrator?",
    ],
)
def test_questions_that_ask_for_something_written(question):
    assert asks_for("text", question)


@pytest.mark.parametrize(
    "question",
    [
        "When does a red car drive by?",
        "Who opens the window?",
        'When is this shown: "A bowl of noodles with a fork"?',
        "What happens after the credits?",
        "How many cups are on the table?",
        "What language does the narrator speak?",
        "According to the video, what animal is on the branch?",
        "What happens at 2:37?",
        "Who made the cake?",
        "Who paid for dinner?",
    ],
)
def test_questions_about_what_is_seen(question):
    assert not asks_for("text", question)


def test_counts_and_negations():
    for question in (
        "Is nobody in the room?",
        "When is no car seen?",
        "When are all three cups up?",
        "without a hat",
        "When is the room empty?",
        "a street without people",
        "When is a single bottle there?",
        "When is there more than one animal?",
        "When is nothing on the table?",
    ):
        assert asks_for("count", question), question
    for question in (
        "When is one cup red?",
        "Who knows?",
        "When are all cups upside down?",
        "no smoking sign",
    ):
        assert not asks_for("count", question), question


def test_kinds_of_text():
    assert has_kind_of_text("www.example.org", "What is the web address?")
    assert has_kind_of_text("Music by Jan Morgenstern", "Who made the music?")
    assert has_kind_of_text("at 9:05", "What time is it?")
    assert has_kind_of_text("Replace the file?", "What does the form ask?")
    assert not has_kind_of_text("music", "Who made the music?")
    assert not has_kind_of_text("www.example.org", "What is typed?")


def test_noise_is_no_line():
    noise, lines = ("JY", "业", "...", "7", "OK!?"), ("42", "00:05", "出口", "end")
    assert [is_line(text, 0.9) for text in (*noise, *lines)] == [False] * 5 + [True] * 4
    assert not is_line("a sure line", 0.6)


class Reading:
    """A reader of frames by number, and features of them."""

    def __init__(self, by_frame):
        self.by_frame = by_frame

    def get(self, frames, stage):
        rows = np.zeros((len(frames), 64), np.uint8)
        for row, frame in enumerate(frames.tolist()):
            text = self.by_frame.get(frame, "").encode()
            rows[row, : len(text)] = np.frombuffer(text, np.uint8)
        return type("Read", (), {"frames": frames, "encoded": {"text": rows}})


class Directions:
    """An encoder for which only "THE END" is close to the question, at 0.5."""

    name = "directions"

    def __call__(self, text):
        return np.float32([1, 0])

    def many(self, texts):
        return np.float32([[0.5, 0.5] if text == "THE END" else [0, 1] for text in texts])


class Nothing:
    def get(self, key):
        return None

    def put(self, key, header, arrays):
        assert key.startswith("screens/")


def test_what_is_written_decides_by_hand():
    """Scores 0.5 and 0: one half at min(the 95th percentile 0.475, 0.5 − 0.08) = 0.42. The best line answers
    by (0.5 − 0.25) / (0.55 − 0.25) = 5/6, so 0.8 · 5/6 = 2/3 of σ and 1/3 of ρ."""
    frames = np.arange(3)
    screen = ScreenText(Reading({0: "wall\nTHE END", 1: "wall"}), "What is typed?", Directions(), Nothing())
    relevance, reasons, certainty = screen.join(frames, np.float32([0.5, 1, 1]), ["cup", "", "map"])
    cue = sigmoid(np.array([(0.5 - 0.42) / 0.05, -0.42 / 0.05]))
    assert relevance == pytest.approx([2 / 3 * cue[0] + 0.5 / 3, 2 / 3 * cue[1] + 1 / 3, 1 / 3], abs=1e-6)
    assert reasons == ['reads "wall / THE END"', "", "map"]
    assert certainty == pytest.approx([0.5 * 0.5 / 0.55, 0, 0])
    assert (screen.match_strength().verdict, screen.match_strength().value) == ("weak", 0.5)
    zoomed, *_ = screen.join(np.array([7]), np.float32([1]), [])
    assert zoomed == pytest.approx([1 / 3]), "relative to the probes"


def test_lines_that_answer_nothing_change_nothing():
    frames, relevance = np.arange(2), np.float32([0.5, 1])
    screen = ScreenText(Reading({0: "wall"}), "What is typed?", Directions(), Nothing())
    joined, reasons, _ = screen.join(frames, relevance, ["cup", "map"])
    assert (joined == relevance).all()
    assert reasons == ["cup", "map"]


def test_without_any_text_relevance_is_what_it_was():
    relevance = np.float32([0.5, 1])
    screen = ScreenText(Reading({}), "What is typed?", Directions(), Nothing())
    assert screen.join(np.arange(2), relevance, [])[:2] == (pytest.approx(relevance), ["", ""])
    assert screen.match_strength().verdict == "none"
    assert screen.join(np.arange(1), relevance[:1], ["cup"])[:2] == (pytest.approx([0.5]), ["cup"])


class Look:
    def __init__(self, boxes):
        self.boxes = boxes

    def __call__(self, image, **_):
        return self


def test_of_a_wall_of_names_the_highest_lines_are_read_and_those_read_before_are_not_read_again():
    """Line i is i pixels high: the last MAX_LINES of 70 are read, in reading order."""

    class Reader:
        read = 0

        def detect_and_crop(self, image, options):
            corners = np.array([[[0, 0], [9, 0], [9, i], [0, i]] for i in range(70)], np.float32)
            return [np.full((2, 2), i, np.uint8) for i in range(70)], Look(corners)

        def recognize_txt(self, crops):
            self.read += len(crops)
            texts = [f"line {crop[0, 0]}" for crop in crops]
            return type("Result", (), {"txts": texts, "scores": [0.9] * len(crops)})

    image, reader = np.zeros((9, 9, 3), np.uint8), Reader()
    readings = read_lines(Look(True), reader, image, {})
    assert list(readings.values()) == [(f"line {i}", 0.9) for i in range(70 - MAX_LINES, 70)]
    readings.popitem()
    assert len(read_lines(Look(True), reader, image, readings)) == MAX_LINES
    assert reader.read == MAX_LINES + 1
    assert read_lines(Look(None), reader, image, readings) == {}


def drawn(text, shade=100):
    image = Image.new("RGB", (480, 270), (shade, 100, 110))
    if text:
        ImageDraw.Draw(image).text((40, 100), text, font=ImageFont.load_default(size=48), fill="white")
    return np.asarray(image)


@pytest.fixture(scope="module")
def station(tmp_path_factory):
    """Forty seconds of gray, in which ORIENT EXPRESS stands on a board for five."""
    pictures = []
    for second in range(40):
        pictures += [drawn("ORIENT EXPRESS" if 20 <= second < 25 else "", 90 + second)] * 5
    return encode_video(tmp_path_factory.mktemp("ocr") / "station.mp4", pictures, fps=5)


def test_drawn_text_is_read_and_the_same_picture_only_once(tmp_path):
    pytest.importorskip("rapidocr", reason="needs the extra `tags`")
    scorer = OcrScorer()
    pictures = np.stack([drawn("PLATFORM 42")] * 2 + [drawn(""), drawn("PLATFORM 43")])
    decoder = ArrayDecoder(pictures, fps=1)
    batch = next(iter(decoder.read(np.arange(4), sizes=scorer.inputs)))
    look, reader = scorer._readers()
    looked = []
    scorer._readers = lambda: (lambda image, **how: looked.append(1) or look(image, **how), reader)
    assert texts(scorer.encode(batch)) == ["PLATFORM 42", "PLATFORM 42", "", "PLATFORM 43"]
    assert len(looked) == 3


QUESTION = "When is Orient Express written on the board?"


def test_text_on_screen_is_found(station, tmp_path, warm_tags_store):
    pytest.importorskip("rapidocr", reason="needs the extra `tags`")
    config = MECConfig(IndexConfig(20, 0)).with_settings({"written": True})
    mec = MEC(config, TableScorer(zero_elsewhere({0: 0.0})), store=warm_tags_store)
    ranking = mec.rank(station, QUESTION)
    assert 20 <= ranking.seconds[0] < 25
    assert ranking.cues["relevance"][0] > 0.5
    assert ranking.reasons[0] == 'reads "ORIENT EXPRESS"'
    assert "text on screen by ocr 3, rapidocr" in ranking.scorer
    assert ranking.stats.match == MatchStrength(1.0, "strong"), "the line read judges, not labels"
    assert ranking.scorer == mec.scoring_name(mec.session.open(station), QUESTION)
    ranking.save(tmp_path / "r.json")
    assert Ranking.load(tmp_path / "r.json").reasons[0] == 'reads "ORIENT EXPRESS"'
    seen = mec.rank(station, "When is the train seen?")
    assert "ocr" not in seen.scorer


def test_index_reads_only_if_told_to(tmp_path):
    class Reader(Nothing):
        name, version, inputs = "ocr", "counting", ()

        def encode(self, frames):
            read.extend(frames.frames.tolist())
            return {"text": np.zeros((len(frames), 8), np.uint8)}

    decoder, read = ArrayDecoder(np.zeros((40, 8, 8, 3), np.uint8), fps=1), []
    for ocr in ("auto", "on"):
        session = Session(None, store=tmp_path, scoring=ScorerConfig(ocr=ocr))
        session._loaded["ocr"] = Reader()
        MEC(MECConfig(IndexConfig(10, 0)), session=session).index(decoder)
        assert len(read) == (10 if ocr == "on" else 0)


@pytest.mark.parametrize(("written", "ocr"), [(False, "on"), (True, "none")])
def test_off_it_changes_nothing(station, written, ocr):
    config = MECConfig(IndexConfig(20, 0)).with_settings({"written": written})
    ranking = MEC(config, TableScorer(zero_elsewhere({0: 1.0})), ocr=ocr).rank(station, QUESTION)
    assert "ocr" not in ranking.scorer
    assert ranking.cues["relevance"][0] == 1
    assert not ranking.pool.labels


def test_the_preset_of_the_paper_never_reads():
    assert not MECConfig().discovery.written
    assert not MECConfig.preset("paper").discovery.written
    assert MECConfig.preset("residual").discovery.written


def test_without_its_package_it_is_off_or_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert Session(None, store=tmp_path).reader is None
    with pytest.raises(MissingExtra):
        _ = Session(None, store=tmp_path, scoring=ScorerConfig(ocr="on")).reader
