"""Damaged files: the frames of a sequential decode, or none, and a note that says so."""

import json
import random
import struct
from contextlib import closing

import fuzz
import numpy as np
import pytest

from command_line import FAST, run
from framenest import ImageSpec, VideoError, open_video
from framenest.cache.directory import DirectoryStore
from framenest.video.pyav import DAMAGED_VIDEO
from media import numbered_video

SMALL = (ImageSpec.short_side(16),)


def pictures(decoder, frames):
    return {
        int(number): picture
        for batch in decoder.read(frames, sizes=SMALL)
        for number, picture in zip(batch.frames, batch.pixels[0], strict=True)
    }


def played(decoder):
    """Every frame of a plain decode from the beginning; the first of several with one number."""
    found, scale = {}, decoder.scaler(SMALL)
    with closing(decoder.source.open()) as opened:
        for _, frames in opened.play():
            for frame in frames:
                if frame.pts is not None and frame.pts < len(decoder.timeline.frame):
                    found.setdefault(int(decoder.timeline.frame[frame.pts]), scale(frame)[0])
    return found


def check_each_alone(path, store):
    decoder = open_video(path, store=store)
    truth = played(decoder)
    pictures(decoder, range(decoder.info.num_frames))  # meets the damage, as the probes of an index do
    for number in range(decoder.info.num_frames):
        found = pictures(decoder, [number])
        assert found.keys() >= {number} & truth.keys(), number
        assert all(np.array_equal(found[n], truth[n]) for n in found.keys() & truth.keys()), number
    return decoder


def open_gop(path):
    options = {**fuzz._X264, "bf": "3", "x264-params": "asm=0:open-gop=1"}
    return numbered_video(path, 60, options=options, container_options=fuzz._EXACT)


def mjpeg(path):
    return numbered_video(path, 30, codec="mjpeg", pix_fmt="yuvj420p")


def mpeg2(path):
    return numbered_video(path, 60, codec="mpeg2video", options={"g": "12", "bf": "2", "threads": "1"})


@pytest.mark.parametrize(
    ("make", "name", "seed"),
    [
        (mjpeg, "a.avi", 0),
        (mjpeg, "a.avi", 4),
        (open_gop, "a.mp4", 10),
        (open_gop, "a.mp4", 24),
        (mpeg2, "a.mpg", 9),
        (mpeg2, "a.mpg", 12),
    ],
)
def test_a_frame_asked_alone_is_that_of_a_sequential_decode_or_none(tmp_path, make, name, seed):
    path = make(tmp_path / name)
    data = bytearray(path.read_bytes())
    rng = random.Random(seed)
    for _ in range(12):
        data[rng.randrange(len(data) // 3, len(data) * 5 // 6)] = rng.randrange(256)
    path.write_bytes(data)
    assert DAMAGED_VIDEO in check_each_alone(path, DirectoryStore(tmp_path / "store")).info.notes


def test_the_last_frame_of_a_cut_file_is_the_same_each_time(tmp_path):
    """The decoder leaves the rest of it as it was in memory."""
    path = mjpeg(tmp_path / "cut.avi")
    data = path.read_bytes()
    at = data.rindex(b"\xff\xd8\xff")  # where the last picture begins
    path.write_bytes(data[: at + 700])
    decoder = check_each_alone(path, DirectoryStore(tmp_path / "store"))
    last = decoder.info.num_frames - 1
    assert last == 29
    assert pictures(decoder, [last]) == {}


def test_a_healthy_video_is_not_noted_as_damaged(tmp_path):
    for path in [open_gop(tmp_path / "a.mp4"), mjpeg(tmp_path / "b.avi"), *fuzz.clips(tmp_path)]:
        decoder = check_each_alone(path, DirectoryStore(tmp_path / "store"))
        assert decoder.info.notes == (), path.name


def test_pictures_that_are_all_patched_up_are_still_returned(tmp_path):
    """Some cameras write no picture to its end."""
    path = mjpeg(tmp_path / "a.avi")
    data = bytearray(path.read_bytes())
    at = data.index(b"\xff\xd8\xff")
    while at >= 0:
        after = data.find(b"\xff\xd8\xff", at + 3)
        end = data.rindex(b"\xff\xd9", at, after if after >= 0 else len(data))
        data[end - 40 : end] = b"\xff\xfe\x00\x26" + bytes(36)
        at = after
    path.write_bytes(data)
    decoder = open_video(path)
    assert not decoder.source.strict
    assert len(pictures(decoder, range(30))) == 30


def test_rank_and_report_say_that_a_video_is_damaged(tmp_path, capsys):
    path = mpeg2(tmp_path / "a.mpg")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 900] = bytes(900)
    path.write_bytes(data)
    asked = ["rank", path, "--no-question", "--scorer", "none", *FAST, "-o", tmp_path / "ranking.json"]
    for _ in range(2):  # the second time nothing is decoded
        code, out, _ = run(capsys, *asked)
        assert (code, "this video is damaged" in out) == (0, True)
        video = json.loads((tmp_path / "ranking.json").read_text())["video"]
        assert video["notes"] == [DAMAGED_VIDEO]
    assert run(capsys, "report", tmp_path / "ranking.json", "-o", tmp_path / "report.html")[0] == 0
    assert DAMAGED_VIDEO in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("times", [(0, 2**62), (-(2**62), 2**62), (0, 2**63 - 2)])
def test_times_that_are_ages_apart_are_refused(tmp_path, times):
    options = {"threads": "1", "deadline": "good", "cpu-used": "5"}
    path = numbered_video(tmp_path / "a.ivf", 3, codec="libvpx-vp9", options=options)
    data = bytearray(path.read_bytes())
    at = 32
    for time in (times[0], times[1] - 1, times[1]):
        struct.pack_into("<q", data, at + 4, time)
        at += 12 + struct.unpack_from("<I", data, at)[0]
    path.write_bytes(data)
    with pytest.raises(VideoError, match="more than a century apart"):
        open_video(path)
