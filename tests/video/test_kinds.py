"""Streams of every kind come out upright, with square pixels, at one size."""

import av
import numpy as np
import pytest

from framenest import open_video
from media import encode_video, number_in, numbered_picture, numbered_video


def shapes_and_numbers(path, frames):
    found = [(b.frames, p) for b in open_video(path).read(frames) for p in b.pixels[0]]
    return {p.shape for _, p in found}, [number_in(p) for _, p in found]


@pytest.mark.parametrize(
    ("codec", "pix_fmt", "options"),
    [
        ("libx264", "yuv420p10le", {}),
        ("libx264", "yuv422p", {}),
        ("libx265", "yuv420p10le", {"x265-params": "log-level=none"}),
        ("libx264", "yuv420p", {"flags": "+ildct+ilme", "x264-params": "tff=1"}),  # interlaced
        ("libx264", "yuv420p", {"flags": "+ildct+ilme", "x264-params": "fake-interlaced=1"}),
        ("mjpeg", "yuvj420p", {}),
    ],
)
def test_bit_depths_chroma_and_interlacing(tmp_path, codec, pix_fmt, options):
    path = numbered_video(tmp_path / "v.mp4", 40, codec=codec, pix_fmt=pix_fmt, options=options)
    assert shapes_and_numbers(path, [0, 17, 39]) == ({(64, 96, 3)}, [0, 17, 39])


def test_hdr_is_decoded(tmp_path):
    """BT.2020 and PQ tags: pixels come out 8-bit RGB; no tone mapping is done."""
    params = "log-level=none:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc"
    path = numbered_video(
        tmp_path / "v.mp4", 20, codec="libx265", pix_fmt="yuv420p10le", options={"x265-params": params}
    )
    assert shapes_and_numbers(path, [0, 9, 19]) == ({(64, 96, 3)}, [0, 9, 19])


def test_a_stream_that_changes_its_size_comes_out_at_one_size(tmp_path):
    parts = []
    for first, (width, height) in ((0, (96, 64)), (20, (192, 128)), (40, (96, 64))):
        pictures = [numbered_picture(first + i, width, height) for i in range(20)]
        parts.append(encode_video(tmp_path / "part.h264", pictures, options={"g": "10"}).read_bytes())
    path = tmp_path / "sizes.h264"
    path.write_bytes(b"".join(parts))
    assert shapes_and_numbers(path, [0, 19, 20, 39, 40, 59]) == ({(64, 96, 3)}, [0, 19, 20, 39, 40, 59])


@pytest.mark.parametrize("tag", [1, 5])
def test_the_colour_matrix_in_the_stream_is_used(tmp_path, tag):
    """The same YUV triple is another colour in BT.709 than in BT.601."""
    path = tmp_path / "colour.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        stream.options = {"crf": "1"}
        stream.codec_context.colorspace = tag
        for _ in range(3):
            frame = av.VideoFrame(64, 64, "yuv420p")
            for plane, value in zip(frame.planes, (100, 100, 200), strict=True):
                plane.update(np.full(plane.buffer_size, value, np.uint8).tobytes())
            frame.colorspace = tag
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    pixel = next(open_video(path).read([1])).pixels[0][0][32, 32].astype(int)
    red = {1: 1.164 * 84 + 1.793 * 72, 5: 1.164 * 84 + 1.596 * 72}[tag]
    green = {1: 1.164 * 84 + 0.213 * 28 - 0.533 * 72, 5: 1.164 * 84 + 0.392 * 28 - 0.813 * 72}[tag]
    assert abs(pixel[0] - red) < 4
    assert abs(pixel[1] - green) < 4
