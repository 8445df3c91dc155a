"""Decoders by name: those that other packages bring, and NVIDIA's video engine."""

import io
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from framenest import ConfigError, Session, open_video
from framenest.config import ScorerConfig
from framenest.processes import ProcessLimits
from framenest.server.server_settings import ServerSettings
from framenest.server.video_worker import VideoWorker
from framenest.transcript import find_transcript
from media import numbered_picture
from plugin_packages import write_metadata

PLUGIN = """
from dataclasses import replace
from framenest.testing import ArrayDecoder
from framenest.video.decoder import SubtitleTrack
import numpy as np

class GreyDecoder:
    name = "grey"

    @classmethod
    def open(cls, path, argument, *, stream, store, progress):
        return ArrayDecoder(np.full((10, 36, 64, 3), int(argument), np.uint8), fps=5)

class TalkingDecoder:
    name, version = "talking", "1"

    @classmethod
    def open(cls, path, argument, **_):
        greys = ArrayDecoder(np.arange(50, dtype=np.uint8).repeat(32 * 32 * 3).reshape(50, 32, 32, 3), 5)
        decoder = cls()
        decoder.info = replace(greys.info, path=path)
        decoder.seconds, decoder.key_frames, decoder.read = greys.seconds, greys.key_frames, greys.read
        return decoder

    def sound(self, first=0):
        return iter(())

    def streams(self):
        return ["video grey", "subtitle plain"]

    def subtitle_tracks(self):
        pictures = SubtitleTrack(2, "pictures", "eng", is_text=False)
        return [SubtitleTrack(1, "plain", "deu"), pictures, SubtitleTrack(3, "plain", "eng")]

    def subtitle_lines(self, track):
        yield 2.0, 4.0, f"<i>Track {track.number}</i>"
        yield 60.0, 61.0, "after the end"

class NoDecoder:
    @classmethod
    def open(cls, path, argument, **_):
        return path
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "grey_decoder.py").write_text(PLUGIN)
    points = {
        "grey": "grey_decoder:GreyDecoder",
        "talking": "grey_decoder:TalkingDecoder",
        "no-decoder": "grey_decoder:NoDecoder",
    }
    write_metadata(tmp_path, "grey-decoder", "1.0", {"framenest.decoders": points})
    monkeypatch.syspath_prepend(tmp_path)


def test_a_decoder_of_another_package(plugin, clip):
    for video in (open_video(clip, decoder="grey:77"), Session(None, decoder="grey:77").open(clip)):
        assert video.info.num_frames == 10
        assert (next(video.read([3])).pixels[0] == 77).all()


def test_the_subtitle_tracks_of_another_packages_decoder_are_read(plugin, clip):
    decoder = open_video(clip, decoder="talking")
    transcript = find_transcript(decoder)
    assert transcript.source == "track 3 (plain, eng)"
    assert transcript.lines == ((2.0, 4.0, "Track 3", None),)
    assert "1 of 2 lines are not in this video" in transcript.notes[0]


def test_the_service_decodes_with_another_packages_decoder(plugin, clip, tmp_path):
    (tmp_path / "scores.csv").write_text("frame,score\n0,0\n49,1\n")
    settings = ServerSettings(
        data=tmp_path / "data",
        scorer=f"table:{tmp_path}/scores.csv",
        scoring=ScorerConfig(subtitles="auto"),
        decoder="talking",
    )
    with closing(VideoWorker(settings, ProcessLimits())) as worker:
        described = worker.call("describe", str(clip))
        assert described["streams"] == ["video grey", "subtitle plain"]
        assert described["transcript"] == "track 3 (plain, eng)"
        assert worker.call("index", str(clip))["num_frames"] == 50
        pictures = worker.call("look_at", str(clip), [0.0, 4.1, 9.9], 32)
    assert [(frame, seconds) for frame, seconds, _ in pictures] == [(0, 0.0), (20, 4.0), (49, 9.8)]
    greys = [np.asarray(Image.open(io.BytesIO(jpeg))).mean() for _, _, jpeg in pictures]
    assert greys == pytest.approx([0, 20, 49], abs=1)


def test_what_a_package_calls_a_decoder_must_be_one(plugin, clip):
    with pytest.raises(ConfigError, match="'no-decoder' is not a decoder: it needs info, seconds"):
        open_video(clip, decoder="no-decoder")


def test_an_unknown_decoder_is_refused(clip):
    with pytest.raises(ConfigError, match="there is no decoder 'decord'; choose from pyav"):
        open_video(clip, decoder="decord")
    with pytest.raises(ConfigError, match="there is no decoder 'pyav:vaapi'; choose from pyav"):
        open_video(clip, decoder="pyav:vaapi")


def test_images_and_arrays_need_no_decoder():
    session = Session(None, decoder="another")
    assert session.open(np.stack([numbered_picture(i) for i in range(5)]), fps=5).info.num_frames == 5
