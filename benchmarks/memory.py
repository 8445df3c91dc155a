"""Peak memory of one worker, from 360p to 4K, and for a day of video at 60 fps.

    python benchmarks/memory.py            without a scorer, and with `tags` if its weights are here

Every number is the peak resident memory of a fresh process that does what a worker of `framenest index`
does, with one decoder thread. The videos are drifting noise; the day is one second of tiny frames, repeated.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from clips import noise
from machine import empty_cache, options, write

from framenest import models
from framenest.cache.directory import DirectoryStore
from framenest.corpus.batch_job import BatchJob, WorkItem
from framenest.rank_request import RankRequest

SIZES = {"360p": (640, 360), "720p": (1280, 720), "1080p": (1920, 1080), "4K": (3840, 2160)}
FRAMES = 300


def make_long(path: Path, hours: float, fps: int = 60) -> None:
    """One second of tiny frames, its packets copied until the video is long enough."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = {"preset": "ultrafast", "g": str(fps), "tune": "zerolatency"}
        packets = []
        for i in range(fps):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 4 * i, np.uint8), format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, fps)
            packets += stream.encode(frame)
        packets += stream.encode(None)
        second = [(bytes(packet), packet.pts, packet.time_base, packet.is_keyframe) for packet in packets]
        for start in range(0, int(3600 * hours) * fps, fps):
            for data, at, time_base, key in second:
                packet = av.Packet(data)
                packet.stream, packet.time_base, packet.is_keyframe = stream, time_base, key
                packet.pts = packet.dts = start + at
                packet.duration = 1
                container.mux_one(packet)


def child(video: str, store: str, scorer: str) -> None:
    """What a worker does with one video."""
    work = BatchJob(scorer=None if scorer == "none" else scorer, cache=store).open()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (outcome,) = work((WorkItem(RankRequest(video=video)),))
    if outcome.status != "done":
        raise SystemExit(outcome.text)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = sum(entry.size for entry in DirectoryStore(store).entries())
    print(json.dumps({"peak_mib": peak / 1024, "idle_mib": before / 1024, "stored_bytes": size}))


def measure(video: Path, scorer: str) -> dict[str, Any]:
    with empty_cache() as folder:
        command = [sys.executable, __file__, "--child", str(video), folder, scorer]
        environment = os.environ | {"FRAMENEST_THREADS": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def main() -> None:
    there = all(file.here(DirectoryStore()) for file in models.TAGS)
    scorers = ("none", "tags") if there else ("none",)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "video.mp4"
        for name, size in SIZES.items():
            noise(video, size, FRAMES, preset="ultrafast", crf="35", g="100", refs="4")
            rows[name] = {scorer: measure(video, scorer) for scorer in scorers}
            print(name, {scorer: f"{row['peak_mib']:.0f} MiB" for scorer, row in rows[name].items()})
        make_long(video, 24)
        day = measure(video, "none") | {"frames": 24 * 3600 * 60}
        print(f"24 h at 60 fps: {day['peak_mib']:.0f} MiB, {day['stored_bytes'] / 1e6:.1f} MB kept")
    print(write("memory", {"rows": rows, "day": day}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        options(__doc__).parse_args()
        main()
