"""Exact frames by number: Framenest beside decord, OpenCV, torchcodec and PyAV used the plain way.

    pip install -e '.[bench]'
    python benchmarks/decoding.py FOOTAGE [--quick]

FOOTAGE is a long real video; it is measured itself, and re-encoded at other sizes and codecs. Every
library reads the same frame numbers in a process of its own. The rivals return full-size RGB arrays,
as their users get them; Framenest returns a 32-pixel thumbnail and a 224-pixel copy of each frame, as
its index needs them, and, in a row of its own, full-size frames. All frames are compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from machine import options, write
from PIL import Image
from rich.console import Console
from rich.table import Table

from framenest.cache.directory import DirectoryStore
from framenest.config import IndexConfig
from framenest.frames import ImageSpec
from framenest.method.index import choose_probes, probe_grid
from framenest.video.opening import open_video

SMALL = (ImageSpec.short_side(32), ImageSpec.squash(224, 224))


def thumbnail(pixels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Gray, 32 by 18: enough to tell one frame from another."""
    return np.asarray(Image.fromarray(pixels).convert("L").resize((32, 18), Image.Resampling.BOX))


def framenest_small(path: str, frames: list[int]) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        video = open_video(path, store=DirectoryStore(folder))
        return [p for batch in video.read(frames, sizes=SMALL) for p in batch.pixels[1]]


def framenest_full(path: str, frames: list[int]) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        video = open_video(path, store=DirectoryStore(folder))
        return [thumbnail(p) for batch in video.read(frames) for p in batch.pixels[0]]


def framenest_keys(path: str, frames: list[int]) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        video = open_video(path, store=DirectoryStore(folder))
        config = IndexConfig(base_probes=len(frames), extra_probes=0, probing="keyframes")
        probes = choose_probes(video, config)[1]
        return [p for batch in video.read(probes, sizes=SMALL) for p in batch.pixels[1]]


def decord(path: str, frames: list[int]) -> list[Any]:
    import decord

    reader = decord.VideoReader(path, num_threads=0)
    return [thumbnail(reader[number].asnumpy()) for number in frames]


def decord_batch(path: str, frames: list[int]) -> list[Any]:
    import decord

    reader = decord.VideoReader(path, num_threads=0)
    found = []
    for at in range(0, len(frames), 32):
        found += [thumbnail(p) for p in reader.get_batch(frames[at : at + 32]).asnumpy()]
    return found


def opencv(path: str, frames: list[int]) -> list[Any]:
    import cv2

    capture = cv2.VideoCapture(path)
    found = []
    for number in frames:
        capture.set(cv2.CAP_PROP_POS_FRAMES, number)
        found.append(thumbnail(np.ascontiguousarray(capture.read()[1][..., ::-1])))
    return found


def _torchcodec(path: str, frames: list[int], mode: Any) -> list[Any]:
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(path, seek_mode=mode, num_ffmpeg_threads=0, dimension_order="NHWC")
    found = []
    for at in range(0, len(frames), 32):
        found += [thumbnail(p) for p in decoder.get_frames_at(frames[at : at + 32]).data.numpy()]
    return found


def torchcodec_exact(path: str, frames: list[int]) -> list[Any]:
    return _torchcodec(path, frames, "exact")


def torchcodec_approximate(path: str, frames: list[int]) -> list[Any]:
    return _torchcodec(path, frames, "approximate")


def pyav_plain(path: str, frames: list[int]) -> list[Any]:
    """Seek to the time of each frame, decode on to it."""
    found = []
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        rate, base = stream.average_rate, stream.time_base
        for number in frames:
            wanted = round(number / rate / base) + (stream.start_time or 0)
            container.seek(wanted, stream=stream)
            frame = next(f for f in container.decode(stream) if f.pts + 0.5 / float(rate * base) > wanted)
            found.append(thumbnail(frame.to_ndarray(format="rgb24")))
    return found


LIBRARIES = {
    "framenest": framenest_small,
    "framenest, full size": framenest_full,
    "framenest, key frames": framenest_keys,
    "decord, one by one": decord,
    "decord, get_batch": decord_batch,
    "opencv": opencv,
    "torchcodec, exact": torchcodec_exact,
    "torchcodec, approximate": torchcodec_approximate,
    "pyav, seek to each": pyav_plain,
}


def child(library: str, path: str, count: str, out: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        total = open_video(path, store=DirectoryStore(folder)).info.num_frames
    frames = probe_grid(0, total - 1, int(count)).tolist()
    began, began_cpu = time.perf_counter(), os.times()
    found = LIBRARIES[library](path, frames)
    wall, cpu = time.perf_counter() - began, os.times()
    spent = cpu.user + cpu.system - began_cpu.user - began_cpu.system
    pictures = [p if p.ndim == 2 else thumbnail(p) for p in found]
    np.save(out, np.stack(pictures))
    print(json.dumps({"wall_seconds": wall, "cpu_seconds": spent, "frames": len(found)}))


def run(library: str, path: Path, count: int, out: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", library, str(path), str(count), str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": "no answer within 600 s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["crashed"])[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def encode(
    footage: Path, path: Path, seconds: int, size: tuple[int, int], codec: str, options: dict[str, str]
) -> None:
    """Re-encode the middle of the footage."""
    with tempfile.TemporaryDirectory() as folder:
        video = open_video(footage, store=DirectoryStore(folder))
        first = int(video.info.num_frames * 0.4)
        last = min(video.info.num_frames, first + round(seconds * video.info.fps))
        with av.open(str(path), "w") as container:
            stream = container.add_stream(codec, rate=25)
            stream.width, stream.height, stream.pix_fmt, stream.options = *size, "yuv420p", options
            number = 0
            for batch in video.read(range(first, last), sizes=(ImageSpec.squash(*size, "bicubic"),)):
                for pixels in batch.pixels[0]:
                    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                    frame.pts, frame.time_base = number, Fraction(1, 25)
                    container.mux(stream.encode(frame))
                    number += 1
            container.mux(stream.encode(None))


MADE = {
    "720p, x264, default GOP": (120, (1280, 720), "libx264", {"preset": "veryfast"}, "mp4"),
    "1080p, x264, 2 s GOP": (60, (1920, 1080), "libx264", {"preset": "veryfast", "g": "50"}, "mp4"),
    "1080p, x264, default GOP": (60, (1920, 1080), "libx264", {"preset": "veryfast"}, "mp4"),
    "360p, HEVC": (
        90,
        (640, 360),
        "libx265",
        {"preset": "ultrafast", "x265-params": "log-level=none"},
        "mp4",
    ),
    "360p, VP9": (90, (640, 360), "libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}, "webm"),
}


def measure(path: Path, count: int, folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for library in LIBRARIES:
        results[library] = run(library, path, count, folder / f"{library}.npy")
    ours = np.load(folder / "framenest, full size.npy").astype(float)
    for library, result in results.items():
        if "failed" in result or library in ("framenest", "framenest, key frames"):
            continue
        theirs = np.load(folder / f"{library}.npy").astype(float)
        result["other_frames"] = int((np.abs(theirs - ours).mean(axis=(1, 2)) > 4).sum())
    base = results["decord, one by one"].get("wall_seconds")
    for result in results.values():
        if base and "failed" not in result:
            result["times_faster_than_decord"] = base / result["wall_seconds"]
    return results


def show(console: Console, name: str, results: dict[str, Any]) -> None:
    table = Table(title=name, title_justify="left")
    for heading in ("", "frames", "wall s", "CPU s", "× decord", "other frames"):
        table.add_column(heading, justify="left" if not heading else "right")
    for library, r in results.items():
        if "failed" in r:
            table.add_row(library, r["failed"])
            continue
        ratio = r.get("times_faster_than_decord")
        row = [str(r["frames"]), f"{r['wall_seconds']:.2f}", f"{r['cpu_seconds']:.1f}"]
        table.add_row(library, *row, f"{ratio:.1f}" if ratio else "", str(r.get("other_frames", "")))
    console.print(table)


def main(footage: Path, quick: bool) -> None:
    console = Console(width=110)
    everything: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        everything["the footage itself"] = measure(footage, 128 if quick else 512, Path(folder))
        show(console, f"the footage itself, {footage.name}", everything["the footage itself"])
        for name, (seconds, size, codec, options, suffix) in MADE.items():
            path = Path(folder) / f"made.{suffix}"
            encode(footage, path, seconds // 6 if quick else seconds, size, codec, options)
            everything[name] = measure(path, 32 if quick else 128, Path(folder))
            show(console, name, everything[name])
    if not quick:
        print(write("decoding", {"files": everything}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        parser = options(__doc__)
        parser.add_argument("footage", type=Path)
        parser.add_argument("--quick", action="store_true", help="fewer frames; writes no result")
        main(**vars(parser.parse_args()))
