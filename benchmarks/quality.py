"""Every quality table of docs/evaluation.md: who finds the evidence, by budget and by quality of the scorer.

    python benchmarks/quality.py qa.json --timelines intervals.json --seeds 8

Measured on the reporting half of the questions, which set no constant of any rule (`--part`). Writes
results/quality.json, after every question set and scorer anew, and prints the tables.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from machine import RESULTS, options, write

from framenest import MEC, Session
from framenest.config import ScorerConfig
from framenest.evaluation import recall
from framenest.evaluation.grounded_questions import NoStore, load_questions
from framenest.evaluation.recall import collect
from framenest.method.discovery import zoom
from framenest.selectors.built_in import every_second

BUDGETS = (2, 4, 8, 16, 32, 64, 128, 256)
SELECTORS = {
    "uniform": "uniform",
    "aks": "aks",
    "wfs-sb": "wfs-sb",
    "min-gap": "min-gap",
    "mec": "mec",
    "mec:residual": "mec:residual",
}
NOT_READING = "mec:residual+written=false"
"""The same without text on screen, which no other selector reads; with `tags` alone."""
PAIRS = (("mec:residual", "mec"), ("mec:residual", "min-gap"))
RATIOS = (1, 2, 0, 4)  # the most telling first
PIECE = 50  # questions that a process works on at a time

Numbers = dict[str, list[float]]
"""By budget, and "mean" over all: the mean over questions and its 95 % interval."""


def outcomes_of(
    first: int, file: str, kind: str, videos: str | None, scorer: str, seeds: int, part: Any
) -> dict[str, list[recall.RecallOutcome]]:
    """What every selector finds for the questions of a piece, from the first one on."""
    questions = load_questions(file, kind=kind, videos=videos, part=part)[first : first + PIECE]
    scoring = ScorerConfig(ocr="auto" if scorer == "tags" else "none")  # noisy truth knows what is written
    session = Session(scorer, store=NoStore() if kind == "timeline" else None, scoring=scoring)
    selectors = SELECTORS | ({NOT_READING: NOT_READING} if scorer == "tags" else {})
    return collect(questions, selectors, BUDGETS, session, seeds=seeds)


def measure(
    pieces: Sequence[dict[str, list[recall.RecallOutcome]]],
    file: str,
    kind: str,
    videos: str | None,
    scorer: str,
    seeds: int,
    part: Any,
) -> dict[str, Any]:
    """All numbers of one question set with one scorer. pieces: what `outcomes_of` found, in order."""
    questions = load_questions(file, kind=kind, videos=videos, part=part)
    outcomes = {name: [row for piece in pieces for row in piece[name]] for name in pieces[0]}
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
        cache.get(np.union1d(zoomed, grid), "frames")


def kept(wanted: dict[str, Any], part: str) -> dict[str, Any]:
    """Sets of an earlier run of the same part and as many seeds, to go on after an interruption."""
    before = json.loads((RESULTS / "quality.json").read_text())
    sets = before["sets"] if before["part"] == part else {}
    return {t: found for t, found in sets.items() if t in wanted and found["seeds"] == wanted[t][4]}


def by_budget(rows: Sequence[recall.RecallOutcome], measure: str, seeds: int) -> recall.Floats:
    """(n, budgets) a measure of every question, the mean over its seeds."""
    return np.stack([recall.by_question(rows, k, measure, seeds) for k in BUDGETS], axis=1)


def with_intervals(values: recall.Floats) -> Numbers:
    """The mean over questions at each budget and over all budgets, with intervals. values: (n, budgets)."""
    columns = {str(k): values[:, at] for at, k in enumerate(BUDGETS)} | {"mean": values.mean(axis=1)}
    return {name: rounded([one.mean(), *recall.interval_of_mean(one)]) for name, one in columns.items()}


def rounded(values: Sequence[float] | recall.Floats) -> list[float]:
    return [round(float(value), 4) for value in values]


def tables(sets: dict[str, Any]) -> dict[str, str]:
    """The tables of docs/evaluation.md, by the names in its markers; it leaves out two of them."""
    videos = {title.removeprefix("videos, "): one for title, one in sets.items() if "videos" in title}
    hits = {name: {t: one["selectors"][name]["hit"] for t, one in sets.items()} for name in SELECTORS}
    blocks = {
        "mean-hit": table(
            "mean hit", sets, {n: [f"{one['mean'][0]:.3f}" for one in hits[n].values()] for n in hits}
        ),
        "differences": table(
            "residual minus",
            [f"`{other}`" for _, other in PAIRS],
            {
                t: [difference(of["differences"][" - ".join(p)]["mean"]) for p in PAIRS]
                for t, of in sets.items()
            },
        ),
    }
    for title in ("videos, SNR 1", "videos, tags", "timelines, SNR 1"):
        if title in sets:
            found = {name: one["hit"] for name, one in sets[title]["selectors"].items()}
            rows = {name: [*by_k(hit), f"{hit['mean'][0]:.3f}"] for name, hit in found.items()}
            blocks[title.lower().replace(", ", "-").replace(" ", "-")] = table(
                "hit@K", [*map(str, BUDGETS), "mean"], rows
            )
    columns = [f"{title}, K={k}" for title in videos for k in (8, 16)]
    doubles = {n: [one["selectors"][n]["near_duplicates"] for one in videos.values()] for n in SELECTORS}
    rows = {n: [f"{shares[k]:.2f}" for shares in doubles[n] for k in ("8", "16")] for n in doubles}
    blocks["near-duplicates"] = table("near-duplicates", columns, rows)
    several = {n: [one["selectors"][n]["covered_of_several"] for one in videos.values()] for n in SELECTORS}
    rows = {n: [f"{np.mean([*shares.values()]):.3f}" for shares in several[n]] for n in several}
    blocks["covered"] = table("covered, mean over K", videos, rows)
    return blocks


def table(corner: str, columns: Iterable[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table; names of selectors in rows as code."""
    names = {name: f"`{name}`" if name in (*SELECTORS, NOT_READING) else name for name in rows}
    lines = [[corner, *columns], *([names[name], *cells] for name, cells in rows.items())]
    head, *body = (f"| {' | '.join(cells)} |\n" for cells in lines)
    return head + "|" + "---|" * len(lines[0]) + "\n" + "".join(body)


def by_k(hit: Numbers) -> list[str]:
    return [f"{hit[str(k)][0]:.2f}" for k in BUDGETS]


def difference(values: Sequence[float]) -> str:
    mean, low, high = values
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("questions", help="a question set with videos")
    parser.add_argument("--videos", help="their folder; by default the file's own")
    parser.add_argument("--timelines", help="intervals without videos")
    parser.add_argument("--seeds", type=int, default=8, help="draws of the noise on the question set")
    parser.add_argument("--timeline-seeds", type=int, default=8)
    parser.add_argument("--part", default="report", choices=["tune", "report", "all"])
    parser.add_argument("--keep", action="store_true", help="what was measured with as many seeds before")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    # For the processes to come: each of them is one core's work.
    os.environ.update(OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")
    noisy = {ratio: f"noisy-truth:{ratio}" for ratio in RATIOS}
    on_videos = given.questions, "framenest", given.videos
    wanted = {"videos, tags": (*on_videos, "tags", 1, given.part)}
    for ratio, scorer in noisy.items():
        wanted[f"videos, SNR {ratio}"] = (*on_videos, scorer, given.seeds, given.part)
    for ratio, scorer in noisy.items() if given.timelines else ():
        seeds = given.timeline_seeds
        wanted[f"timelines, SNR {ratio}"] = (given.timelines, "timeline", None, scorer, seeds, given.part)
    done: dict[str, Any] = kept(wanted, given.part) if given.keep else {}
    left = {title: settings for title, settings in wanted.items() if title not in done}
    if any(kind != "timeline" for _, kind, *_ in left.values()):
        decode(given.questions, given.videos, given.part)
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        running = {}
        for title, (file, kind, videos, *_) in left.items():
            count = len(load_questions(file, kind=kind, videos=videos, part=given.part))
            running[title] = [pool.submit(outcomes_of, at, *left[title]) for at in range(0, count, PIECE)]
        for title, pieces in running.items():
            done[title] = measure([piece.result() for piece in pieces], *left[title])
            ordered = {title: done[title] for title in sorted(done)}
            write("quality", {"part": given.part, "budgets": list(BUDGETS), "sets": ordered})
            print(f"{title}: done", file=sys.stderr)
    print("\n".join(tables(json.loads((RESULTS / "quality.json").read_text())["sets"]).values()))


if __name__ == "__main__":
    main()
