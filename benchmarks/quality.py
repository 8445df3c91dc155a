"""Every quality table of docs/evaluation.md: who finds the evidence, by budget and by quality of the scorer.

    python benchmarks/quality.py qa.json --timelines intervals.json --seeds 8

Measured on the reporting half of the questions, which set no constant of any rule (`--part`). Writes
results/quality.json, after every question set and scorer anew, and prints Markdown.
"""

from __future__ import annotations

import os

# Each of --jobs is one core's work.
os.environ.update(OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import numpy as np
from machine import RESULTS, write

from framenest import MEC, Session
from framenest.evaluation import recall
from framenest.evaluation.grounded_questions import load_questions
from framenest.evaluation.recall_run import collect
from framenest.evaluation.timeline_decoder import NoStore
from framenest.method.discovery import zoom
from framenest.selectors.scored_candidates import every_second

BUDGETS = (2, 4, 8, 16, 32, 64, 128, 256)
SELECTORS = {
    "uniform": "uniform",
    "aks": "aks",
    "wfs-sb": "wfs-sb",
    "min-gap": "min-gap",
    "mec": "mec",
    "mec:residual": "mec:residual",
}
PAIRS = (("mec:residual", "mec"), ("mec:residual", "min-gap"))
RATIOS = (1, 2, 0, 4)  # the most telling first

Numbers = dict[str, list[float]]
"""By budget, and "mean" over all: the mean over questions and its 95 % interval."""


def measure(file: str, kind: str, videos: str | None, scorer: str, seeds: int, part: Any) -> dict[str, Any]:
    """All numbers of one question set with one scorer."""
    questions = load_questions(file, kind=kind, videos=videos, part=part)
    session = Session(scorer, store=NoStore() if kind == "timeline" else None)
    outcomes = collect(questions, SELECTORS, BUDGETS, session, seeds=seeds)
    hits = {name: by_budget(rows, "hit", seeds) for name, rows in outcomes.items()}
    several = np.array([len(question.intervals) > 1 for question in questions])
    found = {}
    for name, rows in outcomes.items():
        found[name] = {"hit": with_intervals(hits[name])}
        if several.any():
            covered = by_budget(rows, "covered", seeds)[several].mean(axis=0)
            found[name]["covered_of_several"] = dict(zip(map(str, BUDGETS), rounded(covered), strict=True))
        if kind != "timeline":
            looks = {str(k): recall.by_question(rows, k, "near_duplicates", seeds).mean() for k in (8, 16)}
            found[name]["near_duplicates"] = {k: round(float(share), 4) for k, share in looks.items()}
    return {
        "scorer": scorer,
        "questions": len(questions),
        "with_several_intervals": int(several.sum()),
        "videos": len({question.video for question in questions}),
        "seeds": seeds,
        "selectors": found,
        "differences": {f"{one} - {other}": with_intervals(hits[one] - hits[other]) for one, other in PAIRS},
    }


def decode(file: str, videos: str | None, part: Any) -> None:
    """Decode every frame that noisy truth may ask for, once; each seed zooms elsewhere."""
    session = Session("noisy-truth:0")
    mec = MEC(session=session)
    for video in dict.fromkeys(question.video for question in load_questions(file, videos=videos, part=part)):
        decoder, index = session.open(video), mec.index(video)
        zoomed = zoom(index.frames, list(range(len(index))), mec.config.discovery.zoom)
        grid = every_second(decoder.info.num_frames, decoder.info.fps)
        cache = session.features(decoder, session.scorer, mec.config.index.thumbnail)
        cache.see(np.union1d(zoomed, grid), "frames")


def kept(wanted: dict[str, Any], part: str) -> dict[str, Any]:
    """Sets of an earlier run of the same part and as many seeds, to go on after an interruption."""
    before = json.loads((RESULTS / "quality.json").read_text())
    sets = before["sets"] if before["part"] == part else {}
    return {t: found for t, found in sets.items() if t in wanted and found["seeds"] == wanted[t][4]}


def by_budget(rows: Sequence[recall.RecallOutcome], measure: str, seeds: int) -> recall.Seconds:
    """(n, budgets) a measure of every question, the mean over its seeds."""
    return np.stack([recall.by_question(rows, k, measure, seeds) for k in BUDGETS], axis=1)


def with_intervals(values: recall.Seconds) -> Numbers:
    """The mean over questions at each budget and over all budgets, with intervals. values: (n, budgets)."""
    columns = {str(k): values[:, at] for at, k in enumerate(BUDGETS)} | {"mean": values.mean(axis=1)}
    return {name: rounded([one.mean(), *recall.interval_of_mean(one)]) for name, one in columns.items()}


def rounded(values: Sequence[float] | recall.Seconds) -> list[float]:
    return [round(float(value), 4) for value in values]


def markdown(sets: dict[str, Any]) -> str:
    """The tables of all sets."""
    parts = []
    for title, found in sets.items():
        parts.append(f"### {title}: {found['questions']} questions, {found['seeds']} seeds\n")
        parts.append(table("hit@K", [*map(str, BUDGETS), "mean"], found["selectors"], hit_cells))
        if "near_duplicates" in found["selectors"]["mec"]:
            parts.append(table("near-duplicates", ["8", "16"], found["selectors"], duplicate_cells))
        if found["with_several_intervals"]:
            parts.append(table("covered", [*map(str, BUDGETS)], found["selectors"], covered_cells))
        parts.append(
            table("difference", [*map(str, BUDGETS), "mean"], found["differences"], difference_cells)
        )
    return "\n".join(parts)


def table(corner: str, columns: Sequence[str], rows: dict[str, Any], cells: Any) -> str:
    head = f"| {corner} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}\n"
    return head + "".join(f"| `{name}` | {' | '.join(cells(row))} |\n" for name, row in rows.items())


def hit_cells(row: dict[str, Any]) -> list[str]:
    return [f"{value[0]:.3f}" if key == "mean" else f"{value[0]:.2f}" for key, value in row["hit"].items()]


def duplicate_cells(row: dict[str, Any]) -> list[str]:
    return [f"{share:.3f}" for share in row["near_duplicates"].values()]


def covered_cells(row: dict[str, Any]) -> list[str]:
    return [f"{share:.2f}" for share in row["covered_of_several"].values()]


def difference_cells(row: Numbers) -> list[str]:
    return [f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]" for mean, low, high in row.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("questions", help="a question set with videos")
    parser.add_argument("--videos", help="their folder; by default the file's own")
    parser.add_argument("--timelines", help="intervals without videos")
    parser.add_argument("--seeds", type=int, default=8, help="draws of the noise on the question set")
    parser.add_argument("--timeline-seeds", type=int, default=1)
    parser.add_argument("--part", default="report", choices=["tune", "report", "all"])
    parser.add_argument("--keep", action="store_true", help="what was measured with as many seeds before")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    noisy = {ratio: f"noisy-truth:{ratio}" for ratio in RATIOS}
    on_videos = given.questions, "framenest", given.videos
    wanted = {"videos, tags": (*on_videos, "tags", 1, given.part)}
    for ratio, scorer in noisy.items():
        wanted[f"videos, SNR {ratio}"] = (*on_videos, scorer, given.seeds, given.part)
    for ratio, scorer in noisy.items() if given.timelines else ():
        seeds = given.timeline_seeds
        wanted[f"timelines, SNR {ratio}"] = (given.timelines, "timeline", None, scorer, seeds, given.part)
    decode(given.questions, given.videos, given.part)
    done: dict[str, Any] = kept(wanted, given.part) if given.keep else {}
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        left = {title: settings for title, settings in wanted.items() if title not in done}
        running = {pool.submit(measure, *settings): title for title, settings in left.items()}
        for future in as_completed(running):
            done[running[future]] = future.result()
            ordered = {title: done[title] for title in sorted(done)}
            write("quality", {"part": given.part, "budgets": list(BUDGETS), "sets": ordered})
            print(f"{running[future]}: done", file=sys.stderr)
    print(markdown(json.loads((RESULTS / "quality.json").read_text())["sets"]))


if __name__ == "__main__":
    main()
