"""How the time to index grows with the length of the video, with probes on the exact grid and on key frames.

    python benchmarks/growth.py FOOTAGE

The footage's packets are copied, again and again, into files of 5 minutes to 4 hours; nothing is encoded.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import av
from machine import write

from framenest import MEC, IndexConfig, MECConfig
from framenest.cache.directory import DirectoryStore

MINUTES = (5, 15, 30, 60, 120, 240)


def repeat(footage: Path, path: Path, seconds: float) -> None:
    """Copy the footage's video packets until the file is long enough."""
    with av.open(str(path), "w") as target:
        stream, offset = None, 0
        while True:
            with av.open(str(footage)) as source:
                video = source.streams.video[0]
                stream = stream or target.add_stream_from_template(video)
                length = 0
                for packet in source.demux(video):
                    if packet.dts is None:
                        continue
                    length = max(length, packet.pts + packet.duration)
                    packet.pts += offset
                    packet.dts += offset
                    if packet.dts * video.time_base >= seconds and packet.is_keyframe:
                        return
                    packet.stream = stream
                    target.mux(packet)
                offset += length


def main(footage: Path) -> None:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for minutes in MINUTES:
            path = Path(folder) / f"{minutes}.mp4"
            repeat(footage, path, 60 * minutes)
            row: dict[str, Any] = {"minutes": minutes, "megabytes": path.stat().st_size / 1e6}
            for probing in ("uniform", "keyframes"):
                with tempfile.TemporaryDirectory() as store:
                    mec = MEC(MECConfig(IndexConfig(probing=probing)), None, store=store)
                    DirectoryStore(store).fingerprint(str(path))  # reads the file once; not measured
                    began = time.perf_counter()
                    index = mec.index(path)
                    row[probing] = {
                        "seconds": time.perf_counter() - began,
                        "timeline_seconds": mec.session.timing.seconds["timeline"],
                        "probes": len(index),
                        "largest_gap_seconds": index.largest_gap,
                    }
            path.unlink()
            rows.append(row)
            uniform, keys = row["uniform"], row["keyframes"]
            print(
                f"{minutes:4d} min: exact {uniform['seconds']:6.2f} s ({uniform['probes']} probes), "
                f"key frames {keys['seconds']:5.2f} s ({keys['probes']} probes, "
                f"at most {keys['largest_gap_seconds']:.1f} s apart)"
            )
    print(write("growth", {"rows": rows}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
