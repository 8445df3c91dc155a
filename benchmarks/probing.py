"""What probing on key frames costs in recall: questions whose answer lies in known intervals.

    python benchmarks/probing.py QUESTIONS.json

The file is a list of {"video", "question", "intervals": [[start, end], …]}, videos relative to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from machine import options, write

from framenest import MEC, IndexConfig, MECConfig, Ranking

BUDGETS = (4, 8, 16, 32, 64, 128, 256)


def hit(ranking: Ranking, intervals: list[list[float]], budget: int) -> bool:
    """Whether one of the first frames lies in an interval."""
    seconds = ranking.seconds[:budget]
    return any(((start <= seconds) & (seconds <= end)).any() for start, end in intervals)


def main(file: Path) -> None:
    questions = json.loads(file.read_text())
    result: dict[str, Any] = {"questions": len(questions), "scorer": "tags", "hit": {}}
    for probing in ("uniform", "keyframes"):
        mec = MEC(MECConfig(IndexConfig(probing=probing)), "tags")
        hits, probes = [], []
        for entry in questions:
            ranking = mec.rank(file.parent / entry["video"], entry["question"])
            hits.append([hit(ranking, entry["intervals"], k) for k in BUDGETS])
            probes.append(ranking.stats.probes)
        shares = dict(zip(map(str, BUDGETS), np.mean(hits, axis=0).round(4).tolist(), strict=True))
        result["hit"][probing] = shares
        result[f"{probing}_probes"] = float(np.mean(probes))
        print(probing, " ".join(f"K={k} {share:.2f}" for k, share in shares.items()), flush=True)
    print(write("probing", result))


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("questions", type=Path)
    main(parser.parse_args().questions)
