"""How indexing time grows with the length of a video, with probes on the exact grid and on key frames.

    python benchmarks/growth.py FOOTAGE

Copies the footage's packets again and again into files of 5 minutes to 4 hours.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from clips import repeat
from machine import options, write

from framenest import MEC, IndexConfig, MECConfig
from framenest.cache.directory import DirectoryStore

MINUTES = (5, 15, 30, 60, 120, 240)


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
    parser = options(__doc__)
    parser.add_argument("footage", type=Path)
    main(parser.parse_args().footage)
