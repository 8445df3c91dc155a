"""The sound of a video, on the clock of its frames."""

import shutil
from dataclasses import replace

import av
import numpy as np
import pytest

from framenest.video.decoder import SOUND_RATE, HasStreams
from framenest.video.opening import open_video
from framenest.video.pyav import DAMAGED_SOUND
from framenest.video.stills import ArrayDecoder
from media import numbered_picture, numbered_video, talking_video


def tone(seconds, hertz=440.0, rate=SOUND_RATE):
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def heard(video, first=0):
    return np.concatenate([np.zeros(0, np.float32), *video.sound(first)])


@pytest.mark.parametrize(
    ("suffix", "codec", "form", "rate"),
    [("mkv", "pcm_s16le", "s16", 16_000), ("mp4", "aac", "fltp", 44_100), ("mkv", "libopus", "flt", 48_000)],
)
def test_sound_is_resampled_and_on_time(tmp_path, suffix, codec, form, rate):
    samples = np.concatenate([np.zeros(2 * rate, np.float32), tone(2, rate=rate), np.zeros(rate, np.float32)])
    video = open_video(talking_video(tmp_path / f"a.{suffix}", samples, rate=rate, codec=codec, format=form))
    assert isinstance(video, HasStreams)
    sound = heard(video)
    assert len(sound) == pytest.approx(5 * SOUND_RATE, abs=0.1 * SOUND_RATE)
    loud = np.flatnonzero(np.abs(sound) > 0.2) / SOUND_RATE
    assert (loud[0], loud[-1]) == pytest.approx((2, 4), abs=0.05)
    assert np.abs(sound).max() == pytest.approx(0.5, abs=0.05)


def test_late_sound_and_gaps_are_filled_with_silence(tmp_path):
    video = open_video(talking_video(tmp_path / "a.mkv", tone(3), late=2.0))
    sound = heard(video)
    assert len(sound) == pytest.approx(5 * SOUND_RATE, abs=0.1 * SOUND_RATE)
    assert not sound[: round(1.9 * SOUND_RATE)].any()
    assert np.abs(sound[round(2.1 * SOUND_RATE) :]).max() > 0.4


def test_reading_may_begin_anywhere(tmp_path):
    video = open_video(talking_video(tmp_path / "a.mkv", np.concatenate([tone(2), tone(2, 300.0)]), late=1.0))
    whole = heard(video)
    for first in (0, 1, 10_000, 16_001, 50_000, len(whole), len(whole) + 5):
        np.testing.assert_array_equal(heard(video, first), whole[first:])


def test_a_video_without_sound_yields_none(tmp_path):
    video = open_video(numbered_video(tmp_path / "a.mp4", 30))
    assert heard(video).size == 0
    assert DAMAGED_SOUND not in video.info.notes
    frames = np.stack([numbered_picture(i) for i in range(5)])
    assert not isinstance(ArrayDecoder(frames, 5.0), HasStreams)


def test_sound_ends_with_the_pictures(tmp_path):
    video = open_video(talking_video(tmp_path / "a.mkv", tone(4)))
    video.info = replace(video.info, duration=1.5)
    assert len(heard(video)) == 1.5 * SOUND_RATE


def test_damaged_sound_is_silent_and_noted(tmp_path):
    path = talking_video(tmp_path / "a.mp4", tone(6, rate=44_100), rate=44_100, codec="aac", format="fltp")
    with av.open(str(path)) as container:
        packets = [p for p in container.demux(audio=0) if p.size and 2 < p.pts * p.time_base < 4]
        places = [(packet.pos, packet.size) for packet in packets]
    data = bytearray(path.read_bytes())
    for start, size in places:
        data[start + size // 2 : start + size] = b"\xff" * (size - size // 2)
    path.write_bytes(data)
    video = open_video(path)
    sound = heard(video)
    assert len(sound) == pytest.approx(6 * SOUND_RATE, abs=0.2 * SOUND_RATE)
    assert np.abs(sound[: 2 * SOUND_RATE]).max() > 0.4
    assert DAMAGED_SOUND in video.info.notes
    again = open_video(shutil.copy(path, tmp_path / "b.mp4"))
    assert DAMAGED_SOUND in again.info.notes, "it is remembered with the timeline"
