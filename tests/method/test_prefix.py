"""A Prefix in the hands of a user: its frames as images and arrays, one by one, in one call."""

import inspect
import io
import json
import tempfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import framenest as fn
from framenest.protocols import MatchStrength
from framenest.testing import TableScorer
from media import number_in, numbered_video
from score_tables import zero_elsewhere


@pytest.fixture
def ranking(clip):
    return fn.MEC(scorer=TableScorer(zero_elsewhere({100: 1.0, 200: 0.5}))).rank(clip, "Where?")


def test_images_are_exactly_the_frames(ranking):
    prefix = ranking.prefix(16)
    images = prefix.images()
    assert [number_in(np.asarray(image)) for image in images] == prefix.frames.tolist()
    assert {(image.mode, image.size) for image in images} == {("RGB", (96, 64))}


def test_read_gives_one_array(ranking):
    prefix = ranking.prefix(40)
    shown = prefix.read()
    assert shown.shape == (40, 64, 96, 3)
    assert [number_in(picture) for picture in shown] == prefix.frames.tolist()


def test_a_prefix_knows_its_question_its_scorer_and_the_match(ranking):
    found = replace(ranking, stats=replace(ranking.stats, match=MatchStrength(0.4, "weak"))).prefix(4)
    for prefix in (found, found.part(np.array([0, 2]))):
        assert (prefix.question, prefix.scorer) == ("Where?", ranking.scorer)
        assert prefix.match.verdict == "weak"


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ({"size": fn.ImageSpec.squash(30, 40)}, (30, 40)),
        ({"size": fn.ImageSpec.short_side(32)}, (48, 32)),
        ({"max_side": 48}, (48, 32)),
        ({"max_side": 4000}, (96, 64)),
    ],
)
def test_an_asked_size(ranking, asked, size):
    assert [image.size for image in ranking.prefix(2).images(**asked)] == [size, size]
    assert ranking.prefix(2).read(**asked).shape == (2, size[1], size[0], 3)


@pytest.mark.parametrize("asked", [{"max_side": 0}, {"size": fn.ImageSpec.squash(4, 4), "max_side": 4}])
def test_a_size_that_cannot_be(ranking, asked):
    with pytest.raises(fn.ConfigError):
        ranking.prefix(2).images(**asked)


def test_one_by_one(ranking):
    prefix = ranking.prefix(4)
    rows = list(prefix)
    assert [row.frame for row in rows] == prefix.frames.tolist()
    assert sorted(row.rank for row in rows) == [1, 2, 3, 4]
    assert all(isinstance(value, (int, float)) for row in rows for value in row)
    rank, second, frame = min(rows)
    assert (rank, frame) == (1, ranking.frames[0])
    assert second == ranking.seconds[0]
    unranked = fn.Prefix(prefix.video, 4, prefix.frames, prefix.seconds, None)
    assert {row.rank for row in unranked} == {None}


def test_a_video_in_memory_is_given_again(frames):
    prefix = fn.rank(frames, None, 3, fps=25)
    with pytest.raises(fn.VideoError, match="was in memory; give it again: video="):
        prefix.images()
    assert [number_in(np.asarray(image)) for image in prefix.images(video=frames)] == prefix.frames.tolist()
    with pytest.raises(fn.IndexMismatch, match="has changed"):
        prefix.images(video=frames[:-1])


def test_bytes_and_file_objects_are_videos(clip, tmp_path):
    data, expected = clip.read_bytes(), fn.rank(str(clip), None, 3)
    written = io.BytesIO()
    written.write(data)  # it stands at its end
    with clip.open("rb") as file, tempfile.SpooledTemporaryFile() as spooled:
        spooled.write(data)
        for given in (data, file, written, spooled, clip):
            prefix = fn.rank(given, None, 3)
            assert prefix.frames.tolist() == expected.frames.tolist()
            assert prefix.video.fingerprint == expected.video.fingerprint
            shown = [number_in(np.asarray(image)) for image in prefix.images(video=given)]
            assert shown == prefix.frames.tolist()
    prefix = fn.rank(data, None, 3)
    with pytest.raises(fn.VideoError, match="was in memory; give it again: video="):
        prefix.images()
    with pytest.raises(fn.VideoError, match="its own times"):
        fn.open_video(data, fps=5)
    with pytest.raises(fn.VideoError, match="<bytes>: not a video"):
        fn.open_video(b"Dear server,")
    with (tmp_path / "text").open("w+") as text, pytest.raises(fn.VideoError, match="mode 'rb'"):
        fn.open_video(text)


def test_a_list_of_images_or_arrays_is_a_video(frames):
    whole = fn.rank(frames, None, 3, fps=25)
    for given in ([*frames], tuple(Image.fromarray(one) for one in frames)):
        prefix = fn.rank(given, None, 3, fps=25)
        assert prefix.video == whole.video
        assert (prefix.read(video=given) == whole.read(video=frames)).all()


@pytest.mark.parametrize(
    ("video", "fps", "message"),
    [
        ([np.zeros((4, 4, 3), np.uint8)], None, "frames in memory need their frame rate; give fps="),
        ([np.zeros((4, 4, 3), np.uint8)], "25", "fps must be a number above 0, not '25'"),
        ([Image.new("L", (4, 4)), Image.new("L", (5, 4))], 25, r"0 has \(4, 4, 3\), number 1 \(4, 5, 3\)"),
        (["a.mp4", "b.mp4"], None, "must hold Pillow images or arrays; number 0 is str"),
        ([], 25, "must not be empty"),
        (None, None, "not a video: NoneType; give a path"),
    ],
)
def test_what_is_no_video(video, fps, message):
    with pytest.raises(fn.VideoError, match=message):
        fn.rank(video, None, fps=fps)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"question": ["Where?"]}, r"question must be a string or None, not \['Where\?'\]"),
        ({"question": 3, "relevance_text": "question+options"}, "question must be a string or None, not 3"),
        ({"options": "abc"}, "options must be a list of strings, not 'abc'"),
        ({"options": [1]}, "options must be a list of strings"),
        ({"look_for": [1]}, "look_for must be 1 to"),
        ({"scorer": np.zeros(3)}, "scorer must be a name or an object with name, .* not ndarray"),
        ({"scorer": TableScorer}, "scorer must be .* not the class TableScorer"),
        ({"config": "residual"}, r"config must be a MECConfig \(preset= takes a name\), not 'residual'"),
        ({"scoring": {"batch": 3}}, "scoring must be a ScorerConfig"),
        ({"store": 3}, "store must be a folder, a URL or a Store, not 3"),
        ({"session": "s"}, "session must be a Session"),
    ],
)
def test_an_argument_of_another_kind_is_named(clip, given, message):
    with pytest.raises(fn.FramenestError, match=message):
        fn.rank(clip, **{"question": "Where?", "scorer": "table:no.csv"} | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 224}, r"size must be an ImageSpec \(max_side= takes pixels\), not 224"),
        ({"max_side": "224"}, "max_side = '224' is not allowed; it must be 1 or more"),
    ],
)
def test_a_size_of_another_kind_is_named(ranking, given, message):
    with pytest.raises(fn.ConfigError, match=message):
        ranking.prefix(2).images(**given)
    with pytest.raises(fn.ConfigError, match=message):
        ranking.prefix(2).read(**given)


def test_no_signature_shows_a_lambda():
    public = [getattr(fn, name) for name in fn.__all__ if callable(getattr(fn, name))]
    methods = [one for kind in public for one in vars(kind).values() if callable(one)]
    assert fn.Prefix.decode in methods
    for one in (*public, *methods):
        with suppress(ValueError):  # some have no signature
            assert "<lambda>" not in str(inspect.signature(one)), one


def test_a_video_that_moved(tmp_path, clip):
    here = tmp_path / "here.mp4"
    here.write_bytes(clip.read_bytes())
    prefix = fn.rank(here, None, 3)
    there = here.rename(tmp_path / "there.mp4")
    with pytest.raises(
        fn.VideoError,
        match=r"here.mp4: no such file; if it has moved, give its path with video=",
    ):
        prefix.read()
    assert [number_in(picture) for picture in prefix.read(video=there)] == prefix.frames.tolist()
    other = numbered_video(tmp_path / "other.mp4", 30)
    for video in (other, fn.open_video(other)):
        with pytest.raises(fn.IndexMismatch, match=r"other.mp4: this video has changed"):
            prefix.read(video=video)


def test_json_there_and_back(ranking):
    prefix = ranking.prefix(5)
    for one in (prefix, fn.Prefix(prefix.video, 5, prefix.frames, prefix.seconds, None, complete=True)):
        back = fn.Prefix.from_json(one.video, json.loads(json.dumps(one.to_json())))
        assert back.to_json() == one.to_json()
        assert (back.frames.dtype, back.seconds.dtype) == (np.int64, np.float64)


def test_rank_in_one_call(clip, ranking):
    scorer = TableScorer(zero_elsewhere({100: 1.0, 200: 0.5}))
    paper = fn.rank(clip, "Where?", scorer=scorer, preset="paper")
    assert paper.frames.tolist() == ranking.prefix(8).frames.tolist()
    few = fn.rank(clip, "Where?", 3, scorer=scorer, base_probes=40)
    long_way = fn.MEC(scorer=scorer, preset="residual", base_probes=40).rank(clip, "Where?")
    assert few.frames.tolist() == long_way.prefix(3).frames.tolist()


def test_a_budget_beyond_the_horizon_is_refused_before_the_work(clip):
    class Busy(TableScorer):
        def encode(self, frames):
            raise AssertionError("the work has begun")

    with pytest.raises(fn.BudgetError, match=r"too short for a budget of 60; give horizon=60"):
        fn.rank(clip, "Where?", 60, scorer=Busy(zero_elsewhere({1: 1.0})), horizon=50)
    for k in (0, "8", 8.0, True):
        with pytest.raises(fn.BudgetError, match=f"a budget must be .* 1 or more, not {k!r}"):
            fn.rank(clip, "Where?", k, scorer=Busy(zero_elsewhere({1: 1.0})))


def test_settings_by_keyword(clip):
    mec = fn.MEC(scorer=None, horizon=300, max_gap=2, zoom=3, rerank=64, device="cpu")
    assert (mec.config.ranking.horizon, mec.config.index.max_gap, mec.config.discovery.zoom) == (300, 2, 3)
    assert (mec.session.scoring.rerank, mec.session.scoring.device) == (64, "cpu")
    assert fn.MEC(scorer=None).config == fn.MECConfig()
    assert fn.MEC(scorer=None, preset="residual", horizon=9).config.ranking.rule == "residual"
    on_top = fn.MEC(
        fn.MECConfig.preset("no-zoom"), None, scoring=fn.ScorerConfig(ocr="none"), horizon=9, batch=2
    )
    assert (on_top.config.discovery.zoom, on_top.config.ranking.horizon) == (0, 9)
    assert on_top.session.scoring == fn.ScorerConfig(ocr="none", batch=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"horizont": 3}, "there is no setting 'horizont'; did you mean 'horizon'"),
        ({"xyz": 3}, "there is no setting 'xyz'; choose from base_probes, .*, ocr"),
        ({"presett": "residual"}, "there is no setting 'presett'; did you mean 'preset'"),
        ({"horizon": 0}, "horizon"),
        ({"precision": "int3"}, "precision"),
        ({"session": fn.Session(None), "device": "cpu"}, "a session brings its own"),
    ],
)
def test_settings_are_checked(given, message):
    with pytest.raises(fn.ConfigError, match=message):
        fn.MEC(**given)


def test_a_setting_by_keyword_has_the_name_of_its_option():
    """An option of the scorer is a setting of the same name in Python; --set takes those of the method."""
    from framenest.cli.rank import rank as command
    from framenest.config import ScorerConfig

    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {"--" + name.replace("_", "-") for name in ScorerConfig.__dataclass_fields__} < flags
    assert "--set" in flags
