"""Small files that ask for much memory: each is refused in one line, before it has taken any."""

import struct
import zlib
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from framenest import MEC, VideoError, open_video
from framenest.frames import MOST_ELONGATED, check_image_size
from media import encode_video, numbered_video


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


def patch(path, kind, at, value):
    """Write a number into the body of the one box of this kind."""
    data = bytearray(path.read_bytes())
    assert data.count(kind) == 1
    place = data.index(kind) + 4 + at
    data[place : place + 4] = struct.pack(">I", value)
    path.write_bytes(data)


def claims_samples(path):
    numbered_video(path, 30)
    patch(path, b"stsz", 4, 1)  # one size for all
    patch(path, b"stsz", 8, 40_000_000)
    return path


def claims_samples_in_a_fragment(path):
    numbered_video(path, 30, container_options={"movflags": "empty_moov+default_base_moof+frag_keyframe"})
    patch(path, b"trun", 0, 0)  # no table
    patch(path, b"trun", 4, 40_000_000)
    return path


def claims_samples_in_a_packed_header(path):
    """As old QuickTime files have it: the whole header compressed."""
    data = claims_samples(path).read_bytes()
    start = data.index(b"moov") - 4
    (size,) = struct.unpack(">I", data[start : start + 4])
    moov = data[start : start + size]
    cmvd = box(b"cmvd", struct.pack(">I", len(moov)) + zlib.compress(moov))
    packed = box(b"moov", box(b"cmov", box(b"dcom", b"zlib") + cmvd))
    path.write_bytes(data[:start] + packed + data[start + size :])
    return path


def box(kind, body):
    return struct.pack(">I", 8 + len(body)) + kind + body


@pytest.mark.parametrize(
    "make", [claims_samples, claims_samples_in_a_fragment, claims_samples_in_a_packed_header]
)
def test_a_header_that_claims_more_samples_than_the_file_can_hold_is_refused(tmp_path, make):
    path = make(tmp_path / "claims.mov")
    with pytest.raises(VideoError, match=r"claims 40,000,000 samples, more than its .* can hold"):
        open_video(path)


def test_a_header_in_endless_parts_is_refused_and_a_deep_one_passes(tmp_path):
    from framenest.video.mp4 import _MOST_BOXES, check_sample_counts

    path = tmp_path / "parts.mp4"
    path.write_bytes(box(b"free", b"") * (_MOST_BOXES + 2))
    with path.open("rb") as file, pytest.raises(VideoError, match="more than 1,048,576 parts"):
        check_sample_counts("parts.mp4", file)
    deep = b""
    for _ in range(3000):
        deep = box(b"moov", deep)
    path.write_bytes(deep)
    with path.open("rb") as file:
        check_sample_counts("deep.mp4", file)


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
