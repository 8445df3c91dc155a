"""Frames are decoded while others are encoded, and before the scorer is loaded; memory stays bounded."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from framenest import MEC, FrameBatch, ImageSpec, MECConfig, ScorerError, VideoError
from framenest.config import IndexConfig
from framenest.scorers.video_features import ReadAhead
from framenest.video.stills import ArrayDecoder

PATIENCE = 60  # seconds until a test that would wait for ever fails


class SteppedDecoder(ArrayDecoder):
    """Ten frames, one in each batch; `came` says how many were taken from it."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__(
            np.arange(10, dtype=np.uint8)[:, None, None, None] + np.zeros((10, 36, 64, 3), "u1"), 5
        )
        self.fails_at = fails_at
        self.came = 0
        self.moved = threading.Condition()

    def read(self, frames, *, sizes=(None,)):
        for number in frames:
            if number == self.fails_at:
                raise VideoError("made up")
            yield from super().read([number], sizes=sizes)
            with self.moved:
                self.came += 1
                self.moved.notify_all()

    def wait_for(self, count: int) -> None:
        with self.moved:
            assert self.moved.wait_for(lambda: self.came >= count, PATIENCE), f"only {self.came} were decoded"


class Counting:
    """A scorer that wants the next frame decoded before it encodes this one."""

    name, version, inputs = "counting", "1", (ImageSpec.squash(8, 8),)

    def __init__(self, decoder: SteppedDecoder) -> None:
        self.decoder = decoder
        self.seen: list[int] = []

    def encode(self, frames: FrameBatch):
        if len(frames):
            self.seen += frames.frames.tolist()
            self.decoder.wait_for(min(10, len(self.seen) + 1))
        return {"mean": frames.pixels[0].mean(axis=(1, 2, 3))}

    def match(self, encoded, question, *, reference=None):
        return (encoded["mean"] / 255).astype(np.float32)


def config() -> MECConfig:
    return MECConfig(IndexConfig(10, 0))


def test_the_next_frames_are_decoded_while_these_are_encoded(tmp_path):
    decoder = SteppedDecoder()
    scorer = Counting(decoder)
    MEC(config(), scorer, store=tmp_path).index(decoder)
    assert scorer.seen == [*range(10)]


def test_decoding_begins_before_the_scorer_is_loaded(tmp_path, monkeypatch):
    decoder = SteppedDecoder()

    def load(*_):
        decoder.wait_for(2)
        return Counting(decoder)

    monkeypatch.setattr("framenest.scorers.loading.load_scorer", load)
    monkeypatch.setattr("framenest.session.known_inputs", lambda *_: Counting.inputs)
    mec = MEC(config(), "slow", store=tmp_path)
    ranking = mec.rank(decoder, "what?")
    assert ranking.stats.decoded == 10
    assert decoder.came == 10, "what was begun is used, not done again"
    assert mec.session.scorer.seen == [*range(10)]


def test_pictures_that_are_not_wanted_after_all_are_decoded_again(tmp_path, monkeypatch):
    decoder = SteppedDecoder()
    monkeypatch.setattr("framenest.scorers.loading.load_scorer", lambda *_: Counting(decoder))
    monkeypatch.setattr("framenest.session.known_inputs", lambda *_: (ImageSpec.squash(4, 4),))
    other = MEC(config(), "slow", store=tmp_path / "a").rank(decoder, "what?")
    plain = SteppedDecoder()
    usual = MEC(config(), Counting(plain), store=tmp_path / "b").rank(plain, "what?")
    assert other.frames.tolist() == usual.frames.tolist()


def test_a_scorer_that_cannot_be_loaded_stops_the_decoding(tmp_path, monkeypatch):
    before = threading.active_count()

    def load(*_):
        raise ScorerError("no weights")

    monkeypatch.setattr("framenest.scorers.loading.load_scorer", load)
    monkeypatch.setattr("framenest.session.known_inputs", lambda *_: Counting.inputs)
    with pytest.raises(ScorerError, match="no weights"):
        MEC(config(), "slow", store=tmp_path).rank(SteppedDecoder(), "what?")
    assert threading.active_count() <= before + 1  # the loading thread may be at its last line
    assert not [thread for thread in threading.enumerate() if thread.name == "framenest-decode"]


def test_memory_is_bounded():
    decoder = SteppedDecoder()
    frame = 36 * 64 * 3
    with ReadAhead(decoder, np.arange(10), [None], most=2 * frame) as ahead:
        decoder.wait_for(3)
        assert ahead.next().frames.tolist() == [0]
        decoder.wait_for(4)
        assert decoder.came <= 5, "three lie ready or are about to, one was taken"
        assert [batch.frames[0] for batch in ahead] == [*range(1, 10)]


def test_an_error_comes_where_it_belongs():
    with ReadAhead(SteppedDecoder(fails_at=4), np.arange(10), [None]) as ahead:
        assert [ahead.next().frames[0] for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(VideoError, match="made up"):
            ahead.next()


def test_closing_ends_the_thread():
    ahead = ReadAhead(SteppedDecoder(), np.arange(10), [None], most=0)
    ahead.next()
    ahead.close()
    assert not ahead._thread.is_alive()
