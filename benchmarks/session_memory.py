"""Memory of one MEC object that ranks many videos: open videos, indexes and features share one LRU bound.

    python benchmarks/session_memory.py --videos 10000

Ranks clips made in memory, each another video, and notes the process's own memory after every 500 of them,
with two bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
from machine import options, write

from framenest import MEC, MECConfig, Session
from framenest.config import IndexConfig
from framenest.processes import own_memory
from framenest.testing import ArrayDecoder, TableScorer

STEP = 500
CONFIG = MECConfig(IndexConfig(base_probes=12, extra_probes=0))


class NothingKept:
    """A store that keeps nothing, so that only the session's own memory is measured."""

    def get(self, key: str) -> None:
        return None

    def put(self, key: str, header: Any, arrays: Any) -> None:
        pass


def curve(videos: int, memory: int) -> dict[str, Any]:
    """Resident MiB after every STEP videos."""
    mec = MEC(
        CONFIG, session=Session(TableScorer({0: 1.0, 1: 0.0, 23: 0.0}), store=NothingKept(), memory=memory)
    )
    rng = np.random.default_rng(0)
    found, began = [], time.perf_counter()
    for done in range(1, videos + 1):
        clip = rng.integers(0, 256, (24, 36, 64, 3), dtype=np.uint8)
        mec.rank(ArrayDecoder(clip, fps=4), "Where?")
        if done % STEP == 0:
            used = own_memory(os.getpid())
            found.append({"videos": done, "mib": round(used / 2**20, 1), "held": len(mec.session.held())})
    return {"bound_mib": memory / 2**20, "curve": found, "seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--videos", type=int, default=10_000)
    parser.add_argument("--bound", type=int, help=argparse.SUPPRESS)  # MiB, in a process of its own
    asked = parser.parse_args()
    if asked.bound:
        print(json.dumps(curve(asked.videos, asked.bound * 2**20)))
        return
    runs = []
    for bound in (256, 64):
        command = [sys.executable, __file__, "--videos", str(asked.videos), "--bound", str(bound)]
        runs.append(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
        print(f"bound {bound} MiB:", ", ".join(f"{row['mib']:.0f}" for row in runs[-1]["curve"]), "MiB")
    print(write("session_memory", {"videos": asked.videos, "runs": runs}))


if __name__ == "__main__":
    main()
