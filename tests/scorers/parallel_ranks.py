"""Ranks two videos here and then in other processes, and prints what each found.

python parallel_ranks.py HOW SCORER STORE VIDEO VIDEO: HOW is fork or spawn, loader-fork or
loader-spawn, or datasets-fork.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import warnings

from framenest import MEC, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig
from processes import PATIENCE

QUESTIONS = ["the red dog", "what is written on the bottle?"]
SMALL = MECConfig(IndexConfig(base_probes=24, extra_probes=0), DiscoveryConfig(), RankingConfig(horizon=16))


class Rankings:
    """A dataset whose items are rankings, as torch's DataLoader takes one."""

    def __init__(self, mec: MEC, videos: list[str]) -> None:
        self.mec, self.videos = mec, videos

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, place: int) -> list[int]:
        return self.mec.rank(self.videos[place], QUESTIONS[place]).frames.tolist()


def in_loader(rankings: Rankings, method: str) -> list[list[int]]:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        rankings, num_workers=2, batch_size=None, multiprocessing_context=method, timeout=PATIENCE
    )
    return [list(map(int, frames)) for frames in loader]


def in_pool(rankings: Rankings, method: str) -> list[list[int]]:
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map_async(rankings.__getitem__, range(len(rankings)), chunksize=1).get(PATIENCE)


def in_datasets(rankings: Rankings, method: str) -> list[list[int]]:
    """Twice, the second time from the library's cache, which it finds by a hash of what is pickled."""
    from datasets import Dataset

    rows = Dataset.from_dict({"video": rankings.videos, "question": QUESTIONS})
    mec = rankings.mec

    def rank(row: dict[str, str]) -> dict[str, list[int]]:
        return {"frames": mec.rank(row["video"], row["question"]).frames.tolist()}

    first, second = (rows.map(rank, num_proc=2) for _ in range(2))
    assert first._fingerprint == second._fingerprint
    return first["frames"][:]


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
    how, scorer, store, *videos = sys.argv[1:]
    rankings = Rankings(MEC(SMALL, scorer, store=store, progress=False, ocr="none"), videos)
    rankings.mec.rank(videos[0], QUESTIONS[1])  # threads of models and libraries work from here on
    kind, _, method = how.rpartition("-")
    run = {"loader": in_loader, "datasets": in_datasets}.get(kind, in_pool)
    there = run(rankings, method)
    sys.stdout.write(json.dumps([there, [rankings[place] for place in range(len(videos))]]))
