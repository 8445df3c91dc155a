"""Does search find the right videos and moments? On a made library, and on real videos if there are any.

    python benchmarks/search_quality.py --folder library --seeds 4
    python benchmarks/search_quality.py --folder library --data FOLDER

The library: search_library.py. `--data`: a folder with a question set, qa.json; its videos join the library
of seed 0, and its questions are the queries. The ways share the scorer's vectors of the same probes:

- mean: the mean vector of a video; the moment is the whole video.
- best frame: the best frame of a video, and 1.75 s before and after it (the mean shot has 3.5 s).
- stage one: the best frame, and the stretch around it that search would take.
- both stages: search as it is.
- uncut: the same, with ten rows even if none of them clearly matches, sorted by score alone.

recall@K: a relevant video is among the first K. NDCG@10: TVR-Ranking's, gain 2^grade - 1, a moment counts
with the grade of the true one that it overlaps most, if IoU is 0.3 or more; each true one counts once. 95 %
bootstrap intervals over queries. "searched": how many queries have a row that clearly matches, and whether
the first one is right; "absent" are those of match_questions.json ("searches"), for things in no video under
ten minutes, of which every second one was used to choose the rule ("tune").

Writes results/search_quality.json. An interrupted run goes on where it was:
remove measured-*.json from the folder to measure anew.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from machine import HERE, RESULTS, options, write
from match_strength import LONG, share
from numpy.typing import NDArray
from search_library import make, queries

from framenest import Searcher, Session
from framenest.cache.directory import cache_dir
from framenest.config import DEFAULT_PRESET, MECConfig
from framenest.evaluation.grounded_questions import load_questions
from framenest.evaluation.recall import interval_of_mean
from framenest.method.mec import MEC
from framenest.retrieval.search import SETTINGS, stretches

PROBES = {"base_probes": 12, "extra_probes": 0, "max_gap": 1.25}
LEVELS, FIRST, OVERLAP, AROUND = (1, 3, 5, 10), 10, 0.3, 1.75
MEASURES = (*(f"recall@{k}" for k in LEVELS), f"ndcg@{FIRST}")
PAIRS = (
    ("both stages", "uncut"), ("uncut", "stage one"), ("uncut", "best frame"), ("stage one", "mean"),
)  # fmt: skip

Found = tuple[str, float, float]
"""A moment: video, start and end in seconds."""
Truth = Mapping[str, Sequence[tuple[float, float, int]]]
"""Start, end and grade of the true moments of each relevant video."""


@dataclass(frozen=True)
class Probed:
    """A video's probes: (n,) times in seconds and (n, d) vectors."""

    path: str
    duration: float
    seconds: NDArray[np.float64]
    vectors: NDArray[np.float32]


def ndcg(found: Sequence[Found], truth: Truth, first: int = FIRST) -> float:
    """NDCG of moments, best first.

    >>> round(ndcg([("a", 0, 9), ("b", 0, 4), ("b", 0, 4)], {"b": [(0, 5, 4)], "c": [(0, 5, 1)]}), 3)
    0.606
    """
    left = {video: list(rows) for video, rows in truth.items()}
    grades = []
    for video, start, end in found[:first]:
        rows = left.get(video, [])
        overlap, place = max(((iou((start, end), row[:2]), i) for i, row in enumerate(rows)), default=(0, 0))
        grades.append(rows.pop(place)[2] if overlap >= OVERLAP else 0)
    best = sorted((grade for rows in truth.values() for *_, grade in rows), reverse=True)[:first]
    return discounted(grades) / discounted(best)


def discounted(grades: Sequence[int]) -> float:
    return float(sum((2**grade - 1) / np.log2(place + 2) for place, grade in enumerate(grades)))


def iou(one: tuple[float, float], other: tuple[float, float]) -> float:
    shared = max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
    both = one[1] - one[0] + other[1] - other[0] - shared
    return shared / both if both > 0 else 0.0


def measured(found: Sequence[Found], truth: Truth) -> list[float]:
    """MEASURES of one query."""
    order = [*dict.fromkeys(video for video, *_ in found)]
    return [*(float(any(video in truth for video in order[:k])) for k in LEVELS), ndcg(found, truth)]


def probed(searcher: Searcher, paths: Sequence[str]) -> list[Probed]:
    """The probes of all videos, with the vectors of stage one; indexes what is missing."""
    session, found = searcher.session, []
    mec = MEC(searcher.config, session=session)
    for number, path in enumerate(paths):
        decoder = session.open(path)
        index = mec.index(decoder)
        searcher.store_vectors(decoder, index)
        features = session.features(decoder, session.scorer, index.config.thumbnail)
        encoded = features.get(index.frames, "probes").encoded
        vectors = np.asarray(session.scorer.search_vectors(encoded), np.float16).astype(np.float32)
        found.append(Probed(path, decoder.info.duration, decoder.seconds[index.frames], vectors))
        session.forget()
        if number % 25 == 0:
            print(f"{number} of {len(paths)} videos", file=sys.stderr, flush=True)
    return found


def ways(searcher: Searcher, query: str, videos: list[Probed]) -> dict[str, list[Found]]:
    """The best moments in each way."""
    asked = np.asarray(searcher.session.scorer.search_query(query), np.float32)
    scores = [one.vectors @ asked for one in videos]
    peaks = [int(each.argmax()) for each in scores]
    by_mean = np.argsort([-each.mean() for each in scores], kind="stable")[:FIRST]
    by_best = np.argsort([-each.max() for each in scores], kind="stable")[:FIRST]
    found: dict[str, list[Found]] = defaultdict(list)
    for place in by_mean:
        found["mean"].append((videos[place].path, 0.0, videos[place].duration))
    for place in by_best:
        one, peak = videos[place], peaks[place]
        time = float(one.seconds[peak])
        found["best frame"].append((one.path, time - AROUND, time + AROUND))
        ((first, last),) = stretches(scores[place], one.seconds, [peak])
        edges = [0.0, *(one.seconds[1:] + one.seconds[:-1]) / 2, one.duration]
        found["stage one"].append((one.path, float(edges[first]), float(edges[last + 1])))
    paths = [one.path for one in videos]
    with patch("framenest.retrieval.search.NEAREST", FIRST):
        uncut = sorted(searcher.search(query, paths, FIRST), key=lambda one: -one.score)
    for way, rows in (("both stages", searcher.search(query, paths, FIRST)), ("uncut", uncut)):
        found[way] = [(moment.video, moment.start, moment.end) for moment in rows]
    return found


def confident(searcher: Searcher, paths: Sequence[str], asked: Mapping[str, Truth]) -> dict[str, Any]:
    """For how many queries a row clearly matches, and how often the first such row is right."""
    rights = []
    for query, truth in asked.items():
        rights += [one.video in truth for one in searcher.search(query, paths, 1) if one.confident]
    return {"confident": share(len(rights), len(asked)), "first is right": share(sum(rights), len(rights))}


def evaluate(
    searcher: Searcher, paths: list[str], asked: Mapping[str, Truth], kept: Path
) -> dict[str, dict[str, list[float]]]:
    """{way: {query: MEASURES}} of a library. kept: a file for what is measured, to go on from."""
    rows: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    left = {query: truth for query, truth in asked.items() if query not in rows}
    videos = probed(searcher, paths) if left else []
    for query, truth in left.items():
        rows[query] = {way: measured(found, truth) for way, found in ways(searcher, query, videos).items()}
        kept.write_text(json.dumps(rows, indent=1))
    return {way: {query: rows[query][way] for query in asked} for way in rows[next(iter(asked))]}


def made(folder: Path, count: int, seed: int) -> tuple[list[str], dict[str, Truth]]:
    """The paths of a made library, and the truth of the queries about its rare pictures."""
    videos = {str(folder / name): shots for name, shots in make(folder, count, seed).items()}
    shown = defaultdict(list)
    for path, shots in videos.items():
        for shot in shots:
            shown[shot["shows"]].append((path, shot["start"], shot["end"]))
    asked: dict[str, Truth] = {}
    for row in queries():
        truth = defaultdict(list)
        for name, grade in row["shows"].items():
            for path, start, end in shown[name]:
                truth[path].append((start, end, grade))
        if all(len(shown[name]) <= 2 for name in row["shows"]):
            asked[row["query"]] = truth
    return [*videos], asked


def real(data: Path) -> tuple[list[str], dict[str, Truth]]:
    """The paths of the videos of a question set, and the truth of its questions."""
    asked: dict[str, Any] = defaultdict(lambda: defaultdict(list))
    for question in load_questions(data / "qa.json"):
        asked[question.question][question.video] += [(*interval, 4) for interval in question.intervals]
    return sorted({video for truth in asked.values() for video in truth}), asked


def summary(rows: Mapping[str, Mapping[str, list[list[float]]]]) -> dict[str, Any]:
    """Means over queries with intervals; rows: {way: {query: the measures of each seed}}."""
    values = {way: np.array([np.mean(lists, axis=0) for lists in by.values()]) for way, by in rows.items()}
    told: dict[str, Any] = {way: columns(each) for way, each in values.items()}
    told["differences"] = {f"{a} - {b}": columns(values[a] - values[b]) for a, b in PAIRS}
    return told


def columns(values: NDArray[np.float64]) -> dict[str, list[float]]:
    """Mean and 95 % interval of each measure. values: (queries, measures)."""
    return {
        name: [round(float(each), 4) for each in (column.mean(), *interval_of_mean(column))]
        for name, column in zip(MEASURES, values.T, strict=True)
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for the videos and their cache; kept")
    parser.add_argument("--videos", type=int, default=300, help="in the made library")
    parser.add_argument("--seeds", type=int, default=4, help="libraries")
    parser.add_argument("--data", type=Path, help="a folder with real videos and their questions, qa.json")
    parser.add_argument("--scorer", default="tags")
    given = parser.parse_args()
    cache = given.folder / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    if not (cache / "models").exists():
        (cache / "models").symlink_to(cache_dir() / "models", target_is_directory=True)
    session = Session(given.scorer, store=cache, progress=False)
    config = MECConfig.preset(DEFAULT_PRESET).with_settings(SETTINGS | PROBES)
    searcher = Searcher(session)
    searcher.config = config
    path = RESULTS / "search_quality.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    result = {"scorer": given.scorer, "videos": given.videos, "probes": PROBES, "measures": MEASURES}
    by_seed: dict[str, Any] = defaultdict(lambda: defaultdict(list))
    for seed in range(given.seeds):
        paths, asked = made(given.folder, given.videos, seed)
        rows = evaluate(searcher, paths, asked, given.folder / f"measured-{seed}.json")
        for way, by in rows.items():
            for query, values in by.items():
                by_seed[way][query].append(values)
        told = {"seeds": seed + 1, "queries": len(by_seed["mean"]), **summary(by_seed)}
        kept = {"real": known["real"]} if "real" in known else {}
        print(json.dumps(told), write("search_quality", {**result, "made": told, **kept}), flush=True)
        known = json.loads(path.read_text())
    others, shown = made(given.folder, given.videos, 0)
    paths, asked = ([], {}) if given.data is None else real(given.data)
    short = [path for path in paths if session.open(path).info.duration < LONG]
    absent: list[str] = json.loads((HERE / "match_questions.json").read_text())["searches"]
    sets: dict[str, Mapping[str, Truth]] = {
        "absent, tune": {query: {} for query in absent[::2]},
        "absent, report": {query: {} for query in absent[1::2]},
        "present": shown,
    }
    searched = {name: confident(searcher, short + others, each) for name, each in sets.items()}
    result["searched"] = {"videos": len(short + others), **searched}
    print(json.dumps(searched), write("search_quality", {**result, "made": known["made"]}), flush=True)
    if given.data is not None:
        rows = evaluate(searcher, paths + others, asked, given.folder / "measured-real.json")
        single = {way: {query: [values] for query, values in by.items()} for way, by in rows.items()}
        told = {"real_videos": len(paths), "queries": len(asked), **summary(single)}
        print(write("search_quality", {**result, "made": known["made"], "real": told}))


if __name__ == "__main__":
    main()
