"""Where the seconds go for a first and a second question, and peak memory.

    python benchmarks/pipeline.py VIDEO                            a long video
    python benchmarks/pipeline.py VIDEO --before OTHER_CHECKOUT    both checkouts in turn, and their ratio
    python benchmarks/pipeline.py                                  one minute of 1080p noise

Every round starts one process with an empty cache, after `models fetch tags`, then another one with the cache
that the first has filled. With --before, each checkout runs with its own `src` on PYTHONPATH, the two take
turns, and their rankings are compared bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clips import noise
from machine import HERE, empty_cache, environment, options, write

from framenest import MEC

QUESTIONS = ("Where is a red laptop on a table?", "When does somebody walk across the lawn?")


def child(video: str, store: str) -> None:
    """One process: the first question, then the second."""
    mec = MEC(scorer="tags", store=store)
    questions = []
    for question in QUESTIONS:
        began, worked = time.perf_counter(), time.process_time()
        ranking = mec.rank(video, question)
        wall, cpu = time.perf_counter() - began, time.process_time() - worked
        content = json.loads(ranking.dumps())
        content.pop("stats")
        content["video"].pop("fingerprint")  # trees may hash files differently
        for row in (content["pool"], *content["ranks"]):
            row.pop("seen", None)  # names of what frames show, which are not of the ranking
        same = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        questions.append(
            {"question": question, "wall_seconds": wall, "cpu_seconds": cpu, **ranking.stats.to_json()}
            | {"ranking": same}
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    info = ranking.video
    video_facts = {
        "name": Path(video).name,
        "seconds": info.duration,
        "width": info.width,
        "height": info.height,
    }
    print(json.dumps({"video": video_facts, "questions": questions, "peak_memory_mib": peak / 1024}))


def measure(video: str, tree: Path = HERE.parent) -> dict[str, Any]:
    """One round of a checkout: an empty cache, then the same again with a full one."""
    load = os.getloadavg()[0]  # of the last minute, by others
    with empty_cache() as folder:
        variables = environment(tree)
        fetch = [sys.executable, "-m", "framenest", "models", "fetch", "tags", "--cache", folder, "--quiet"]
        subprocess.run(fetch, env=variables, check=True)  # as every user does first
        command = [sys.executable, __file__, "--child", video, folder]
        first, again = (
            json.loads(subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True).stdout)
            for _ in range(2)
        )
    for question in first["questions"]:
        stages = ", ".join(f"{k} {v:.2f}" for k, v in question["seconds"].items())
        print(f"{question['wall_seconds']:6.1f} s, {question['candidates']} candidates: {stages}")
    print(f"{again['questions'][0]['wall_seconds']:6.1f} s for the first question again in a new process")
    print(f"{first['peak_memory_mib']:.0f} MiB at the most; a load of {load:.1f} before", flush=True)
    again_seconds = again["questions"][0]["wall_seconds"]
    return first | {"first_question_cached_wall_seconds": again_seconds, "load_before": load}


def alternate(video: str, before: Path | None, rounds: int) -> dict[str, Any]:
    """The round with the median first question; with `before`, also a comparison of both checkouts."""
    trees = {"before": before, "after": HERE.parent} if before else {"after": HERE.parent}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
    for number in range(rounds):
        for name, tree in trees.items():
            print(f"round {number + 1}, {name}")
            found[name].append(measure(video, tree))
    middle: dict[str, Any] = sorted(found["after"], key=_first)[(rounds - 1) // 2]
    if not before:
        return middle
    pairs = [*zip(found["before"], found["after"], strict=True)]
    bits = {tuple(asked["ranking"] for asked in run["questions"]) for runs in found.values() for run in runs}
    compared = {
        "first_question_seconds": {name: [*map(_first, runs)] for name, runs in found.items()},
        "first_question_cpu_seconds": {
            name: [run["questions"][0]["cpu_seconds"] for run in runs] for name, runs in found.items()
        },
        "load_before": {name: [run["load_before"] for run in runs] for name, runs in found.items()},
        "times_faster": [_first(old) / _first(new) for old, new in pairs],
        "times_faster_median": statistics.median(_first(old) / _first(new) for old, new in pairs),
        "times_faster_cpu_median": statistics.median(
            old["questions"][0]["cpu_seconds"] / new["questions"][0]["cpu_seconds"] for old, new in pairs
        ),
        "rankings_equal_bit_for_bit": len(bits) == 1,
        "before_stages": sorted(found["before"], key=_first)[(rounds - 1) // 2]["questions"][0]["seconds"],
    }
    wall, cpu = compared["times_faster_median"], compared["times_faster_cpu_median"]
    print(f"{wall:.2f} times faster, {cpu:.2f} times by CPU seconds")
    return middle | {"compared": compared}


def _first(run: dict[str, Any]) -> float:
    return float(run["questions"][0]["wall_seconds"])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("video", nargs="?")
    parser.add_argument("--before", type=Path, help="another checkout, measured in the same run")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    if given.video:
        print(write("pipeline", alternate(given.video, given.before, given.rounds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "made_1080p.mp4"
        noise(video, (1920, 1080), 25 * 60, preset="ultrafast", crf="35")
        print(write("pipeline_1080p", alternate(str(video), given.before, given.rounds)))


if __name__ == "__main__":
    child(*sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main()
