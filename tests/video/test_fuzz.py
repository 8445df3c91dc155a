"""Damaged files never hang, crash the process, or raise anything but our own errors."""

from types import SimpleNamespace

import av
import pytest
from fuzz import TRIALS, check_seed, clips

from framenest import VideoError
from framenest.video.source import Opened, Source

SLIPS = [
    av.error.InvalidDataError(1094995529, "Invalid data found when processing input"),
    EOFError("end"),
    IndexError("list index out of range"),
    KeyError("stream"),
    OverflowError("value too large to convert to int"),
    ZeroDivisionError("Fraction(1, 0)"),
    UnicodeDecodeError("utf-8", b"\xcc", 0, 1, "invalid continuation byte"),
    TypeError("an integer is required"),
    AttributeError("'NoneType' object has no attribute 'codec'"),
    RuntimeError("Unknown"),
]


def raising(error):
    def call(*_, **__):
        raise error

    return call


@pytest.mark.parametrize("error", SLIPS, ids=lambda error: type(error).__name__)
def test_whatever_pyav_raises_is_damage(error, monkeypatch):
    container = SimpleNamespace(demux=raising(error), seek=raising(error))
    stream = SimpleNamespace(codec_context=SimpleNamespace(decode=raising(error)))
    opened = Opened("kiln.mp4", container, stream)
    assert list(opened.packets()) == []
    assert opened.seek(0) is False
    assert opened.decode(object()) == []
    assert opened.damaged
    monkeypatch.setattr(av, "open", raising(error))
    with pytest.raises(VideoError, match=r"kiln\.mp4: not a video that FFmpeg can read"):
        Source.at("kiln.mp4").open()


@pytest.mark.parametrize("error", [OSError("connection reset"), MemoryError()])
def test_what_is_not_damage_does_not_pass_for_the_end_of_the_file(error):
    container = SimpleNamespace(demux=raising(error), seek=raising(error))
    opened = Opened("kiln.mp4", container, SimpleNamespace())
    with pytest.raises(VideoError, match=r"^kiln\.mp4: "):
        list(opened.packets())
    with pytest.raises(VideoError, match=r"^kiln\.mp4: "):
        opened.seek(0)


def test_the_clips_are_the_same_bytes_every_time(tmp_path):
    first, second = (tmp_path / "first", tmp_path / "second")
    for folder in (first, second):
        folder.mkdir()
        clips(folder)
    for clip in first.iterdir():
        assert clip.read_bytes() == (second / clip.name).read_bytes(), clip.name


def test_files_of_many_kinds(tmp_path):
    lines = check_seed(tmp_path, 1, TRIALS, clips(tmp_path))
    assert any("VideoError 0" in line for line in lines)
    assert any("8 of 8 frames" in line for line in lines)


def test_small_real_files(tmp_path, shared_data):
    files = [f for f in sorted((shared_data / "odd").iterdir()) if 0 < f.stat().st_size < 150_000]
    if not files:
        pytest.skip("no small real files are here")
    check_seed(tmp_path, 2, TRIALS, files)
