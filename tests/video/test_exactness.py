"""Frames by number are those of a full sequential decode, on every kind of file."""

import hashlib
import random
from fractions import Fraction

import numpy as np
import pytest

from framenest import ImageSpec, VideoError, open_video
from framenest.video.pyav import PyAVDecoder
from framenest.video.source import Source
from framenest.video.timeline import NO_TIME, describe
from media import encode_video, number_in, numbered_picture, numbered_video, sequential_decode


def read_all(decoder, frames, size=None):
    batches = list(decoder.read(frames, sizes=(size,)))
    return {int(n): p for batch in batches for n, p in zip(batch.frames, batch.pixels[0], strict=True)}


def some_frames(count, seed=0, amount=50):
    picked = random.Random(seed).sample(range(count), min(amount, count))
    return sorted({*picked, 0, count - 1})


ENCODINGS = {
    "b-frames": ("mp4", {"options": {"g": "40", "bf": "3"}}),
    "closed-gop": ("mp4", {"options": {"g": "25", "bf": "2", "x264-params": "open-gop=0:scenecut=0"}}),
    "open-gop": ("mp4", {"options": {"g": "25", "bf": "3", "x264-params": "open-gop=1:scenecut=0"}}),
    "open-gop-mkv": ("mkv", {"options": {"g": "25", "bf": "3", "x264-params": "open-gop=1:scenecut=0"}}),
    "intra-only": ("mp4", {"options": {"g": "1", "bf": "0"}}),
    "one-gop": ("mp4", {"options": {"g": "9999", "bf": "3", "x264-params": "scenecut=0"}}),
    "intra-refresh": ("mp4", {"options": {"g": "30", "x264-params": "intra-refresh=1:scenecut=0"}}),
    "transport-stream": ("ts", {"options": {"g": "30", "bf": "2"}}),
    "fragmented": (
        "mp4",
        {"options": {"g": "30"}, "container_options": {"movflags": "frag_keyframe+empty_moov"}},
    ),
    "four-four-four": ("mp4", {"pix_fmt": "yuv444p", "options": {"g": "30", "bf": "3"}}),
    "mpeg4-b-frames": ("mp4", {"codec": "mpeg4", "options": {"g": "30", "bf": "2", "qscale": "3"}}),
    "avi-mpeg4-b-frames": ("avi", {"codec": "mpeg4", "options": {"g": "30", "bf": "2", "qscale": "3"}}),
    "mpeg2": ("mpg", {"codec": "mpeg2video", "options": {"g": "15", "bf": "2", "qscale": "3"}}),
    "hevc": ("mp4", {"codec": "libx265", "options": {"x265-params": "keyint=30:open-gop=1:log-level=none"}}),
    "vp9": ("webm", {"codec": "libvpx-vp9", "options": {"g": "30", "cpu-used": "8", "deadline": "realtime"}}),
    "vp8": ("webm", {"codec": "libvpx", "options": {"g": "30", "cpu-used": "8", "deadline": "realtime"}}),
}


@pytest.mark.parametrize("kind", ENCODINGS)
def test_every_frame_asked_for_is_the_one_that_was_encoded(kind, tmp_path):
    suffix, settings = ENCODINGS[kind]
    path = numbered_video(tmp_path / f"video.{suffix}", 130, **settings)
    decoder = open_video(path)
    assert decoder.info.num_frames == 130
    wanted = some_frames(130)
    found = read_all(decoder, wanted)
    assert list(found) == wanted
    assert [number_in(found[n]) for n in wanted] == wanted


@pytest.mark.parametrize("kind", ENCODINGS)
def test_pixels_are_those_of_a_sequential_decode(kind, tmp_path):
    suffix, settings = ENCODINGS[kind]
    path = numbered_video(tmp_path / f"video.{suffix}", 130, **settings)
    check_against_sequential_decode(path, seed=1)


def check_against_sequential_decode(path, seed, amount=50):
    """Same frame, same pixels, matched by presentation time; frames that no decode gives are left out."""
    source = Source.at(str(path), "fingerprint")
    decoder = PyAVDecoder(source, *describe(source))
    timeline, size = decoder.timeline, ImageSpec.short_side(48)
    scaler = decoder.scaler((size,))
    expected: dict[int | None, list[str]] = {}
    in_order = []

    def keep(decoded):
        for frame in decoded:
            digest = hashlib.md5(scaler(frame)[0].tobytes()).hexdigest()
            expected.setdefault(frame.pts, []).append(digest)
            in_order.append(digest)

    opened = source.open()
    for packet in opened.packets():
        keep(opened.decode(packet))
    keep(opened.decode(None))
    opened.close()

    wanted = some_frames(len(timeline), seed, amount)
    found = read_all(decoder, wanted, size)
    for number in wanted:
        time = int(timeline.pts[timeline.packet[number]])
        right = expected.get(time, []) if time != NO_TIME else [in_order[number]]
        if number in found:
            assert hashlib.md5(found[number].tobytes()).hexdigest() in right, f"frame {number} of {path}"
        else:
            assert not right, f"frame {number} of {path} decodes in sequence but was not returned"
    return found


def test_variable_frame_rate(tmp_path):
    ticks = np.cumsum(np.random.default_rng(0).integers(10, 200, 90)).tolist()
    path = numbered_video(tmp_path / "vfr.mkv", 90, ticks=ticks, options={"g": "20", "bf": "2"})
    decoder = open_video(path)
    assert not decoder.info.constant_rate
    assert np.allclose(decoder.seconds, (np.array(ticks) - ticks[0]) / 1000, atol=1e-6)
    wanted = some_frames(90)
    assert [number_in(p) for p in read_all(decoder, wanted).values()] == wanted
    assert decoder.info.fps == pytest.approx(90 / decoder.info.duration)


def test_seconds_count_from_the_first_frame(tmp_path):
    ticks = [7000 + 40 * i for i in range(60)]
    path = numbered_video(tmp_path / "late.mkv", 60, ticks=ticks, options={"g": "20"})
    decoder = open_video(path)
    assert decoder.info.start == pytest.approx(7.0)
    assert decoder.seconds[0] == 0
    assert decoder.seconds[-1] == pytest.approx(59 * 0.04)
    assert [number_in(p) for p in read_all(decoder, [0, 33, 59]).values()] == [0, 33, 59]


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_rotated_video_comes_upright(tmp_path, rotation):
    """The file stores the picture turned; its display matrix turns it back."""
    upright = [numbered_picture(i, 96, 64) for i in range(12)]
    stored = [np.ascontiguousarray(np.rot90(p, -rotation // 90)) for p in upright]
    path = encode_video(tmp_path / "turned.mp4", stored, rotation=rotation)
    decoder = open_video(path)
    assert (decoder.info.width, decoder.info.height) == (96, 64)
    found = read_all(decoder, [0, 5, 11])
    assert [number_in(p) for p in found.values()] == [0, 5, 11]
    thumbnail = read_all(decoder, [5], ImageSpec.short_side(32))[5]
    assert thumbnail.shape == (32, 48, 3)
    assert number_in(thumbnail) == 5


def test_pixel_aspect_ratio_is_applied(tmp_path):
    path = numbered_video(tmp_path / "anamorphic.mp4", 10, aspect=Fraction(4, 3))
    decoder = open_video(path)
    assert (decoder.info.width, decoder.info.height) == (128, 64)
    assert read_all(decoder, [3])[3].shape == (64, 128, 3)


def test_odd_sizes(tmp_path):
    pictures = [numbered_picture(i, 101, 67) for i in range(20)]
    path = encode_video(tmp_path / "odd.mp4", pictures, pix_fmt="yuv444p")
    decoder = open_video(path)
    assert read_all(decoder, [7])[7].shape == (67, 101, 3)
    assert read_all(decoder, [7], ImageSpec.short_side(32))[7].shape == (32, 48, 3)


def test_thumbnails_are_area_averages_of_the_full_frame(clip):
    decoder = open_video(clip)
    full = read_all(decoder, [40])[40].astype(float)
    small = read_all(decoder, [40], ImageSpec.short_side(32))[40].astype(float)
    averaged = full.reshape(32, 2, 48, 2, 3).mean(axis=(1, 3))
    assert np.abs(small - averaged).mean() < 2.5


def test_frames_come_in_the_order_asked_with_repeats(clip):
    decoder = open_video(clip)
    asked = [200, 3, 200, 77, 0]
    batches = list(decoder.read(asked))
    assert [n for b in batches for n in b.frames.tolist()] == asked
    assert [number_in(p) for b in batches for p in b.pixels[0]] == asked
    assert batches[0].seconds[1] == pytest.approx(3 / 25)


def test_batches_are_bounded(clip):
    sizes = [len(batch) for batch in open_video(clip).read(range(300))]
    assert sum(sizes) == 300
    assert max(sizes) <= 64


def test_a_frame_that_does_not_exist_is_refused(clip):
    with pytest.raises(VideoError, match=r"no frame 300; its frames are 0 to 299"):
        open_video(clip).read([0, 300])


def test_a_raw_stream_without_timestamps(tmp_path):
    path = numbered_video(tmp_path / "raw.h264", 60, options={"g": "20", "bf": "2"})
    decoder = open_video(path)
    assert decoder.info.num_frames == 60
    assert [number_in(p) for p in read_all(decoder, [0, 21, 43, 59]).values()] == [0, 21, 43, 59]
    assert (np.diff(decoder.seconds) > 0).all()


def test_a_damaged_stream_matches_its_sequential_decode(tmp_path):
    """Bytes overwritten in the middle: what decodes is what a player would show, damage and all."""
    path = numbered_video(tmp_path / "whole.mp4", 200, 192, 128, options={"g": "25", "bf": "2"})
    data = bytearray(path.read_bytes())
    rng = random.Random(3)
    for _ in range(60):
        data[rng.randrange(len(data) // 4, 3 * len(data) // 4)] ^= 0xFF
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(data)
    found = check_against_sequential_decode(damaged, seed=2, amount=80)
    assert len(found) > 20


def test_one_frame(tmp_path):
    decoder = open_video(numbered_video(tmp_path / "one.mp4", 1))
    assert decoder.info.num_frames == 1
    assert decoder.info.duration == pytest.approx(0.04)
    assert number_in(read_all(decoder, [0])[0]) == 0


def test_sequential_decode_agrees_on_times(clip):
    expected = [seconds for seconds, _ in sequential_decode(clip)]
    assert np.allclose(open_video(clip).seconds, np.array(expected) - expected[0])


BROKEN = {
    "empty_file.mp4": "the file is empty",
    "qt_translation_not_video.ts": "not a video",
    "random_bytes.mp4": "not a video",
    "shaka_bear-320x240-audio-only.webm": "no video stream",
    "shaka_bear-640x360-v_frag-cenc-senc.mp4": "none of its 82 frames can be decoded",
    "shaka_no_streams.webm": "no video stream",
}


@pytest.mark.parametrize("name", ["cockatoo.mp4", "openfield_mouse.mp4"])
def test_old_x264_444_is_right_after_a_seek_without_starting_over(shared_data, monkeypatch, name):
    """FFmpeg alone returns green frames after a seek in these files."""
    monkeypatch.setattr("framenest.video.reader.Player.pictures", lambda *_: pytest.fail("started over"))
    found = check_against_sequential_decode(shared_data / "video" / name, seed=5, amount=12)
    assert len(found) > 10


def test_real_files_match_their_sequential_decode(shared_data):
    files = sorted([*(shared_data / "video").iterdir(), *(shared_data / "odd").iterdir()])
    checked = 0
    for path in files:
        if path.name in BROKEN:
            with pytest.raises(VideoError, match=BROKEN[path.name]):
                open_video(path)
        else:
            check_against_sequential_decode(path, seed=4)
            checked += 1
    assert checked >= 40
