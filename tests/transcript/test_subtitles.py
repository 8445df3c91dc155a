"""Transcripts out of files and tracks, on the clock of the frames, whatever is wrong with them."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest

from framenest.errors import ConfigError, StoreError
from framenest.records import convert
from framenest.transcript import Line, Transcript, find_transcript, read_lines
from framenest.video.opening import open_video
from framenest.video.stills import ArrayDecoder
from media import numbered_picture, numbered_video

SRT = (
    "1\n00:00:01,000 --> 00:00:02,500\n<i>Good</i> morning\n\n2\n00:00:03,000 --> 00:00:04,000\nNumber nine\n"
)
SAID = [(1.0, 2.5, "Good morning"), (3.0, 4.0, "Number nine")]
VTT = (
    "WEBVTT - talk\n\nNOTE a remark\n\n00:01.000 --> 00:02.500 align:start\n<c.red>Good</c> morning\n\n"
    "b\n00:03.000 --> 00:04.000\n<v Ann>Number nine\n"
)
ASS = (
    "[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\n\n[Events]\n"
    "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
    "Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,{\\an8}Good morning\n"
    "Comment: 0,0:00:02.00,0:00:02.50,Default,,0,0,0,,not said\n"
    "Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,Number nine\n"
)
ROWS = [{"start": a, "end": b, "text": text} for a, b, text in SAID]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.srt", SRT),
        ("a.srt", SRT.replace("\n", "\r\n")),
        ("a.vtt", VTT),
        ("a.ass", ASS),
        ("a.json", json.dumps({"text": "Good …", "segments": ROWS, "language": "en"})),
        ("a.json", json.dumps(ROWS)),
        ("a.json", json.dumps({"chunks": [{"timestamp": [a, b], "text": t} for a, b, t in SAID]})),
        (
            "a.json",
            json.dumps(
                {
                    "transcription": [
                        {"offsets": {"from": a * 1000, "to": b * 1000}, "text": t} for a, b, t in SAID
                    ]
                }
            ),
        ),
        (
            "a.json",
            json.dumps([{"start": f"00:00:0{a}", "end": f"00:00:0{b}", "line": t} for a, b, t in SAID]),
        ),
    ],
    ids=[
        "srt",
        "crlf",
        "vtt",
        "ass",
        "whisper",
        "list",
        "transformers",
        "whisper.cpp",
        "longvideobench",
    ],
)
def test_every_format_says_the_same(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode())
    lines, notes = read_lines(tmp_path / name)
    assert [(a, b, text.strip()) for a, b, text, _ in lines] == SAID
    assert notes == []


def test_encodings(tmp_path):
    file = tmp_path / "a.srt"
    said = SRT.replace("Number nine", "Übung – neun")
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        file.write_bytes(said.encode(encoding))
        assert read_lines(file) == ([Line(1.0, 2.5, "Good morning"), Line(3.0, 4.0, "Übung – neun")], [])
    file.write_bytes(said.encode("cp1252"))
    lines, notes = read_lines(file)
    assert lines[1].text == "Übung – neun"
    assert notes == ["a.srt: not UTF-8; read as Windows-1252"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.srt", b""),
        ("a.srt", b"just a text\n"),
        ("a.vtt", bytes(range(256)) * 20),
        ("a.json", b"{"),
        ("a.json", b"3"),
        ("a.json", b'{"kind": "ranking"}'),
        ("a.json", b'[{"start": 1}]'),
        ("a.json", b"[1, 2]"),
        ("a.json", b"[" * 500_000),
        ("a.json", b'[{"timestamp": [1], "text": "a"}]'),
    ],
)
def test_what_is_no_subtitle_file_is_refused_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.\w+: not a subtitle file \(.+\)") as caught:
        read_lines(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(StoreError, match="cannot be read"):
        read_lines(tmp_path / "a.srt")


def test_broken_lines_are_left_out_with_a_note():
    lines = [
        Line(3.0, 4.0, "second"),
        Line(1.0, 2.0, "first"),
        Line(5.0, 4.0, "ends before it begins"),
        Line(math.nan, 2.0, "no time"),
        Line(math.inf, math.inf, "never"),
        Line(6.0, 7.0, "  \n "),
        Line(2.5, 9.0, "over\n  others "),
    ]
    said = Transcript.of("a.srt", lines, 10.0)
    assert [line.text for line in said.lines] == ["first", "over others", "second"]
    assert said.notes == ("a.srt: 3 of 6 lines have no usable times; left out",)


def test_a_transcript_longer_than_its_video():
    lines = [Line(t, t + 1.0, f"line {t}") for t in range(0, 100, 10)]
    said = Transcript.of("a.srt", lines, 25.0)
    assert [line.start for line in said.lines] == [0, 10, 20]
    (note,) = said.notes
    assert note.startswith(
        "a.srt: 7 of 10 lines are not in this video of 0:25.0 (the last begins at 1:30.0);"
    )


def test_rolling_captions_are_said_once():
    """As YouTube writes them: every row is shown twice, and for a moment alone."""
    lines = [
        Line(0.0, 2.0, "we put the clay"),
        Line(2.0, 2.01, "we put the clay"),
        Line(2.01, 4.0, "we put the clay\ninto the kiln"),
        Line(4.0, 6.0, "into the kiln\nand wait"),
        Line(20.0, 21.0, "and wait"),
    ]
    assert [line[2] for line in Transcript.of("a.vtt", lines, 60.0).lines] == [
        "we put the clay", "into the kiln", "and wait", "and wait",
    ]  # fmt: skip


def test_a_line_without_an_end_lasts_until_the_next():
    lines = [Line(1.0, math.nan, "a"), Line(2.0, math.nan, "b"), Line(30.0, math.nan, "c")]
    assert [line[:2] for line in Transcript.of("a.json", lines, 60.0).lines] == [(1, 2), (2, 7), (30, 35)]


def test_json_of_a_transcript_reads_back():
    said = replace(Transcript.of("a.srt", [Line(*line) for line in SAID], 3.5), notes=("odd",))
    assert convert(json.loads(json.dumps(said.to_json())), Transcript) == said


def with_track(path, codec, packets, *, first=0, language=None, more=()):
    """Ten seconds of video from `first` ms on, with subtitle packets (start ms, length ms, bytes)."""
    with av.open(str(path), "w") as out:
        vp9 = path.suffix == ".webm"
        video = out.add_stream("libvpx-vp9" if vp9 else "mpeg4", rate=10)
        video.width, video.height, video.pix_fmt = 96, 64, "yuv420p"
        video.codec_context.time_base = Fraction(1, 1000)
        tracks = [(out.add_mux_stream(codec), packets, language)]
        tracks += [(out.add_mux_stream(codec), theirs, tag) for theirs, tag in more]
        for track, _, tag in tracks:
            track.time_base = Fraction(1, 1000)
            if tag:
                track.metadata["language"] = tag
        for i in range(100):
            frame = av.VideoFrame.from_ndarray(numbered_picture(i), format="rgb24")
            frame.pts, frame.time_base = first + 100 * i, Fraction(1, 1000)
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
        for track, theirs, _ in tracks:
            for start, length, data in theirs:
                packet = av.Packet(data)
                packet.stream, packet.time_base = track, Fraction(1, 1000)
                packet.pts = packet.dts = start
                packet.duration = length
                out.mux(packet)
    return path


def mov_text(text):
    return len(text).to_bytes(2, "big") + text


@pytest.mark.parametrize(
    ("suffix", "codec", "packed"),
    [
        (".mkv", "subrip", lambda text: text),
        (".mkv", "webvtt", lambda text: text),
        (".webm", "webvtt", lambda text: text),
        (".mp4", "mov_text", mov_text),
    ],
)
def test_tracks_inside_the_file(tmp_path, suffix, codec, packed):
    packets = [(1000, 1500, packed(b"<i>Good</i> morning")), (3000, 1000, packed(b"Number nine"))]
    path = with_track(tmp_path / f"a{suffix}", codec, packets)
    said = find_transcript(open_video(path))
    assert [(round(a, 3), round(b, 3), text) for a, b, text, _ in said.lines] == SAID
    assert said.source.startswith("track 1 (")
    assert said.notes == ()
    assert find_transcript(open_video(path), "none") is None


def test_times_count_from_the_first_frame(tmp_path):
    """The picture begins 2 s into the file: what is said then is at 0, in a track and in a file beside it."""
    path = with_track(
        tmp_path / "a.mkv", "subrip", [(500, 100, b"before"), (3000, 1500, b"inside")], first=2000
    )
    video = open_video(path)
    assert video.info.start == pytest.approx(2.0)
    said = find_transcript(video)
    assert [(round(a, 3), round(b, 3), text) for a, b, text, _ in said.lines] == [(1.0, 2.5, "inside")]
    (tmp_path / "a.srt").write_text("1\n00:00:03,000 --> 00:00:04,500\nbeside\n")
    said = find_transcript(video)
    # A player counts from where the file begins: with its first subtitle here, 0.5 s in.
    with av.open(str(path)) as container:
        began = container.start_time / av.time_base
    assert [(round(a, 3), text) for a, _, text, _ in said.lines] == [(round(3.0 + began - 2.0, 3), "beside")]


def test_the_english_track_is_taken_of_several(tmp_path):
    path = with_track(
        tmp_path / "a.mkv",
        "subrip",
        [(1000, 500, b"Guten Tag")],
        language="ger",
        more=[([(1000, 500, b"Hello")], "eng")],
    )
    said = find_transcript(open_video(path))
    assert [line.text for line in said.lines] == ["Hello"]
    assert said.source == "track 2 (subrip, eng)"


def test_a_file_beside_the_video_comes_before_its_tracks(tmp_path):
    path = with_track(tmp_path / "a.mkv", "subrip", [(1000, 500, b"inside")])
    (tmp_path / "a.en.vtt").write_text(VTT)
    assert find_transcript(open_video(path)).source == "a.en.vtt"
    (tmp_path / "a.srt").write_text(SRT)
    assert find_transcript(open_video(path)).source == "a.srt"


def test_a_file_or_a_folder_can_be_given(tmp_path):
    path = numbered_video(tmp_path / "clip.mp4", 100)
    (tmp_path / "subs").mkdir()
    (tmp_path / "subs/clip.srt").write_text(SRT)
    (tmp_path / "other.srt").write_text(SRT)
    video = open_video(path)
    assert find_transcript(video) is None
    assert find_transcript(video, str(tmp_path / "subs")).source == "clip.srt"
    assert find_transcript(video, str(tmp_path / "other.srt")).source == "other.srt"
    with pytest.raises(StoreError, match=r"gone\.srt: no such file; subtitles may be auto, none"):
        find_transcript(video, str(tmp_path / "gone.srt"))


def test_bad_files_beside_a_video_are_noted_and_others_taken(tmp_path):
    path = numbered_video(tmp_path / "clip.mp4", 100)
    (tmp_path / "clip.json").write_text('{"kind": "ranking"}')  # as `framenest rank -o clip.json` leaves it
    assert find_transcript(open_video(path)) is None
    (tmp_path / "clip.srt").write_text("nothing\n")
    said = find_transcript(open_video(path))
    assert said.lines == ()
    assert "clip.srt: not a subtitle file" in said.notes[0]
    with pytest.raises(ConfigError, match="not a subtitle file"):
        find_transcript(open_video(path), str(tmp_path / "clip.json"))


def test_videos_without_a_file_have_no_transcript():
    assert find_transcript(ArrayDecoder(np.zeros((4, 8, 8, 3), np.uint8), 2.0)) is None


HEAD = "1\n00:00:01,000 --> 00:00:02,000\nNow "


@pytest.mark.timeout(120)  # a hundredth of a second each, or many minutes
@pytest.mark.parametrize("repeated", ["<a", "{", "< i", "\n", "\r", "{\\p1"])
def test_a_file_takes_time_in_proportion_to_its_size(tmp_path, repeated):
    (tmp_path / "a.srt").write_text(HEAD + repeated * 500_000 + "x")
    ((line,), _) = read_lines(tmp_path / "a.srt")
    assert line.text.startswith("Now")


TIMES = ["1e308", "Infinity", "1" + 400 * "0", '"1e308"', f'"{400 * "9"}:00:00"', "-1e308", "NaN"]


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("which", [("start",), ("end",), ("start", "end")], ids="-".join)
def test_times_beyond_all_measure_are_no_times(tmp_path, time, which):
    """The file beside a video stops nothing."""
    video = numbered_video(tmp_path / "a.mp4", 10)
    times = {"start": "0.1", "end": "0.2"} | dict.fromkeys(which, time)
    row = f'{{"start": {times["start"]}, "end": {times["end"]}, "text": "hello"}}'
    (tmp_path / "a.json").write_text(f'[{row}, {{"start": 0.2, "end": 0.3, "text": "you"}}]')
    found = find_transcript(open_video(video))
    assert found.lines[-1].text == "you"
    assert all(math.isfinite(value) for line in found.lines for value in line[:2])


def test_deep_json_beside_a_video_stops_nothing(tmp_path):
    video = numbered_video(tmp_path / "a.mp4", 10)
    (tmp_path / "a.json").write_text("[" * 500_000 + "]" * 100_000)
    assert find_transcript(open_video(video)) is None


def test_the_name_of_a_video_may_be_as_long_as_any(tmp_path):
    video = numbered_video(tmp_path / f"{'a' * 251}.mp4", 10)  # "….en.srt" would be too long
    assert find_transcript(open_video(video)) is None
