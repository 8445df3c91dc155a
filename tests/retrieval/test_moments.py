"""Search over a library: which videos, which moments, and what no longer is there."""

import json
import math

import numpy as np
import pytest
from colours import COLOURS, ColourScorer, colour_video

import framenest as fn
from framenest import ConfigError, Searcher, Session, VideoError
from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.retrieval.search import stretches
from framenest.scorers.table import TableScorer
from media import number_in, numbered_video


@pytest.fixture
def library(tmp_path):
    """Three videos: red from 8 to 12 s, red from 25 to 27 s, no red."""
    folder = tmp_path / "library"
    folder.mkdir()
    colour_video(folder / "a.mp4", ("grey", 8), ("red", 4), ("grey", 8))
    colour_video(folder / "b.mp4", ("grey", 20), ("blue", 3), ("grey", 2), ("red", 2))
    colour_video(folder / "c.mp4", ("green", 20))
    return folder


def found(query, videos=None, n=10, **settings):
    return fn.search(query, videos, n, scorer=ColourScorer(), progress=False, **settings)


def names(moments):
    return [moment.video.rpartition("/")[2] for moment in moments]


def test_moments_of_several_videos(library):
    moments = found("something red", sorted(library.iterdir()))
    assert names(moments) == ["a.mp4", "b.mp4"]
    spans = [(m.start, m.end) for m in moments]
    assert spans == [pytest.approx((8, 12)), pytest.approx((25, 27))]
    for moment in moments:
        assert moment.start <= moment.time < moment.end
        assert moment.frame == round(10 * moment.time)
        assert 0 < moment.score <= 1
        assert moment.source == "seen"
    assert moments.skipped == {}
    assert moments[0].to_json() == {
        "video": str(library / "a.mp4"),
        **{name: getattr(moments[0], name) for name in ("start", "end", "time", "frame", "score")},
        "why": "looks like “something red”",
        "source": "seen",
        "confident": True,
    }
    assert moments.to_json() == {
        "query": "something red",
        "verdict": "weak",
        "knows": [],
        "does_not_know": [],
        "summary": "",
        "moments": [moment.to_json() for moment in moments],
    }


class WordScorer(ColourScorer):
    """Knows colours, and no other words."""

    def known_words(self, query):
        words = tuple(word for word in query.split() if word != "a")
        return tuple(w for w in words if w in COLOURS), tuple(w for w in words if w not in COLOURS)

    def clearly_shows(self, encoded, query):
        known, unknown = self.known_words(query)
        return (self.match(encoded, query) >= 0.85) & (len(known) > len(unknown))


@pytest.fixture
def reds(tmp_path):
    """Six videos of reds that WordScorer is more or less sure of: 1.0, 0.94, 0.66, 0.55, 0.44, 0.11."""
    videos = []
    for level in (95, 85, 60, 50, 40, 10):
        videos.append(tmp_path / f"{level}.mp4")
        colour_video(videos[-1], ("grey", 3), ((85 + level * 1.7, *[85 - level * 0.85] * 2), 2))
    return videos


NOTHING = "nothing clearly matches"


@pytest.mark.parametrize(
    ("query", "verdict", "confident", "summary"),
    [
        ("a red", "strong", [True, True, False], "the scorer knows: red"),
        ("red red unicorn", "strong", [True, True, False],  # two of three words are known
         "the scorer knows: red, red; does not know: unicorn"),
        ("red unicorn", "weak", [False] * 3,
         f"{NOTHING}; these moments are the nearest (the scorer knows: red; does not know: unicorn)"),
        ("a unicorn", "cannot tell", [], f"{NOTHING} (the scorer does not know: unicorn)"),
        ("blue", "none", [], f"{NOTHING} (the scorer knows: blue)"),
    ],
)  # fmt: skip
def test_a_scorer_of_some_words_says_no(reds, query, verdict, confident, summary):
    moments = fn.search(query, reds, scorer=WordScorer(), progress=False)
    data = moments.to_json()
    assert (data["verdict"], [moment.confident for moment in moments]) == (verdict, confident)
    assert data["summary"] == moments.summary == summary
    assert data["does_not_know"] == (["unicorn"] if "unicorn" in query else [])
    assert names(moments) == ["95.mp4", "85.mp4", "60.mp4"][: len(confident)]


def test_weak_moments_are_cut_to_the_nearest_three(reds):
    moments = found("red", reds)
    assert [moment.confident for moment in moments] == [True] * 5
    assert moments.match.verdict == "strong"
    faint = found("red", reds[-1:])
    assert (faint.match.verdict, faint[0].confident) == ("none", False)
    assert len(found("red", reds, 2)) == 2


def test_a_moment_lasts_at_most_thirty_seconds(tmp_path):
    long = colour_video(tmp_path / "long.mp4", ("grey", 5), ("red", 80), ("grey", 5))
    (moment, *_) = found("red", [long])
    assert moment.end - moment.start == pytest.approx(30)
    assert moment.start <= moment.time < moment.end
    assert all(moment.start <= frame / 10 < moment.end for frame in moment.frames)


@pytest.mark.parametrize("before", [0.6, 0.9, 1.4])  # seconds whose half sums are rounded up
def test_a_moment_of_one_frame_holds_it(tmp_path, before):
    colour_video(tmp_path / "short.mp4", ("grey", before), ("red", 0.1), ("grey", 2.0))
    (moment, *_) = found("something red", [tmp_path / "short.mp4"])
    assert moment.frame == round(10 * before)
    assert moment.start <= moment.time < moment.end


def test_a_second_search_decodes_nothing_and_needs_no_paths(library):
    first = found("something red", sorted(library.iterdir()))
    session = Session(ColourScorer(), progress=False)
    again = fn.search("something red", session=session)
    assert [m.to_json() for m in again] == [m.to_json() for m in first]
    assert session.timing.seconds.get("decode", 0.0) == 0


def test_results_stream_as_stage_two_finishes_videos(library):
    searcher = Searcher(Session(ColourScorer(), progress=False))
    lists = [*searcher.find("blue or red", sorted(map(str, library.iterdir())))]
    assert len(lists) == 3
    assert [len(set(names(one))) for one in lists] == [1, 2, 2]
    for one in lists:
        assert [m.score for m in one] == sorted((m.score for m in one), reverse=True)


def test_stage_two_looks_only_at_the_best_videos(tmp_path, monkeypatch):
    monkeypatch.setattr("framenest.retrieval.search.MIN_VIDEOS", 2)
    for number in range(8):
        parts = [("grey", 3), ("red", 1)] if number == 5 else [("grey", 4)]
        colour_video(tmp_path / f"{number}.mp4", *parts)
    searcher = Searcher(Session(ColourScorer(), progress=False))
    *_, moments = lists = [*searcher.find("red", sorted(map(str, tmp_path.glob("*.mp4"))), 1)]
    assert len(lists) == 2
    assert names(moments) == ["5.mp4"]


def test_images_and_an_exact_clip(tmp_path):
    video = numbered_video(tmp_path / "v.mp4", 300)
    (moment, *_) = fn.search("the middle", [video], 1, scorer=MiddleScorer(), progress=False)
    assert number_in(np.asarray(moment.images(1)[0])) == moment.frame
    shown = [number_in(np.asarray(image)) for image in moment.images(3)]
    assert len(shown) == 3
    assert shown == sorted(shown)
    assert {*shown} <= {*range(150, 170)}
    assert moment.images(1, max_side=48)[0].size == (48, 32)
    clip = fn.open_video(moment.clip(tmp_path / "clips" / "m.mp4", around=1.0))
    first, last = (math.ceil(25 * time - 1e-6) for time in (moment.start - 1, moment.end + 1))
    assert abs(first - 125) <= 1
    assert abs(last - 195) <= 1
    frames = [number_in(p) for batch in clip.read(range(clip.info.num_frames)) for p in batch.pixels[0]]
    assert frames == [*range(first, last)]
    assert clip.info.duration == pytest.approx((last - first) / 25)


class MiddleScorer(ColourScorer):
    """Finds frames 150 to 169, whatever they show."""

    def encode(self, frames):
        return {**super().encode(frames), "frame": frames.frames}

    def certainty(self, encoded, question):
        return np.where((encoded["frame"] >= 150) & (encoded["frame"] < 170), 0.9, 0.1)


def test_a_moved_video_is_found_by_its_content(library, tmp_path):
    videos = sorted(library.iterdir())
    found("red", videos)
    moved = tmp_path / "elsewhere.mp4"
    videos[0].rename(moved)
    searcher = Searcher(Session(ColourScorer(), progress=False))
    assert searcher.split([str(moved)])[1] == []
    assert names(found("red", [moved, videos[1]])) == ["elsewhere.mp4", "b.mp4"]
    assert "elsewhere.mp4" in names(found("red"))  # its place is known since


def test_a_deleted_or_changed_video_leaves_no_ghost(library):
    a, b, c = sorted(library.iterdir())
    found("red", [a, b, c])
    a.unlink()
    colour_video(b, ("green", 5))
    moments = found("red")
    assert names(moments) == []
    assert moments.skipped == {
        str(a): f"{a}: no longer exists",
        str(b): f"{b}: has changed since it was indexed",
    }
    assert sorted(names(found("green", [b, c]))) == ["b.mp4", "c.mp4"]
    assert str(b) not in found("red").skipped  # indexed again


def test_videos_of_another_scorer_are_named(library):
    found("red", sorted(library.iterdir()))

    class Other(ColourScorer):
        version = "2"

    colour_video(library / "d.mp4", ("red", 4))
    fn.search("red", [library / "d.mp4"], scorer=Other(), progress=False)
    moments = fn.search("red", scorer=Other(), progress=False)
    assert names(moments) == ["d.mp4"]
    assert len(moments.skipped) == 3
    assert all("indexed with colours 1; give it" in why for why in moments.skipped.values())


def test_videos_that_fail_are_named_and_the_rest_is_searched(library):
    bad = library / "bad.mp4"
    bad.write_text("no video")
    moments = found("red", [*sorted(library.iterdir()), library / "gone.mp4"])
    assert names(moments) == ["a.mp4", "b.mp4"]
    assert set(moments.skipped) == {str(bad), str(library / "gone.mp4")}
    again = found("red", [*sorted(library.iterdir()), library / "gone.mp4"])
    assert again.skipped == moments.skipped
    assert "no such file" in moments.skipped[str(library / "gone.mp4")]


def test_what_cannot_be_searched_says_so(library):
    with pytest.raises(ConfigError, match="has no words"):
        found(" ?! ", [library / "a.mp4"])
    with pytest.raises(VideoError, match="nothing is indexed yet; give videos"):
        found("red")
    with pytest.raises(VideoError, match=r"no video can be searched: .*gone\.mp4: no such file"):
        found("red", [library / "gone.mp4"])
    with pytest.raises(fn.ScorerError, match="scorer 'table' cannot search many videos"):
        fn.search("red", [library / "a.mp4"], scorer=TableScorer({0: 1.0}))


def test_the_same_content_twice_is_one_result(library):
    copy = library / "z.mp4"
    copy.write_bytes((library / "a.mp4").read_bytes())
    assert names(found("red", sorted(library.iterdir()))) == ["a.mp4", "b.mp4"]


def test_work_that_was_interrupted_goes_on(library, monkeypatch):
    """The vectors of finished videos are there; only the others are indexed."""
    indexed, most = [], 2
    store = Searcher.store_vectors

    def until(self, decoder, index):
        if len(indexed) == most:
            raise KeyboardInterrupt
        indexed.append(decoder.info.path)
        return store(self, decoder, index)

    monkeypatch.setattr(Searcher, "store_vectors", until)
    videos = sorted(library.iterdir())
    with pytest.raises(KeyboardInterrupt):
        found("red", videos)
    most = None
    assert names(found("red", videos)) == ["a.mp4", "b.mp4"]
    assert indexed == [*map(str, videos)]


def test_stretches_end_where_scores_fall_to_the_middle():
    scores = np.float32([0.1, 0.1, 0.9, 0.8, 0.1, 0.1, 0.1, 0.6, 0.1, 0.1])
    assert stretches(scores, np.arange(10.0), [3, 2, 7]) == [(2, 3), (7, 7)]
    assert stretches(np.full(5, 0.4, np.float32), np.arange(5.0), [2]) == [(0, 4)]


def test_peaks_of_one_event_are_one_stretch_by_time_not_by_frames():
    scores = np.float32([0.9, 0, 0, 0, 0.8, 0, 0, 0, 0, 0, 0])
    assert stretches(scores, np.arange(11) / 10, [0, 4]) == [(0, 4)]
    assert stretches(scores, np.arange(11.0), [0, 4]) == [(0, 0), (4, 4)]


def test_a_weaker_peak_beside_an_event_does_not_stretch_it():
    scores = np.float32([0, 0, 0, 0.9, 0.9, 0.3, 0.3, 0, 0, 0, 0])
    assert stretches(scores, np.arange(11.0), [3, 6]) == [(3, 4), (5, 6)]


def test_a_gap_between_joined_peaks_belongs_to_the_event():
    scores = np.float32([0.9, 0, 0.7, 0.3, 0.8, 0, 0, 0, 0, 0, 0])
    assert stretches(scores, np.arange(11.0), [0, 4, 3]) == [(0, 4)]


def subtitled(path, *lines):
    """A grey video with a subtitle file beside it: (start, text) lines of 3 s."""
    colour_video(path, ("grey", 40))
    cues = [
        f"{i}\n00:00:{s:02d},000 --> 00:00:{s + 3:02d},000\n{text}\n" for i, (s, text) in enumerate(lines, 1)
    ]
    path.with_suffix(".srt").write_text("\n".join(cues))
    return path


def test_what_is_said_is_found_too(tags_store, tmp_path):
    """The sentence encoder is that of `tags`."""
    ships = subtitled(
        tmp_path / "ships.mp4", (4, "We had soup for dinner."), (20, "The queen paid for the three ships.")
    )
    soup = subtitled(tmp_path / "soup.mp4", (10, "Add an onion and stir the soup."))
    red = colour_video(tmp_path / "red.mp4", ("grey", 5), ("red", 3))
    moments = found("who paid for the ships?", [ships, soup, red])
    first = moments[0]
    assert (names([first]), first.source, first.why) == (
        ["ships.mp4"],
        "said",
        "“The queen paid for the three ships.”",
    )
    assert (first.start, first.end) == (20, 23)
    assert first.start <= first.time <= first.end
    assert [m.source for m in found("red", [ships, soup, red])] == ["seen"]


@pytest.mark.parametrize(("confidence", "why"), [
    (0.9, "“The queen paid for the three ships.”"), (0.3, "speech, not clearly heard"),
])  # fmt: skip
def test_words_that_may_be_wrong_are_not_quoted(tags_store, tmp_path, confidence, why):
    """Nor are the others of a passage; what is said before and after it does not count."""
    lines = [(4, 7, "We had soup.", 0.1), (20, 21, "The queen paid", 0.9),
             (21, 23, "for the three ships.", confidence), (23, 27, "Hm hm hm.", 0.1)]  # fmt: skip
    segments = [{"start": a, "end": b, "text": t, "avg_logprob": math.log(c)} for a, b, t, c in lines]
    talk = colour_video(tmp_path / "talk.mp4", ("grey", 40))
    talk.with_suffix(".json").write_text(json.dumps({"segments": segments}))
    first = found("who paid for the ships?", [talk])[0]
    assert (first.start, first.end, first.source, first.why) == (20, 23, "said", why)


def test_a_moment_that_is_seen_and_said_counts_for_both(tags_store, tmp_path):
    said = subtitled(tmp_path / "said.mp4", (6, "Now the whole wall is red."))
    both = tmp_path / "both.mp4"
    said.with_suffix(".srt").rename(both.with_suffix(".srt"))
    colour_video(both, ("grey", 6), ("red", 3), ("grey", 31))
    seen = colour_video(tmp_path / "seen.mp4", ("grey", 6), ("red", 3), ("grey", 30))
    moments = found("is the whole wall red", [both, seen])
    assert names(moments) == ["both.mp4", "seen.mp4"]
    assert "“Now the whole wall is red.”" in moments[0].why
    assert "looks like" in moments[0].why
    assert moments[0].score > moments[1].score


def test_a_search_lists_the_vectors_once(library, tmp_path):
    class CountingStore(DirectoryStore):
        reads = 0

        def header(self, key):
            self.reads += key.startswith("vectors/")
            return super().header(key)

    videos, store = [str(path) for path in sorted(library.iterdir())], CountingStore(tmp_path / "counted")
    searcher = Searcher(Session(ColourScorer(), store=store, progress=False))
    whole = searcher.search("red", videos)
    store.reads = 0
    known, missing = searcher.split(videos)
    assert missing == []
    assert searcher.search("red", known) == whole
    assert store.reads == len(videos)


class Screens:
    """A reader that sees a line of text from 20 to 23 s."""

    name, version, inputs = "ocr", "screens", ()

    def encode(self, frames):
        rows = np.zeros((len(frames), 40), np.uint8)
        rows[(frames.seconds >= 20) & (frames.seconds < 23)] = np.frombuffer(
            b"The queen paid for\nthe three ships.".ljust(40, b"\0"), np.uint8
        )
        return {"text": rows}

    def match(self, encoded, question, *, reference=None):
        return np.zeros(len(encoded["text"]), np.float32)


@pytest.mark.parametrize(
    ("ocr", "query", "is_found"),
    [
        ("on", "the three ships of the queen", True),
        ("on", "a giraffe on the moon", False),
        ("auto", "Who is thanked because she paid for the ships?", True),
        ("auto", "the three ships of the queen", False),
        ("none", "Who is thanked because she paid for the ships?", False),
    ],
)
def test_what_is_written_is_found_too(tags_store, tmp_path, ocr, query, is_found):
    video = colour_video(tmp_path / "ships.mp4", ("grey", 40))
    session = Session(ColourScorer(), store=tags_store, scoring=ScorerConfig(ocr=ocr))
    if ocr != "none":
        session._loaded["ocr"] = Screens()
    moments = fn.search(query, [video], session=session, progress=False)
    written = [moment for moment in moments if moment.source == "written"]
    assert bool(written) == is_found
    for moment in written[:1]:
        assert moment.why == "“The queen paid for the three ships.”"
        assert moment.start == pytest.approx(20, abs=0.3)
        assert moment.end == pytest.approx(23, abs=0.3)


@pytest.mark.parametrize("reverse", [False, True])
def test_text_on_screen_is_not_another_scorer(tags_store, tmp_path, monkeypatch, reverse):
    entries = DirectoryStore.entries  # in no particular order
    monkeypatch.setattr(
        DirectoryStore,
        "entries",
        lambda store, kind=None: sorted(entries(store, kind), key=lambda one: one.key, reverse=reverse),
    )
    video = colour_video(tmp_path / "ships.mp4", ("grey", 40))
    other = ColourScorer()
    other.version = "2"
    session = Session(ColourScorer(), store=tags_store, scoring=ScorerConfig(ocr="on"))
    session._loaded["ocr"] = Screens()
    fn.search("red", [video], session=session, progress=False)
    with pytest.raises(VideoError, match="indexed with colours 1; give it"):
        fn.search("red", scorer=other, store=tags_store, progress=False)
