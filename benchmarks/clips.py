"""Videos that the benchmarks make: drifting noise, and longer files from the packets of shorter ones."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

DRIFT = 100


def noise(path: Path, size: tuple[int, int], frames: int, *, blur: int = 1, **encoder: str) -> None:
    """Drifting noise at 25 fps, hard to compress, so a heavy file.

    Args:
        path: where to write it, as H.264.
        size: width and height.
        frames: how many.
        blur: pixels per grain of noise.
        encoder: options of x264.
    """
    width, height = size
    grains = [-(-(side + DRIFT) // blur) for side in (height, width)]
    texture = np.random.default_rng(0).integers(0, 256, (*grains, 3), dtype=np.uint8)
    if blur > 1:
        larger = grains[1] * blur, grains[0] * blur
        texture = np.asarray(Image.fromarray(texture).resize(larger, Image.Resampling.BICUBIC))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt, stream.options = width, height, "yuv420p", encoder
        for i in range(frames):
            left, top = i % DRIFT, (i // 15) % DRIFT
            image = np.ascontiguousarray(texture[top : top + height, left : left + width])
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def repeat(footage: Path, path: Path, seconds: float, *, begin: float = 0.0, title: str = "") -> None:
    """Copy the footage's video packets again and again until the file is long enough; nothing is encoded.

    Args:
        footage: the video whose packets are copied.
        path: where to write them.
        seconds: length of the new file.
        begin: seconds at which the first copy starts, at the next key frame.
        title: metadata that tells the file from others.
    """
    with av.open(str(path), "w") as target:
        target.metadata["title"] = title
        stream, offset = None, 0
        while True:
            with av.open(str(footage)) as source:
                video = source.streams.video[0]
                stream = stream or target.add_stream_from_template(video)
                first, length = None, 0
                for packet in source.demux(video):
                    if packet.dts is None:
                        continue
                    if first is None:
                        if packet.pts * video.time_base < begin or not packet.is_keyframe:
                            continue
                        first = packet.dts
                    length = max(length, packet.pts + packet.duration - first)
                    packet.pts += offset - first
                    packet.dts += offset - first
                    if packet.dts * video.time_base >= seconds and packet.is_keyframe:
                        return
                    packet.stream = stream
                    target.mux(packet)
                offset, begin = offset + length, 0.0
