"""Text on screen: words by hand, a real reader on drawn text, and the cue in the pipeline."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from framenest import MEC, MECConfig, Ranking, Session
from framenest.config import DiscoveryConfig, IndexConfig, ScorerConfig
from framenest.method.discovery import evidence
from framenest.scorers.ocr import ScreenText, spread
from framenest.scorers.question_text import Phrase, items, likeness, matching
from framenest.scorers.table import TableScorer
from framenest.testing import ArrayDecoder
from media import encode_video
from score_tables import zero_elsewhere

pytest.importorskip("rapidfuzz", reason="needs the extra `ocr`")


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


def test_any_beginning_of_the_reading_order_is_spread():
    assert sorted(spread(13).tolist()) == list(range(13))
    assert spread(1).tolist() == [0]
    first = np.sort(spread(256)[:16])
    assert np.diff(first).max() == 16


def test_evidence_with_text_by_hand():
    """0.7·1 + 0.2·0.5 + 0.1·0.5 = 0.85; with λt = 0.25 and τ = 0.4 it is 0.95. Without text, the paper's."""
    one = np.ones(1, np.float32)
    cues = {"relevance": one, "change": one / 2, "observability": one / 2}
    assert evidence(cues, DiscoveryConfig())[0] == pytest.approx(0.85)
    text = np.array([0.4], np.float32)
    assert evidence(cues | {"text": text}, DiscoveryConfig())[0] == pytest.approx(0.95)


@pytest.fixture(scope="module")
def station(tmp_path_factory):
    """Forty seconds of gray, in which ORIENT EXPRESS stands on a board for five."""
    font = ImageFont.load_default(size=48)
    pictures = []
    for second in range(40):
        image = Image.new("RGB", (480, 270), (90 + second, 100, 110))
        if 20 <= second < 25:
            ImageDraw.Draw(image).text((40, 100), "ORIENT EXPRESS", font=font, fill="white")
        pictures += [np.asarray(image)] * 5
    return encode_video(tmp_path_factory.mktemp("ocr") / "station.mp4", pictures, fps=5)


def test_text_on_screen_is_found(station, tmp_path):
    pytest.importorskip("rapidocr", reason="needs the extra `ocr`")
    config = MECConfig(IndexConfig(20, 0))
    nothing = TableScorer(zero_elsewhere({0: 0.0}))
    mec = MEC(config, nothing, store=tmp_path / "c", scoring=ScorerConfig(ocr=600))
    ranking = mec.rank(station, "When does the Orient Express leave?")
    assert 20 <= ranking.seconds[0] < 25
    assert ranking.cues["text"][0] > 0.5
    assert ranking.stats.read == len(ranking.pool)
    assert "text on screen by ocr rapidocr" in ranking.scorer
    ranking.save(tmp_path / "r.json")
    again = Ranking.load(tmp_path / "r.json")
    assert (again.cues["text"] == ranking.cues["text"]).all()
    assert (again.pool.cues["text"] == ranking.pool.cues["text"]).all()
    few = MEC(config, nothing, store=tmp_path / "c", scoring=ScorerConfig(ocr=8))
    assert few.rank(station, "When does the Orient Express leave?").stats.read == 8, (
        "whatever is kept already"
    )


def test_off_it_changes_nothing(station):
    ranking = MEC(MECConfig(IndexConfig(20, 0)), TableScorer(zero_elsewhere({0: 1.0}))).rank(
        station, "Orient Express"
    )
    assert "text" not in ranking.cues
    assert "text" not in ranking.to_json()["ranks"][0]
    assert ranking.stats.read is None


def test_the_budget_of_frames_is_spread_and_does_not_depend_on_what_was_read_before(tmp_path):
    class CountingReader:
        name, version, inputs = "counting", "1", ()

        def encode(self, frames):
            return {"frame": frames.frames}

        def match(self, encoded, question, *, reference=None):
            return np.ones(len(encoded["frame"]), np.float32)

    decoder = ArrayDecoder(np.zeros((64, 8, 8, 3), np.uint8), fps=1)
    session = Session(None, store=tmp_path)
    cache = session.features(decoder, CountingReader(), 8)
    for _ in range(2):  # the second time, all of it is in the cache
        text = ScreenText(cache, "What?", budget=12)
        probes = text.cue(np.arange(0, 64, 8))
        assert probes.tolist() == [1] * 8
        zoom = text.cue(np.arange(1, 64, 8))
        assert zoom.tolist() == [1, 0, 1, 0, 1, 0, 1, 0]
        assert text.read == 12
        assert not text.cue(np.arange(2, 64, 8)).any()
