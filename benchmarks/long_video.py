"""How closely a two-hour video must be probed: hit@K and cost by the largest gap between probes.

    python benchmarks/long_video.py qa.json

All videos of a question set are joined to one file of about two hours, each shown once as it is and once
mirrored; every question then asks about the joined file, with both of its moments in `intervals`. Measured
with `--max-gap` at several values and with AKS at one frame a second, with how many frames each looks at:
hits on noisy truth, which needs no pictures, so on the file's timeline alone, where all looks are the same.
`--seconds` adds what a first question about the file costs with `tags`, one selector at a time, each from an
empty cache; on a busy machine only its CPU seconds mean something. Writes results/long_video.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
from machine import empty_cache, options, write

from framenest import Session, open_video
from framenest.evaluation import recall
from framenest.evaluation.grounded_questions import GroundedQuestion, NoStore, load_questions
from framenest.evaluation.recall import collect
from framenest.selectors import load_selector

BUDGETS = (8, 16, 32, 64, 128, 256)
SELECTORS = {
    "512 probes": "mec:residual",
    "gap 10 s": "mec:residual+max_gap=10",
    "gap 5 s": "mec:residual+max_gap=5",
    "aks": "aks",
    "gap 2 s": "mec:residual+max_gap=2",
    "gap 1 s": "mec:residual+max_gap=1",
}
EVEN = (500, 512, 520, 540, 560, 580, 600, 620, 640, 660, 680, 693, 700)
"""Numbers of probes from the default's to that of a gap of 10 s, to see how much of a hit is luck."""
FIT = "scale=640:360:force_original_aspect_ratio=decrease,pad=640:360:-1:-1"
ENCODER = ("-c:v", "libx264", "-preset", "ultrafast", "-crf", "28", "-g", "250")


def join(videos: Sequence[str], target: Path) -> dict[str, list[tuple[float, float]]]:
    """Write all videos one after the other, then all of them mirrored.

    Returns:
        By video, where each of its two copies begins and how long it is, in seconds.
    """
    places: dict[str, list[tuple[float, float]]] = {name: [] for name in videos}
    began = 0.0
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "parts.txt"
        with listing.open("w") as parts:
            for mirrored in (False, True):
                for number, name in enumerate(videos):
                    part = Path(folder) / f"{mirrored}-{number}.mp4"
                    looks = ("hflip," if mirrored else "") + "setpts=PTS-STARTPTS,format=yuv420p"
                    command = ["ffmpeg", "-v", "error", "-y", "-i", name, "-map", "0:v:0", "-an"]
                    command += ["-vf", f"{FIT},fps=25,{looks}", *ENCODER, str(part)]
                    subprocess.run(command, check=True)
                    with av.open(str(part)) as opened:
                        stream = opened.streams.video[0]
                        length = float(stream.frames / stream.average_rate)
                    places[name].append((began, length))
                    began += length
                    parts.write(f"file '{part}'\n")
        command = ["ffmpeg", "-v", "error", "-y", "-f", "concat", "-safe", "0", "-i", str(listing)]
        subprocess.run([*command, "-c", "copy", str(target)], check=True)
    return places


def moved(
    questions: Sequence[GroundedQuestion], places: dict[str, list[tuple[float, float]]], duration: float
) -> list[GroundedQuestion]:
    """The same questions about the timeline of the joined file."""
    asked = []
    for question in questions:
        with_both = [
            (began + start, began + min(end, length))
            for began, length in places[str(question.video)]
            for start, end in question.intervals_in(open_video(question.video))
        ]
        intervals = tuple(sorted(with_both))
        asked.append(GroundedQuestion("joined", question.question, intervals, duration=duration))
    return asked


def hits(questions: list[GroundedQuestion], scorer: str, seeds: int) -> dict[str, Any]:
    """hit@K of every selector with its 95 % interval at each budget, and how many frames it looks at."""
    # Pictures that are all black need no more than a pixel.
    specs = {name: spec + "+thumbnail=1" * spec.startswith("mec") for name, spec in SELECTORS.items()}
    rows = collect(questions, specs, BUDGETS, Session(scorer, store=NoStore()), seeds=seeds)
    found: dict[str, Any] = {}
    for name, outcomes in rows.items():
        looked_at = sum(outcome.candidates for outcome in outcomes) / len(outcomes)
        found[name] = {"looked_at": round(looked_at, 1)}
        for budget in BUDGETS:
            values = recall.by_question(outcomes, budget, "hit", seeds)
            low, high = recall.interval_of_mean(values)
            found[name][str(budget)] = [round(float(value), 4) for value in (values.mean(), low, high)]
    return found


def met(questions: Sequence[GroundedQuestion], duration: float, count: int) -> float:
    """Share of the questions of whose moments a grid of `count` even probes holds a frame: luck, if wide."""
    probes = np.linspace(0, duration, count)
    return sum(recall.hit(probes, question.intervals) for question in questions) / len(questions)


def cost(spec: str, video: str, question: str) -> dict[str, Any]:
    """The first question about the video, from an empty cache, with `tags`; the model is loaded before."""
    with empty_cache() as folder:
        session = Session("tags", store=folder)
        session.scorer  # noqa: B018 - loaded before the clock starts
        selector = load_selector(spec, session)
        began, worked = time.perf_counter(), time.process_time()
        made = selector.select(video, question, BUDGETS)
        spent, worked = time.perf_counter() - began, time.process_time() - worked
    return {
        "seconds": round(spent, 1),
        "cpu_seconds": round(worked, 1),
        "candidates": made.stats["candidates"],
        "load": round(os.getloadavg()[0], 1),
    }


def table(result: dict[str, Any]) -> str:
    """The table of docs/evaluation.md."""
    shown = (8, 32, 128, 256)
    ratios = {scorer: scorer.replace("noisy-truth:", "SNR ") for scorer in result["hit"]}
    columns = [f"{ratio}, K={k}" for ratio in ratios.values() for k in shown]
    lines = [f"| | looked at | {' | '.join(columns)} | CPU s |", "|" + "---|" * (len(columns) + 3)]
    for name in sorted(SELECTORS, key=lambda one: result["hit"]["noisy-truth:1"][one]["looked_at"]):
        looked_at = result["hit"]["noisy-truth:1"][name]["looked_at"]
        cells = [f"{result['hit'][scorer][name][str(k)][0]:.2f}" for scorer in ratios for k in shown]
        spent = f"{result['cost'][name]['cpu_seconds']:.0f}" if name in result["cost"] else ""
        lines.append(f"| {name} | {looked_at:,.0f} | {' | '.join(cells)} | {spent} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("questions", help="a question set with videos")
    parser.add_argument("--seeds", type=int, default=4, help="draws of the noise of noisy truth")
    parser.add_argument("--file", type=Path, default=Path("two_hours.mp4"), help="where to write the video")
    parser.add_argument("--part", default="report", choices=["tune", "report", "all"])
    parser.add_argument("--seconds", action="store_true", help="also measure what it costs with `tags`: long")
    given = parser.parse_args()
    every = load_questions(given.questions)
    videos = sorted({str(question.video) for question in every})
    facts = given.file.with_suffix(".json")
    if not facts.exists():
        facts.write_text(json.dumps(join(videos, given.file)))
    places = json.loads(facts.read_text())
    info = open_video(given.file).info
    questions = moved(load_questions(given.questions, part=given.part), places, info.duration)
    result: dict[str, Any] = {
        "duration": round(info.duration, 1),
        "questions": len(questions),
        "part": given.part,
        "seeds": given.seeds,
        "budgets": list(BUDGETS),
        "met_by_even_probes": {str(n): round(met(questions, info.duration, n), 4) for n in EVEN},
        "hit": {},
        "cost": {},
    }
    for scorer in ("noisy-truth:1", "noisy-truth:2"):
        result["hit"][scorer] = hits(questions, scorer, given.seeds)
        print(scorer, json.dumps(result["hit"][scorer], indent=1), flush=True)
        write("long_video", result)
    for name, spec in SELECTORS.items() if given.seconds else ():
        result["cost"][name] = cost(spec, str(given.file), questions[0].question)
        print(name, result["cost"][name], flush=True)
        write("long_video", result)
    print(table(result))


if __name__ == "__main__":
    main()
