"""Small files that ask for much memory: each is refused in one line, before it has taken any."""

import struct
import subprocess
import sys
import zlib
from fractions import Fraction
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import av
import numpy as np
import pytest
from fuzz import clips
from PIL import Image

import bombs
from command_line import run
from framenest import MEC, VideoError, open_video
from framenest.cache.directory import DirectoryStore
from framenest.frames import MOST_ELONGATED, check_image_size
from framenest.processes import WorkerProcess
from framenest.video import guarded_opening, pyav
from framenest.video.pyav import PyAVDecoder
from framenest.video.timeline import describe
from local_http import local_http
from media import encode_video


def video_of(size, folder):
    """A GIF of two frames."""
    path = folder / "v.gif"
    frames = [Image.new("P", size, colour) for colour in (0, 9)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=40)
    return path, {}


def images_of(size, folder):
    for name in ("1.png", "2.png"):
        Image.new("RGB", size).save(folder / name)
    return folder, {"fps": 5}


def array_of(size, folder):
    return np.zeros((2, size[1], size[0], 3), np.uint8), {"fps": 5}


@pytest.mark.parametrize("kind", [video_of, images_of, array_of])
@pytest.mark.parametrize("size", [(2, 32000), (1, 60000), (60000, 1)])
def test_elongated_pictures_are_refused(tmp_path, kind, size):
    source, settings = kind(size, tmp_path)
    with pytest.raises(
        VideoError, match=rf"frames of {size[0]}×{size[1]} are too elongated; .* 50 times"
    ) as told:
        open_video(source, **settings)
    assert "\n" not in str(told.value)


def test_elongated_by_the_shape_of_its_pixels(tmp_path):
    """16 by 400 pixels, each of them 9 times as high as wide."""
    pictures = [np.zeros((400, 16, 3), np.uint8)] * 2
    path = encode_video(tmp_path / "v.mp4", pictures, aspect=Fraction(1, 9))
    with pytest.raises(VideoError, match="too elongated"):
        open_video(path)


def test_pictures_as_elongated_as_allowed_are_ranked(tmp_path):
    frames = np.random.default_rng(0).integers(0, 255, (3, 4 * MOST_ELONGATED, 4, 3), np.uint8)
    ranking = MEC(scorer=None).rank(open_video(frames, fps=1), None)
    assert len(ranking.prefix(2)) == 2


@pytest.mark.parametrize("side", [20000, 40000])
def test_an_image_bomb_among_images_is_refused(tmp_path, side):
    """A black picture of 400 and of 1,600 megapixels; the second one Pillow does not even open."""
    Image.new("RGB", (8, 8)).save(tmp_path / "1.png")
    row = b"\0" + bytes(side // 8)
    data = zlib.compress(row * side, 9)
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    (tmp_path / "2.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )
    decoder = open_video(tmp_path, fps=1)
    with pytest.raises(VideoError, match=r"2\.png: (frames of 20000×20000 are too large|not an image)"):
        list(decoder.read([0, 1]))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_a_video_of_too_many_pixels_is_refused(tmp_path):
    path, _ = video_of((16, 16), tmp_path)
    data = bytearray(path.read_bytes())
    data[6:10] = struct.pack("<HH", 15000, 15000)
    path.write_bytes(data)
    with pytest.raises(VideoError, match="frames of 15000×15000 are too large; 134,217,728 pixels at most"):
        open_video(path)


def test_ordinary_sizes_pass():
    for size in ((15360, 8640), (7680, 160), (16, 16), (1, 50)):
        check_image_size("v.mp4", *size)


@pytest.mark.parametrize("name", bombs.MOVIES)
def test_a_header_bomb_is_refused_before_it_takes_gigabytes(guarded, tmp_path, name):
    path = tmp_path / "bomb.mov"
    path.write_bytes(bombs.MOVIES[name]())
    with pytest.raises(VideoError, match=r"bomb\.mov: opening it takes more than 1\.0\d GiB of memory$"):
        open_video(path)


@pytest.mark.parametrize("count", [2, 3])
def test_a_bomb_behind_a_whole_fragment_is_refused(guarded, tmp_path, count):
    """Fragments are read on the way, not when the file is opened."""
    path = tmp_path / "fragments.mp4"
    path.write_bytes(bombs.fragments(1))
    assert open_video(path).info.num_frames == 1
    path.write_bytes(bombs.fragments(count))
    with pytest.raises(VideoError, match=r"opening it takes more than 1\.00 GiB of memory$"):
        open_video(path)


def test_an_edit_list_that_repeats_a_few_bytes_is_refused(tmp_path):
    path = tmp_path / "edits.mov"
    path.write_bytes(bombs.repeated())
    with pytest.raises(VideoError, match=r"edits\.mov: it has more packets than bytes$"):
        open_video(path)


def test_endless_packets_that_do_not_decode_are_not_all_tried(tmp_path):
    path = tmp_path / "bytes.mov"
    path.write_bytes(bombs.movie(bombs.track(500_000), data=bytes(500_000)))
    with pytest.raises(VideoError, match=r"none of its first 65,536 packets can be decoded$"):
        open_video(path)


def test_processor_time_is_limited(guarded, tmp_path, monkeypatch):
    monkeypatch.setattr(guarded_opening, "OPENING_BYTES", 2**40)
    monkeypatch.setattr(guarded_opening, "OPENING_SECONDS", 1)
    monkeypatch.setattr(guarded_opening, "BYTES_PER_SECOND", 2**40)
    path = tmp_path / "bomb.mov"
    path.write_bytes(bombs.MOVIES["edit list"]())
    with pytest.raises(VideoError, match=r"opening it takes more than 1 s of processor time$"):
        open_video(path)


def test_bombs_in_memory_and_at_an_address_are_refused_too(guarded, tmp_path, cache):
    data = bombs.MOVIES["claimed"]()
    with pytest.raises(VideoError, match=r"^upload: opening it takes more than"):
        PyAVDecoder.of_bytes(data, "upload", DirectoryStore(cache))

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            part = data[int(first) : int(last or len(data)) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, *_):
            pass

    with (
        local_http(Answers) as port,
        pytest.raises(VideoError, match=r"^http://.*/a\.mov: opening it takes more than"),
    ):
        open_video(f"http://127.0.0.1:{port}/a.mov")


def test_the_command_line_refuses_a_bomb_in_one_line(guarded, tmp_path, capsys):
    path = tmp_path / "bomb.mov"
    path.write_bytes(bombs.MOVIES["claimed in edts"]())
    code, _, err = run(capsys, "rank", path, "--no-question", "--scorer", "none")
    assert (code, err.count("\n")) == (2, 1)
    assert "opening it takes more than 1.00 GiB of memory" in err


def test_a_process_that_breaks_breaks_no_other(guarded, clip, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(VideoError, match=r"clip\.mp4: the process that opens it ended with code 1$"):
        open_video(clip)


def test_what_is_found_in_another_process_is_the_same(guarded, tmp_path, monkeypatch):
    found = {}
    for inside in (False, True):
        monkeypatch.setattr(WorkerProcess, "inside", inside)
        for path in clips(tmp_path):
            decoder = open_video(path, store=DirectoryStore(tmp_path / str(inside)))
            parts = [getattr(decoder.timeline, name).tolist() for name in ("pts", "pos", "key", "packet")]
            assert found.setdefault(path.name, (decoder.info.to_json(), parts)) == (
                decoder.info.to_json(),
                parts,
            )


def test_a_known_video_is_not_opened_in_another_process(guarded, clip, cache, monkeypatch):
    open_video(clip)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert open_video(clip).info.num_frames == 300


def test_a_file_that_takes_much_memory_gets_one_reader(clip, monkeypatch):
    decoder = open_video(clip)
    asked = []
    monkeypatch.setattr(pyav, "in_parallel", lambda _, readers, __: asked.append(len(readers)) or [])
    monkeypatch.setattr(pyav, "cores", lambda: 4)
    header, arrays = describe(decoder.source)
    list(PyAVDecoder(decoder.source, header, arrays).read(range(0, 300, 50)))
    large = PyAVDecoder(decoder.source, header | {"memory": 2**40}, arrays)
    assert (asked, sum(map(len, large.read(range(0, 300, 50))))) == ([4], 6)


_MEMORY = """
import sys
from framenest import ImageSpec, open_video
decoder = open_video(sys.argv[1])
sizes = (None,) if sys.argv[2] == "full" else (ImageSpec.short_side(32),)
print(sum(len(batch) for batch in decoder.read(range(decoder.info.num_frames), sizes=sizes)))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("size", [(8191, 8191), (57000, 1150)])
@pytest.mark.parametrize("kind", ["full", "small"])
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_kilobyte_of_large_frames_does_not_take_gigabytes(tmp_path, cache, size, damaged, kind):
    """Each frame has 268 MB, and 20 of them would have 5 GB."""
    path = bombs.large_gif(tmp_path / "large.gif", *size)
    if damaged:
        data = bytearray(path.read_bytes())
        data[-60:-40] = bytes(20)
        path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(path), kind], capture_output=True, text=True, check=True
    )
    frames, kibibytes = map(int, done.stdout.split())
    assert frames >= 18
    assert kibibytes < 2**21


def test_images_are_not_read_whole_to_hash_them(tmp_path):
    """A sparse file of 6 GiB."""
    images_of((8, 8), tmp_path)
    with (tmp_path / "2.png").open("r+b") as file:
        file.truncate(6 * 2**30)
    with pytest.raises(VideoError, match=r"2\.png: 6\.00 GiB; an image may have 512\.0 MiB$"):
        open_video(tmp_path, fps=5)


def test_an_image_with_a_bomb_of_text_is_left_out(tmp_path):
    """20 MB of text in a few kilobytes, which Pillow refuses with a ValueError."""
    images_of((8, 8), tmp_path)
    data = (tmp_path / "2.png").read_bytes()
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(20_000_000)))
    (tmp_path / "2.png").write_bytes(data[:33] + text + data[33:])
    batches = list(open_video(tmp_path, fps=5).read([0, 1]))
    assert [frame for batch in batches for frame in batch.frames] == [0]


def test_uncompressed_sound_in_a_truncated_file_is_no_claim(tmp_path):
    """Half a minute of sound is more than a million samples, all of one size."""
    path = tmp_path / "sound.mov"
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        video = container.add_stream("mjpeg", rate=5)
        video.width = video.height = 64
        video.pix_fmt = "yuvj420p"
        sound = container.add_stream("pcm_s16le", rate=48000)
        for number in range(150):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), number, np.uint8), format="rgb24")
            container.mux(video.encode(frame))
            samples = av.AudioFrame.from_ndarray(np.zeros((1, 2 * 9600), np.int16), "s16", "stereo")
            samples.rate = 48000
            container.mux(sound.encode(samples))
        for stream in (video, sound):
            container.mux(stream.encode(None))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert 50 < open_video(path).info.num_frames < 100
