"""Each frame is decoded once and encoded once; features are kept within limits for later processes."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from heavy_scorer import CONFIG, SyntheticHeavyScorer

from framenest import MEC, ImageSpec, ScorerError, VideoError
from framenest.cache.directory import DirectoryStore, EvictedFeatures, UnwritableCache
from framenest.cli import main
from framenest.corpus.batch_job import BatchJob, Work, WorkItem
from framenest.processes import FEATURES_VARIABLE
from framenest.rank_request import RankRequest
from framenest.scorers import feature_store, video_features
from framenest.scorers.feature_store import LargeFeatures, finish_writes
from framenest.scorers.video_features import KeptUnfinished, VideoFeatures, on_the_way
from framenest.session import Session
from framenest.testing import ArrayDecoder
from media import numbered_video
from processes import PATIENCE

SCRIPT = Path(__file__).parent / "heavy_scorer.py"
LIGHT = 2**12
"""float32 values a frame: 36 probes take 576 KiB."""


@pytest.fixture
def small_numbers(monkeypatch):
    """Features are kept by default up to 1 MB, written late from 200 kB on."""
    monkeypatch.setattr(feature_store, "KEPT_BY_DEFAULT", 1_000_000)
    monkeypatch.setattr(feature_store, "LATE", 200_000)


def kept_bytes(store):
    return sum(entry.size for entry in DirectoryStore(store).entries("features"))


def test_a_second_process_encodes_nothing_and_ranks_the_same(clip, tmp_path):
    """With features of more than 64 MiB, which nobody asked to keep."""
    command = [sys.executable, str(SCRIPT), str(clip), str(tmp_path / "store")]
    first, second = (
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(2)
    )
    assert first["encoded"] > 36
    assert kept_bytes(tmp_path / "store") > 64 * 2**20
    assert second["encoded"] == 0
    assert second["ranking"] == first["ranking"]


@pytest.mark.parametrize("keep", [None, True])
def test_features_that_are_too_large_are_told_before_the_work(small_numbers, clip, tmp_path, keep):
    """Unless they were asked to be kept."""
    events = []

    class Watched(SyntheticHeavyScorer):
        def encode(self, frames):
            events.extend(["encoded"] if len(frames) else [])
            return super().encode(frames)

    mec = MEC(CONFIG, Watched(4 * LIGHT), store=tmp_path / "store", keep_features=keep)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: events.append(message)
        mec.rank(clip, "Where?")
        finish_writes()
    told = [event for event in events if isinstance(event, LargeFeatures)]
    if keep:
        assert not told
    else:
        assert re.search(r"take \d\.\d MiB and are not kept; --keep-features keeps them", str(*told))
        assert events.index(told[0]) < events.index("encoded")
    assert (tmp_path / "store" / "features").exists() == bool(keep)


def test_none_are_kept_where_none_are_wanted(clip, tmp_path):
    mec = MEC(CONFIG, SyntheticHeavyScorer(LIGHT), store=tmp_path / "store", keep_features=False)
    mec.rank(clip, "Where?")
    assert not (tmp_path / "store" / "features").exists()


def test_small_features_are_kept_without_a_word(clip, tmp_path):
    MEC(CONFIG, SyntheticHeavyScorer(4), store=tmp_path / "store").rank(clip, "Where?")
    assert kept_bytes(tmp_path / "store") > 0


def test_the_video_unused_for_longest_goes_and_what_is_in_use_stays(small_numbers, tmp_path, monkeypatch):
    """Three videos of some 600 kB, where there is room for two; the features of the first are mapped."""
    monkeypatch.setenv(FEATURES_VARIABLE, "1.9MB")
    monkeypatch.setattr("framenest.cache.directory.MIN_MAPPED_BYTES", 1)
    videos = [numbered_video(tmp_path / f"{n}.mp4", 100 + n) for n in range(4)]
    store = DirectoryStore(tmp_path / "store")
    encoded = []

    def ask(number):
        scorer = SyntheticHeavyScorer(LIGHT)
        MEC(CONFIG, scorer, store=store).rank(videos[number], "Where?")
        finish_writes()
        encoded.append(scorer.encoded)

    ask(0)
    mapped = [store.get(entry.key) for entry in store.entries("features")]
    ask(1)
    with pytest.warns(EvictedFeatures, match=r"least recently used features were evicted .* 1\.8 MiB"):
        ask(2)
    monkeypatch.setenv(FEATURES_VARIABLE, "20MB")
    encoded.clear()
    for number in (0, 2, 1):
        ask(number)
    assert mapped
    assert encoded[:2] == [0, 0]
    assert encoded[2] > 0


def test_a_video_above_the_limit_evicts_nothing(small_numbers, clip, tmp_path, monkeypatch):
    store = DirectoryStore(tmp_path / "store")
    MEC(CONFIG, SyntheticHeavyScorer(4), store=store).rank(clip, "Where?")
    before = kept_bytes(store.root)
    monkeypatch.setenv(FEATURES_VARIABLE, "300kB")
    with pytest.warns(LargeFeatures, match=r"not kept: all features may take 293\.0 KiB"):
        MEC(CONFIG, SyntheticHeavyScorer(LIGHT), store=store).rank(clip, "Where?")
    assert kept_bytes(store.root) == before


def test_an_index_run_stops_before_it_evicts_what_it_made(small_numbers, tmp_path, monkeypatch):
    """Else a run over more videos than there is room for would index the first ones for nothing."""
    monkeypatch.setenv(FEATURES_VARIABLE, "1.8MB")
    old, *videos = (numbered_video(tmp_path / f"{n}.mp4", 100 + n) for n in range(4))
    store = DirectoryStore(tmp_path / "store")

    def indexed(video, run):
        (outcome,) = Work(run, store, SyntheticHeavyScorer(LIGHT))(
            (WorkItem(RankRequest(video=str(video), config=CONFIG)),)
        )
        return outcome

    assert indexed(old, BatchJob(began=0.0)).status == "done"
    long_ago = [*store.entries("features")]
    for entry in long_ago:
        os.utime(store.path(entry.key), (1e9, 1e9))
    run = BatchJob()
    first, second, third = (indexed(video, run) for video in videos)
    assert (first.status, second.status) == ("done", "done")
    assert not any(store.has(entry.key) for entry in long_ago)
    assert any("least recently used" in text for text in (*first.notes, *second.notes))
    assert (third.status, third.stops) == ("failed", True)
    assert "features of this run alone take" in third.text
    assert FEATURES_VARIABLE in third.text
    assert [indexed(video, run).status for video in videos[:2]] == ["already"] * 2


def test_what_was_asked_to_be_kept_and_is_above_the_limit_fails_before_the_work(clip, tmp_path, monkeypatch):
    monkeypatch.setenv(FEATURES_VARIABLE, "300kB")
    scorer = SyntheticHeavyScorer(LIGHT)
    (outcome,) = Work(BatchJob(), DirectoryStore(tmp_path), scorer)(
        (WorkItem(RankRequest(video=str(clip), config=CONFIG)),)
    )
    assert (outcome.status, outcome.stops, scorer.encoded) == ("failed", True, 0)
    assert "not kept: all features may take 293.0 KiB" in outcome.text


def test_the_limits_reach_the_work(clip, tmp_path, monkeypatch, capsys):
    table = tmp_path / "scores.csv"
    table.write_text("frame,score\n" + "".join(f"{n},0.5\n" for n in range(300)))
    monkeypatch.setenv(FEATURES_VARIABLE, "10kB")
    asked = ["rank", str(clip), "Where?", "--scorer", f"table:{table}", "--cache", str(tmp_path / "store")]

    def run(*more):
        with pytest.raises(SystemExit) as ended:
            main([*asked, *more])
        return ended.value.code, capsys.readouterr().err

    code, err = run()
    assert code == 0
    limit = f"all features may take 9.8 KiB in the cache (${FEATURES_VARIABLE} raises the limit)"
    assert f"not kept: {limit}" in err
    assert not kept_bytes(tmp_path / "store")
    monkeypatch.delenv(FEATURES_VARIABLE)
    assert run("--no-keep-features")[0] == 0
    assert not kept_bytes(tmp_path / "store")
    monkeypatch.setenv(FEATURES_VARIABLE, "much")
    code, err = run()
    assert code == 2
    assert "$FRAMENEST_FEATURES_LIMIT: 'much' is not a size; write it like 500MB" in err
    monkeypatch.delenv(FEATURES_VARIABLE)
    assert run()[0] == 0
    assert kept_bytes(tmp_path / "store") > 0


def test_a_late_write_that_fails_is_told(clip, tmp_path, small_numbers):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "features").write_text("a file where features should be")
    mec = MEC(CONFIG, SyntheticHeavyScorer(LIGHT), store=tmp_path / "store", keep_features=True)
    with pytest.warns(UnwritableCache, match="not cached for the next run"):
        _rank_and_write(mec, clip)


def _rank_and_write(mec, clip):
    assert len(mec.rank(clip, "Where?")) > 0
    finish_writes()


def test_nobody_waits_for_a_write_and_parts_are_written_in_their_order(small_numbers, clip, tmp_path):
    """The probes' part is not written before the ranking is there; then it comes before the zoom frames'."""
    ranked, written = threading.Event(), []

    class SlowStore(DirectoryStore):
        def put(self, key, header, arrays):
            if key.startswith("features/"):
                ranked.wait()
                written.append(len(arrays["frames"]))
            super().put(key, header, arrays)

    store = SlowStore(tmp_path / "store")
    ranking = MEC(CONFIG, SyntheticHeavyScorer(LIGHT // 2), store=store).rank(clip, "Where?")
    assert written == []
    ranked.set()
    finish_writes()
    assert written == [36, ranking.stats.zoom]
    again = SyntheticHeavyScorer(LIGHT // 2)
    MEC(CONFIG, again, store=tmp_path / "store").rank(clip, "Where?")
    assert again.encoded == 0


def test_an_index_is_written_when_it_returns(small_numbers, clip, tmp_path):
    """So that a question in another process finds it."""

    class SlowStore(DirectoryStore):
        def put(self, key, header, arrays):
            if key.startswith("features/"):
                time.sleep(0.2)
            super().put(key, header, arrays)

    MEC(CONFIG, SyntheticHeavyScorer(LIGHT), store=SlowStore(tmp_path / "store")).index(clip)
    assert kept_bytes(tmp_path / "store") > 500_000


def test_an_error_of_a_late_write_is_raised_once(small_numbers, clip, tmp_path):
    class BrokenStore(DirectoryStore):
        def put(self, key, header, arrays):
            if key.startswith("features/"):
                raise OSError("the disk is gone")
            super().put(key, header, arrays)

    mec = MEC(CONFIG, SyntheticHeavyScorer(LIGHT), store=BrokenStore(tmp_path / "store"))
    with pytest.raises(OSError, match="the disk is gone"):
        mec.index(clip)
    finish_writes()


class SteppedDecoder(ArrayDecoder):
    """Ten frames, one in each batch; `came` counts those read from it."""

    def __init__(self, fails_at: int = -1) -> None:
        numbers = np.arange(10, dtype=np.uint8)[:, None, None, None]
        super().__init__(numbers + np.zeros((10, 36, 64, 3), np.uint8), 5)
        self.fails_at = fails_at
        self.came = 0
        self.closed = False
        self.moved = threading.Condition()

    def read(self, frames, *, sizes=(None,)):
        try:
            for number in frames:
                if number == self.fails_at:
                    raise VideoError("made up")
                yield from super().read([number], sizes=sizes)
                with self.moved:
                    self.came += 1
                    self.moved.notify_all()
        finally:
            self.closed = True

    def wait_for(self, count: int) -> None:
        with self.moved:
            assert self.moved.wait_for(lambda: self.came >= count, PATIENCE), f"only {self.came} were decoded"


class Counting:
    """A scorer that counts frames; `before(seen)` runs before it encodes some."""

    name, version, inputs = "counting", "1", (ImageSpec.squash(8, 8),)

    def __init__(self, before=lambda _seen: None) -> None:
        self.before = before
        self.seen: list[int] = []

    def encode(self, frames):
        if len(frames):
            self.before(self.seen)
            self.seen += frames.frames.tolist()
        return {"mean": frames.pixels[0].mean(axis=(1, 2, 3))}

    def match(self, encoded, question, *, reference=None):
        return (encoded["mean"] / 255).astype(np.float32)


def features_of(decoder, scorer, folder, progress=False) -> VideoFeatures:
    return Session(scorer, store=folder, progress=progress).features(decoder, scorer, 32)


def test_the_next_frames_are_decoded_while_these_are_encoded(tmp_path):
    decoder = SteppedDecoder()
    scorer = Counting(lambda seen: decoder.wait_for(min(10, len(seen) + 2)))
    features_of(decoder, scorer, tmp_path).get(np.arange(10), "probes")
    assert scorer.seen == [*range(10)]


def test_few_batches_are_decoded_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(video_features, "AHEAD", 3)
    decoder = SteppedDecoder()

    def waits(seen):
        decoder.wait_for(min(10, len(seen) + 3 + 1))
        assert decoder.came <= len(seen) + 3 + 2, "those ready, one to come, this one"

    features_of(decoder, Counting(waits), tmp_path).get(np.arange(10), "probes")


def test_work_that_breaks_off_is_kept_and_continued(tmp_path):
    """An error of the decoder comes after the frames before it; no thread is left."""
    scorer, broken = Counting(), SteppedDecoder(fails_at=4)
    with pytest.warns(KeptUnfinished, match="4 of 10 frames were done"), pytest.raises(VideoError):
        features_of(broken, scorer, tmp_path).get(np.arange(10), "probes")
    assert broken.closed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("framenest-decode")]
    whole = SteppedDecoder()
    found = features_of(whole, scorer, tmp_path).get(np.arange(10), "probes")
    assert scorer.seen == [*range(10)]
    assert whole.came == 6
    assert found.encoded["mean"].tolist() == [*range(10)]


def test_progress_counts_half_of_a_frame_when_it_is_decoded_and_half_when_it_is_encoded(tmp_path):
    events = []
    scorer = Counting(lambda _: events.append("encoding"))
    scorer.batch = 8
    features = features_of(SteppedDecoder(), scorer, tmp_path, lambda *told: events.append(told[1]))
    features.get(np.arange(10), "probes")
    assert events == [0, 0, 1, 1, 2, 2, 3, 3, 4, "encoding", 8, 8, 9, "encoding", 10, 10]


def test_ctrl_c_keeps_what_is_encoded_and_does_not_wait_for_the_decoder(tmp_path):
    """The thread that decodes ends by itself."""
    released = threading.Event()

    class Slow(SteppedDecoder):
        def read(self, frames, *, sizes=(None,)):
            for batch in super().read(frames, sizes=sizes):
                if batch.frames[0] == 3:
                    released.wait(PATIENCE)
                yield batch

    def interrupts(seen):
        if len(seen) == 2:
            raise KeyboardInterrupt

    decoder = Slow()
    with pytest.warns(KeptUnfinished, match="2 of 10 frames were done"), pytest.raises(KeyboardInterrupt):
        features_of(decoder, Counting(interrupts), tmp_path).get(np.arange(10), "probes")
    assert not decoder.closed
    released.set()
    for thread in threading.enumerate():
        if thread.name == "framenest-decode":
            thread.join(PATIENCE)
    assert decoder.closed
    assert decoder.came < 10


def test_a_scorer_that_fails_stops_the_decoder(tmp_path, monkeypatch):
    monkeypatch.setattr(video_features, "AHEAD", 3)

    def fails(_):
        raise ScorerError("too hot")

    decoder = SteppedDecoder()
    with pytest.raises(ScorerError, match="too hot"):
        features_of(decoder, Counting(fails), tmp_path).get(np.arange(10), "probes")
    assert decoder.closed
    assert decoder.came < 10


def test_frames_passed_on_the_way_are_decoded_once_and_come_out_the_same(tmp_path, monkeypatch):
    """As many as there is memory for, evenly spread; each is held until a question asks for it."""
    decoder, scorer = SteppedDecoder(), Counting()
    features = features_of(decoder, scorer, tmp_path / "a")
    each = 3 * (57 * 32 + 8 * 8)
    monkeypatch.setattr(video_features, "PASSED_BYTES", 3 * each)
    without = features.nbytes
    features.get(np.array([0, 9]), "probes", np.arange(1, 9))
    held = features.nbytes - without
    assert (decoder.came, scorer.seen) == (5, [0, 9])
    found = features.get(np.arange(10), "zoom")
    assert decoder.came == 10, "three of the eight were held: 1, 4 and 8"
    assert sorted(scorer.seen) == [*range(10)]
    assert held > 3 * each
    plain = features_of(SteppedDecoder(), Counting(), tmp_path / "b").get(np.arange(10), "zoom")
    assert found.thumbnails.tobytes() == plain.thumbnails.tobytes()
    assert found.encoded["mean"].tobytes() == plain.encoded["mean"].tobytes()


@pytest.mark.parametrize(
    ("wanted", "others", "expected"),
    [
        ([40, 80], [10, 60], [10, 60]),  # between the key frame and what is wanted
        ([80], [81, 89], [81, 89]),  # nine frames more than 81: little
        ([80], [81, 95], []),  # 15 more than 81: too many, so none of those behind
        ([80, 180], [95, 170], [95, 170]),  # 15 more than 162: little
        ([80, 180], [99, 170, 199], [170]),  # 38 more than 162
        ([80, 180], [105], [105]),  # before the wanted one of the next group
        ([80], [105, 170], []),  # a group of pictures without a wanted frame
        ([], [5], []),
    ],
)
def test_what_is_on_the_way(wanted, others, expected):
    keys = np.array([0, 100])
    found = on_the_way(keys, np.array(wanted, np.int64), np.array(others, np.int64))
    assert found.tolist() == expected


def test_nothing_is_on_the_way_if_every_frame_is_a_key_frame():
    assert on_the_way(np.arange(50), np.array([10, 20]), np.array([9, 15, 21])).tolist() == []
