"""The timeline: from the header where that says it all, and the same as from every packet."""

import io
from contextlib import closing

import av
import numpy as np
import pytest

from framenest import Session, VideoError, open_video
from framenest.cache.directory import DirectoryStore, UnwritableCache
from framenest.video import timeline as scanning
from framenest.video.source import Source
from framenest.video.timeline import composition_offsets, scan
from media import numbered_picture, numbered_video


def scanned(path):
    source = Source.at(str(path))
    with closing(source.open()) as opened:
        return scan(source, opened)


def both_ways(path, monkeypatch):
    """(from the header, from every packet)."""
    fast = scanned(path)
    with monkeypatch.context() as patch:
        patch.setattr(scanning, "_from_header", lambda *_: None)
        slow = scanned(path)
    return fast, slow


def assert_same(fast, slow):
    for name in ("pts", "dts", "pos", "size", "key", "packet", "ticks"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    assert fast.last == slow.last
    assert fast.time_base == slow.time_base


MP4 = {
    "b-frames": {"options": {"g": "40", "bf": "3"}},
    "no-b-frames": {"options": {"g": "40", "bf": "0"}},
    "open-gop": {"options": {"g": "25", "bf": "3", "x264-params": "open-gop=1"}},
    "faststart": {"options": {"g": "25"}, "container_options": {"movflags": "faststart"}},
    "negative-offsets": {"options": {"bf": "3"}, "container_options": {"movflags": "negative_cts_offsets"}},
}


@pytest.mark.parametrize("kind", MP4)
def test_the_header_says_the_same_as_the_packets(kind, tmp_path, monkeypatch):
    path = numbered_video(tmp_path / "video.mp4", 400, **MP4[kind])
    fast, slow = both_ways(path, monkeypatch)
    assert_same(fast, slow)
    assert fast.bytes_read < slow.bytes_read


def test_real_files_have_one_timeline(shared_data, monkeypatch):
    files = [*(shared_data / "video").iterdir(), *(shared_data / "odd").iterdir()]
    checked = 0
    for path in sorted(files):
        try:
            fast, slow = both_ways(path, monkeypatch)
        except VideoError:
            continue
        assert_same(fast, slow)
        checked += fast.bytes_read < slow.bytes_read
    assert checked >= 10  # the others are so short that comparing packets reads them all


def test_a_header_that_lies_is_not_believed(tmp_path, monkeypatch):
    """Wrong composition offsets: the packets compared with them disagree, and all are read instead."""
    path = numbered_video(tmp_path / "video.mp4", 120, options={"bf": "3"})
    monkeypatch.setattr(scanning, "composition_offsets", lambda *_: (np.arange(120, dtype=np.int64) * 512, 0))
    lied = scanned(path)
    monkeypatch.undo()
    assert_same(lied, scanned(path))


def test_a_file_cut_short_is_read_to_its_end(tmp_path, monkeypatch):
    path = numbered_video(
        tmp_path / "whole.mp4", 300, options={"g": "25"}, container_options={"movflags": "faststart"}
    )
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])
    decoder = open_video(cut)
    assert 50 < decoder.info.num_frames < 300
    assert "the header promises 12.0 s of video" in decoder.info.notes[0]


def box(kind, body):
    return (8 + len(body)).to_bytes(4, "big") + kind + body


def test_composition_offsets_of_odd_bytes():
    assert composition_offsets(io.BytesIO(b""), 1, 5) == (None, 0)
    assert composition_offsets(io.BytesIO(b"\0\0\0\x04moov"), 1, 5) == (None, 0)
    assert composition_offsets(io.BytesIO(b"\0\0\0\x10moov\0\0\0\xffjunk"), 1, 5)[0] is None
    for table in (b"\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0\0\0\0\x01\0\0"):
        tables = box(b"mdia", box(b"minf", box(b"stbl", box(b"ctts", table))))
        track = box(b"tkhd", bytes(12) + b"\0\0\0\x01") + tables
        with pytest.raises(ValueError, match=r"samples|multiple"):
            composition_offsets(io.BytesIO(box(b"moov", box(b"trak", track))), 1, 5)
    assert composition_offsets(io.BytesIO(box(b"moov", box(b"trak", box(b"tkhd", b"")))), 1, 5)[0] is None


def test_the_timeline_is_kept(clip, tmp_path, monkeypatch):
    store = DirectoryStore(tmp_path)
    first = open_video(clip, store=store)
    assert 0 < first.info.timeline_bytes == first.timeline.bytes_read
    monkeypatch.setattr("framenest.video.timeline.scan", lambda *_: pytest.fail("scanned again"))
    again = open_video(clip, store=store)
    assert again.info == first.info
    assert_same(again.timeline, first.timeline)
    assert next(again.read([120])).pixels[0].tobytes() == next(first.read([120])).pixels[0].tobytes()


def test_without_a_cache_a_session_describes_a_video_once(clip, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    scans = []
    monkeypatch.setattr(scanning, "scan", lambda *how: scans.append(how) or scan(*how))
    session = Session(None, store=tmp_path / "file" / "store")
    with pytest.warns(UnwritableCache):
        assert len({id(session.open(clip)) for _ in range(3)}) == 1
    assert len(scans) == 1


def two_streams(path):
    with av.open(str(path), "w") as container:
        small = container.add_stream("libx264", rate=10)
        small.width, small.height, small.pix_fmt = 48, 32, "yuv420p"
        large = container.add_stream("libx264", rate=20)
        large.width, large.height, large.pix_fmt = 96, 64, "yuv420p"
        for stream, count in ((small, 20), (large, 40)):
            for i in range(count):
                picture = numbered_picture(i, stream.width, stream.height)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode(None))
    return path


def test_several_video_streams(tmp_path):
    path = two_streams(tmp_path / "two.mp4")
    with av.open(str(path)) as container:
        chosen = container.streams.best("video").index
    default = open_video(path)
    said = (
        f"this is stream {chosen} of the video streams 0 (48×32), 1 (96×64); the setting stream picks another"
    )
    assert default.info.notes == (said,)
    small, large = open_video(path, stream=0), open_video(path, stream=1)
    assert (small.info.num_frames, small.info.width) == (20, 48)
    assert (large.info.num_frames, large.info.width) == (40, 96)
    assert (small.info.notes, large.info.notes) == ((), ())
    assert len({default.info.fingerprint, small.info.fingerprint, large.info.fingerprint}) == 3
    with pytest.raises(VideoError, match="stream 7 is not video; the video streams are 0, 1"):
        open_video(path, stream=7)


def test_a_picture_on_the_cover_is_no_video(tmp_path):
    path = tmp_path / "song.mp4"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("aac", rate=44100, layout="mono")
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 96, 64, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 44100, 0
        container.mux(cover.encode(av.VideoFrame.from_ndarray(numbered_picture(1), format="rgb24")))
        container.mux(cover.encode(None))
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    with pytest.raises(VideoError, match="no video stream"):
        open_video(path)
