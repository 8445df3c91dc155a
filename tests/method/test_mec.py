"""The pipeline: a video and a question in, one ranking out, any budget from it."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from framenest import (
    MEC,
    BudgetError,
    ConfigError,
    DiscoveryConfig,
    ImageSpec,
    IndexConfig,
    MECConfig,
    Ranking,
    RankingConfig,
    ScorerError,
    VideoError,
    open_video,
    rank,
)
from framenest.cache.directory import UnwritableCache
from framenest.method.cues import encode
from framenest.protocols import Scorer
from framenest.scorers import video_features
from framenest.testing import ArrayDecoder, TableScorer
from framenest.video.decoder import Decoder
from media import numbered_picture, numbered_video
from score_tables import zero_elsewhere

SMALL = MECConfig(IndexConfig(base_probes=24, extra_probes=8), DiscoveryConfig(), RankingConfig(horizon=20))
TABLE = zero_elsewhere(dict.fromkeys(range(150, 160), 1.0))


class CountingDecoder:
    """Counts the frames asked of another decoder."""

    def __init__(self, decoder, lost=()):
        self._decoder, self._lost = decoder, set(lost)
        self.name, self.version = decoder.name, decoder.version
        self.info, self.seconds, self.key_frames = decoder.info, decoder.seconds, decoder.key_frames
        self.asked = []

    def read(self, frames, *, sizes=(None,)):
        self.asked += [int(n) for n in frames]
        return self._decoder.read([n for n in frames if n not in self._lost], sizes=sizes)


def arrays_of(ranking):
    by_rank = {name: getattr(ranking, name) for name in ("frames", "seconds", "is_zoom", "evidence")}
    return by_rank | ranking.cues | ranking.terms


def assert_identical(a, b):
    mine, others = arrays_of(a), arrays_of(b)
    assert mine.keys() == others.keys()
    for name, array in mine.items():
        assert array.dtype == others[name].dtype
        assert array.tobytes() == others[name].tobytes(), name


def test_the_evidence_comes_first(clip):
    ranking = MEC(SMALL, TableScorer(TABLE)).rank(clip, "Where is it?")
    assert 150 <= ranking.frames[0] < 160
    assert len(ranking) == 20
    assert ranking.stats.probes == 24  # ⌊24 + 12/1800·8⌋
    assert ranking.stats.candidates == len(ranking.pool)


def test_prefixes_nest_for_every_budget(clip):
    ranking = MEC(SMALL, TableScorer(TABLE)).rank(clip, "Where is it?")
    for k in range(1, len(ranking) + 1):
        prefix = ranking.prefix(k)
        assert set(prefix.frames.tolist()) == set(ranking.frames[:k].tolist())
        assert (np.diff(prefix.frames) > 0).all()
        assert ranking.frames[prefix.ranks - 1].tolist() == prefix.frames.tolist()
        assert len(prefix) == k
    assert len(set(ranking.frames.tolist())) == len(ranking)


def test_reruns_give_identical_rankings(clip, tmp_path):
    first = MEC(SMALL, TableScorer(TABLE), store=tmp_path / "a").rank(clip, "Where?")
    fresh = MEC(SMALL, TableScorer(TABLE), store=tmp_path / "b").rank(clip, "Where?")
    cached = MEC(SMALL, TableScorer(TABLE), store=tmp_path / "a").rank(clip, "Where?")
    assert first.stats.decoded > 0
    assert cached.stats.decoded == 0
    assert_identical(first, fresh)
    assert_identical(first, cached)


def test_a_ranking_round_trips_through_its_file(clip, tmp_path):
    ranking = MEC(SMALL, TableScorer(TABLE)).rank(clip, 'Is "this" – or <that> – it?')
    ranking.save(tmp_path / "ranking.json")
    loaded = Ranking.load(tmp_path / "ranking.json")
    assert_identical(ranking, loaded)
    first = json.loads((tmp_path / "ranking.json").read_text())["ranks"][0]
    assert (first["rank"], first["frame"]) == (1, ranking.frames[0])
    assert first["from"] in ("probe", "zoom")
    assert first["utility"] == ranking.terms["utility"][0]
    assert loaded.question == ranking.question
    assert loaded.config == ranking.config
    assert loaded.video == ranking.video
    assert loaded.stats == ranking.stats
    assert loaded.pool.frames.tolist() == ranking.pool.frames.tolist()
    assert loaded.pool.anchors == ranking.pool.anchors
    assert loaded.prefix(5).frames.tolist() == ranking.prefix(5).frames.tolist()


def test_only_the_index_config_makes_a_new_index(clip, tmp_path):
    decoder = CountingDecoder(open_video(clip))

    def decoded(config):
        decoder.asked.clear()
        MEC(config, None, store=tmp_path).index(decoder)
        return len(decoder.asked)

    assert decoded(SMALL) == 24
    assert (
        decoded(MECConfig(SMALL.index, DiscoveryConfig(activation=1.0, zoom=3), RankingConfig(horizon=3)))
        == 0
    )
    assert decoded(MECConfig(IndexConfig(base_probes=30, extra_probes=8))) == 26  # 4 of 30 were seen


class NumberScorer(TableScorer):
    """The question is a frame number; frames near it are relevant."""

    def match(self, encoded, question, *, reference=None):
        return np.exp(-np.abs(encoded["frame"] - int(question)) / 10).astype(np.float32)


def test_a_second_question_decodes_only_new_zoom_frames(clip, tmp_path):
    decoder = CountingDecoder(open_video(clip))
    first = MEC(SMALL, NumberScorer(zero_elsewhere({0: 0.0})), store=tmp_path).rank(decoder, "155")
    seen = set(first.pool.frames.tolist())
    assert len(seen) == first.stats.decoded > 24
    assert seen < set(decoder.asked)  # those that other questions may zoom to were passed and held, too
    assert len(decoder.asked) == len(set(decoder.asked))
    decoder.asked.clear()
    ranking = MEC(SMALL, NumberScorer(zero_elsewhere({0: 0.0})), store=tmp_path).rank(decoder, "20")
    assert 0 < len(decoder.asked) <= 8  # zoom frames around 20, no probe
    assert not seen & set(decoder.asked)
    assert ranking.stats.decoded == len(decoder.asked)


def test_a_second_question_in_one_session_decodes_nothing_that_was_passed(clip, tmp_path, monkeypatch):
    decoder = CountingDecoder(open_video(clip))
    mec = MEC(SMALL, NumberScorer(zero_elsewhere({0: 0.0})), store=tmp_path / "a")
    held = [mec.rank(decoder, question) for question in ("155", "20", "88")]
    assert len(decoder.asked) == len(set(decoder.asked))
    assert set(decoder.asked) >= {n for ranking in held for n in ranking.pool.frames.tolist()}
    assert held[1].stats.decoded > 0  # they count when a question looks at them
    decoder.asked.clear()
    monkeypatch.setattr(video_features, "PASSED_BYTES", 0)
    plain = MEC(SMALL, NumberScorer(zero_elsewhere({0: 0.0})), store=tmp_path / "b")
    for ranking, question in zip(held, ("155", "20", "88"), strict=True):
        again = plain.rank(decoder, question)
        assert_identical(ranking, again)
        assert ranking.stats.decoded == again.stats.decoded


def test_an_index_for_questions_that_follow_lets_them_decode_nothing(clip, tmp_path):
    decoder = CountingDecoder(open_video(clip))
    mec = MEC(SMALL, NumberScorer(zero_elsewhere({0: 0.0})), store=tmp_path)
    mec.index(decoder, questions_follow=True)
    decoder.asked.clear()
    assert mec.rank(decoder, "155").stats.decoded > 0  # frames that it looks at, which were held
    assert decoder.asked == []


class OneByOne(ArrayDecoder):
    """Hands out frames singly, as a slow decoder does."""

    def read(self, frames, *, sizes=(None,)):
        return (batch for number in frames for batch in super(OneByOne, self).read([number], sizes=sizes))


class BatchScorer(NumberScorer):
    """Synthetic: likes 64 frames at once, as scorers on a GPU like many."""

    batch = 64

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.sizes = []

    def encode(self, frames):
        self.sizes.append(len(frames))
        return super().encode(frames)


def test_the_last_frames_are_encoded_in_smaller_batches(tmp_path):
    """Little is left to encode when decoding ends; every frame is encoded once."""
    scorer = BatchScorer(zero_elsewhere({0: 0.0}))
    index = MEC(scorer=scorer, store=tmp_path).index(OneByOne(np.zeros((300, 36, 64, 3), np.uint8), 5))
    sizes = [size for size in scorer.sizes if size]
    assert sum(sizes) == len(index.frames) == 264
    assert sizes == [64, 64, 64, 36, 18, 16, 2]


def test_an_index_alone_decodes_its_probes_only(clip, tmp_path):
    decoder = CountingDecoder(open_video(clip))
    MEC(SMALL, NumberScorer(zero_elsewhere({0: 0.0})), store=tmp_path).index(decoder)
    assert len(decoder.asked) == 24


def test_a_video_shorter_than_the_grid(frames):
    ranking = MEC(MECConfig(), TableScorer(zero_elsewhere({7: 1.0}))).rank(frames[:9], "Where?", fps=10)
    assert len(ranking) == len(ranking.pool) == 9
    assert ranking.frames[0] == 7
    assert ranking.stats.zoom == 0
    whole = ranking.prefix(64)
    assert whole.frames.tolist() == list(range(9))
    assert whole.complete
    assert not ranking.prefix(9).complete


def test_one_frame(frames):
    ranking = MEC(MECConfig(), TableScorer(zero_elsewhere({0: 0.5}))).rank(frames[:1], "Where?", fps=25)
    assert ranking.frames.tolist() == [0]
    assert ranking.cues["change"].tolist() == [0]
    assert ranking.prefix(1).frames.tolist() == [0]


def test_black_frames_are_not_maximally_diverse():
    pictures = np.zeros((30, 32, 48, 3), np.uint8)
    pictures[10:20] = 128
    ranking = MEC(MECConfig(), TableScorer(dict.fromkeys(range(30), 0.5))).rank(pictures, "x", fps=5)
    assert ranking.terms["diversity"][1:].max() < 1e-5


@pytest.mark.parametrize("budget", [0, -1, 2.5, "8", True])
def test_a_budget_must_be_a_whole_number_from_one(frames, budget):
    ranking = MEC(SMALL, None).rank(frames, None, fps=10)
    with pytest.raises(BudgetError, match="1 or more"):
        ranking.prefix(budget)


def test_a_budget_beyond_the_ranking_says_what_to_do(frames):
    ranking = MEC(SMALL, None).rank(frames, None, fps=10)
    assert len(ranking) == 20 < len(ranking.pool)
    with pytest.raises(BudgetError, match=r"20 ranks, too few for a budget of 21; .*horizon=21"):
        ranking.prefix(21)


def test_without_a_question_relevance_counts_for_nothing(frames):
    ranking = MEC(SMALL, None).rank(frames, None, fps=10)
    assert ranking.question is None
    assert ranking.scorer == "none"
    assert ranking.config.discovery.relevance_weight == 0
    assert (ranking.cues["relevance"] == 0).all()
    expected = 0.2 * ranking.cues["change"].astype(float) + 0.1 * ranking.cues["observability"].astype(float)
    assert np.allclose(ranking.evidence, expected)


@pytest.mark.parametrize("question", ["", "  \n"])
def test_an_empty_question_is_an_error(frames, question):
    with pytest.raises(ConfigError, match="the question is empty"):
        MEC(SMALL, TableScorer(zero_elsewhere({0: 1.0}))).rank(frames, question, fps=10)


def test_a_question_needs_a_scorer(frames):
    with pytest.raises(ScorerError, match="a question needs a scorer"):
        MEC(SMALL, None).rank(frames, "Where?", fps=10)


class BadScorer(TableScorer):
    def match(self, encoded, question, *, reference=None):
        return np.full(len(encoded["frame"]), 1.5, np.float32)


def test_a_scorer_that_returns_no_relevance_is_refused(frames):
    with pytest.raises(ScorerError, match=r"must return 24 numbers in \[0, 1\].*1.5"):
        MEC(SMALL, BadScorer(zero_elsewhere({0: 1.0}))).rank(frames, "Where?", fps=10)


def test_a_window_of_the_video(clip):
    config = MECConfig(IndexConfig(base_probes=24, start=4.0, end=8.0))
    ranking = MEC(config, TableScorer(dict.fromkeys(range(300), 1.0))).rank(clip, "Where?")
    assert ranking.pool.seconds.min() == pytest.approx(4.0)
    assert ranking.pool.seconds.max() == pytest.approx(8.0)
    with pytest.raises(VideoError, match=r"no frame between 90 s and the end; the last frame is at 11.96 s"):
        MEC(MECConfig(IndexConfig(start=90.0)), None).rank(clip, None)


def test_the_pool_holds_the_probes_of_the_index_and_the_zoom_frames(clip):
    mec = MEC(SMALL, TableScorer(TABLE))
    index, pool = mec.index(clip), mec.rank(clip, "Where?").pool
    assert pool.frames[~pool.is_zoom].tolist() == index.frames.tolist()
    assert pool.is_zoom.sum() == len(pool) - len(index)
    assert (np.diff(pool.frames) > 0).all()
    assert set(pool.anchors) <= set(index.frames.tolist())


def test_undecodable_frames_are_replaced_by_an_earlier_neighbour_and_recorded(clip):
    probe = int(MEC(SMALL, None).index(clip).frames[10])
    broken = CountingDecoder(open_video(clip), lost=[probe, probe - 1])
    broken.version = "broken"
    index = MEC(SMALL, None).index(broken)
    assert index.substitutes.tolist() == [[probe, probe - 2]]
    assert probe - 2 in index.frames
    assert probe not in index.frames
    ranking = MEC(SMALL, None).rank(broken, None)
    assert (probe, probe - 2) in ranking.stats.substitutes


def test_a_probe_without_any_decodable_neighbour_is_dropped_and_recorded(clip):
    before, probe = (int(n) for n in MEC(SMALL, None).index(clip).frames[10:12])
    broken = CountingDecoder(open_video(clip), lost=range(before + 1, probe + 1))
    broken.version = "broken"
    index = MEC(SMALL, None).index(broken)
    assert index.substitutes.tolist() == [[probe, -1]]
    assert len(index) == 23


def test_a_video_of_which_nothing_decodes(clip):
    broken = CountingDecoder(open_video(clip), lost=range(300))
    broken.version = "broken"
    with pytest.raises(VideoError, match="none of the 24 probes can be decoded"):
        MEC(SMALL, None).index(broken)


def test_arrays_files_and_decoders_are_videos_alike(frames, tmp_path):
    scorer = TableScorer(zero_elsewhere({60: 1.0}))
    from_array = MEC(SMALL, scorer).rank(frames, "Where?", fps=10)
    from_decoder = MEC(SMALL, scorer).rank(ArrayDecoder(frames, fps=10), "Where?")
    assert_identical(from_array, from_decoder)
    for i, picture in enumerate(frames):
        Image.fromarray(picture).save(tmp_path / f"frame{i}.png")
    assert_identical(from_array, MEC(SMALL, scorer).rank(tmp_path, "Where?", fps=10))


def test_a_file_replaced_between_questions_is_ranked_anew(tmp_path):
    path = numbered_video(tmp_path / "video.mp4", 40)
    mec = MEC(SMALL, None)
    assert mec.rank(path, None).video.num_frames == 40
    numbered_video(path, 50)
    assert mec.rank(path, None).video.num_frames == 50


def test_a_copy_of_a_video_is_ranked_under_its_own_path(tmp_path):
    path = numbered_video(tmp_path / "video.mp4", 40)
    copy = shutil.copy(path, tmp_path / "copy.mp4")
    mec = MEC(SMALL, None)
    for one in (path, copy):
        assert mec.rank(one, None).video.path == mec.index(one).video.path == str(one)


def test_a_window_has_its_own_n_and_t(clip):
    """4 s to 8 s of 25 fps: N = 101, T = 4.04 s; probes ⌊10 + 4.04/40·100⌋ = 20."""
    config = IndexConfig(base_probes=10, extra_probes=100, saturation=40.0, start=4.0, end=8.0)
    index = MEC(MECConfig(config), None).index(clip)
    assert index.num_frames == 101
    assert len(index) == 20
    assert index.frames[[0, -1]].tolist() == [100, 200]


def test_zoom_frames_are_measured_against_the_probes(clip):
    """Change of a zoom frame looks at the probes beside it; its relevance is relative to the probes."""
    seen = []

    class Relative(TableScorer):
        def match(self, encoded, question, *, reference=None):
            seen.append((encoded["frame"].tolist(), reference["frame"].tolist()))
            return np.zeros(len(encoded["frame"]), np.float32)

    mec = MEC(SMALL, Relative(zero_elsewhere({0: 0.0})))
    index, pool = mec.index(clip), mec.rank(clip, "Where?").pool
    assert [reference for _, reference in seen] == [index.frames.tolist()] * 2
    zoom = pool.frames[pool.is_zoom][0]
    beside = np.searchsorted(index.frames, zoom)
    look = encode(next(open_video(clip).read([zoom], sizes=(ImageSpec.short_side(32),))).pixels[0])[0]
    distances = [
        np.linalg.norm(look.astype(float) - index.appearance[i].astype(float)) for i in (beside - 1, beside)
    ]
    assert pool.cues["change"][pool.frames == zoom][0] == pytest.approx(max(distances) / 2, rel=1e-5)


def test_another_scorer_version_does_not_get_old_features(clip, tmp_path):
    class Versioned(TableScorer):
        def __init__(self, version, value):
            super().__init__(zero_elsewhere({}))
            self.version, self.value = version, value

        def encode(self, frames):
            return {"value": np.full(len(frames), self.value)}

        def match(self, encoded, question, *, reference=None):
            return encoded["value"].astype(np.float32)

    assert MEC(SMALL, Versioned("1", 0.25), store=tmp_path).rank(clip, "x").cues["relevance"][0] == 0.25
    assert MEC(SMALL, Versioned("2", 0.75), store=tmp_path).rank(clip, "x").cues["relevance"][0] == 0.75


def test_a_cache_that_cannot_be_written_does_not_stop_the_work(clip, tmp_path):
    (tmp_path / "cache").write_text("a file where the cache should be")
    with pytest.warns(UnwritableCache, match="not cached for the next run"):
        ranking = MEC(SMALL, None, store=tmp_path / "cache").rank(clip, None)
    assert len(ranking) == 20


def test_no_scorer_is_loaded_without_a_question(frames):
    """No weights are here, and none are needed."""
    assert len(MEC(SMALL).rank(frames, None, fps=10)) == 20


def test_any_store_will_do(clip):
    class Memory(dict):
        def put(self, key, header, arrays):
            self[key] = dict(header), dict(arrays)

    memory = Memory()
    first = MEC(SMALL, None, store=memory).rank(clip, None)
    again = MEC(SMALL, None, store=memory).rank(clip, None)
    assert_identical(first, again)
    assert again.stats.decoded == 0
    kinds = sorted(key.split("/")[0] for key in memory)
    assert kinds == ["features", "features", "index", "timeline"], "probes and zoom frames apart"


def test_a_scorer_may_ask_for_any_kind_of_picture(clip):
    class Pictures(TableScorer):
        inputs = (ImageSpec.short_side(8), ImageSpec.crop(10, 6, 4), ImageSpec.squash(5, 3))

        def encode(self, frames):
            shapes = [p.shape[1:] for p in frames.pixels]
            assert shapes == [(8, 12, 3), (4, 6, 3), (3, 5, 3)]
            return {"flat": frames.pixels[0].reshape(len(frames), 8 * 12 * 3)}

        def match(self, encoded, question, *, reference=None):
            return np.zeros(len(encoded["flat"]), np.float32)

    assert len(MEC(SMALL, Pictures(zero_elsewhere({0: 1.0}))).rank(clip, "x")) == 20


def test_the_stretch_not_seen_includes_the_ends(clip):
    """One probe, on the first frame: the rest of the 12 s is not seen."""
    index = MEC(MECConfig(IndexConfig(base_probes=1, extra_probes=0)), None).index(clip)
    assert index.largest_gap == pytest.approx(299 / 25)


@pytest.mark.parametrize("probing", ["uniform", "keyframes"])
def test_probing_is_recorded(clip, tmp_path, probing):
    config = MECConfig(IndexConfig(base_probes=24, extra_probes=0, probing=probing))
    decoder = CountingDecoder(open_video(clip))
    ranking = MEC(config, None).rank(decoder, None)
    ranking.save(tmp_path / "r.json")
    loaded = Ranking.load(tmp_path / "r.json")
    assert loaded.config.index.probing == probing
    assert loaded.stats.probes == ranking.stats.probes
    if probing == "keyframes":  # a key frame every 2 s, probes 0.52 s apart: four intervals at the most
        assert set(decoder.key_frames.tolist()) <= set(ranking.pool.frames.tolist())
        assert ranking.stats.largest_gap_seconds <= 4 * 299 / 23 / 25 + 1e-9


def test_progress_is_told(clip):
    told = []
    MEC(SMALL, TableScorer(TABLE), progress=lambda *args: told.append(args)).rank(clip, "Where?")
    assert ("probes", 0, 24) in told
    assert ("probes", 24, 24) in told
    assert any(stage == "zoom" for stage, _, _ in told)


def test_the_fakes_keep_the_protocols(frames):
    assert isinstance(ArrayDecoder(frames, fps=10), Decoder)
    assert isinstance(TableScorer(zero_elsewhere({0: 1.0})), Scorer)


def test_results_print_shapes_not_pixels(frames):
    mec = MEC(SMALL, None)
    index, ranking = mec.index(frames, fps=10), mec.rank(frames, None, fps=10)
    batch = next(ArrayDecoder(frames, 10).read([1]))
    for thing in (index, ranking.pool, ranking, ranking.prefix(3), batch):
        assert len(repr(thing)) < 300


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 60), st.integers(1, 30), st.integers(0, 2**31))
def test_any_video_any_horizon(count, horizon, seed):
    """The pool stays in bounds, and frames are distinct."""
    rng = np.random.default_rng(seed)
    pictures = np.stack([numbered_picture(int(rng.integers(0, 50)), 48, 32) for _ in range(count)])
    scorer = TableScorer({n: float(rng.random()) for n in range(count)})
    config = MECConfig(IndexConfig(base_probes=16, extra_probes=0), ranking=RankingConfig(horizon=horizon))
    ranking = MEC(config, scorer).rank(pictures, "x", fps=4)
    assert len(ranking) == min(horizon, len(ranking.pool))
    assert len(ranking.pool) <= 16 + 4 * 1
    assert len(set(ranking.frames.tolist())) == len(ranking)


def test_features_of_two_processes_are_joined(clip, tmp_path):
    """Each asks another question after both saw the same probes; a third finds the zoom frames of both."""
    early = TableScorer({frame: float(frame < 100) for frame in range(300)})
    late = TableScorer({frame: float(frame > 200) for frame in range(300)})
    early.version = late.version = "the same"
    first, second = (MEC(SMALL, scorer, store=tmp_path) for scorer in (early, late))
    first.index(clip)
    second.index(clip)
    first.rank(clip, "x")
    assert second.rank(clip, "x").stats.decoded > 0
    for scorer in (early, late):
        assert MEC(SMALL, scorer, store=tmp_path).rank(clip, "x").stats.decoded == 0


def test_a_ranking_counts_what_it_decoded_itself(clip):
    mec = MEC(SMALL, TableScorer(zero_elsewhere({0: 1.0})))
    mec.index(clip)
    ranking = mec.rank(clip, "x")
    assert ranking.stats.decoded == ranking.stats.zoom


def test_rank_in_one_call_takes_k_and_no_budget(clip):
    with pytest.raises(ConfigError, match="there is no setting 'budget'; did you mean 'k'"):
        rank(clip, "What?", budget=8)
