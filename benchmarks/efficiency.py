"""The paper's efficiency table: what each selector costs, every one from an empty cache.

    python benchmarks/efficiency.py qa.json --scorer tags --limit 2
    python benchmarks/efficiency.py test-00000-of-00001.parquet --dataset videomme --category long \
      --videos data/ --scorer blip2 --base-url http://localhost:8000/v1 --style vllm-video -o efficiency.json

QUESTIONS is a file as `framenest evaluate recall` takes it, or with --dataset a benchmark's annotations. For
each selector and video a cache of its own begins empty, and the scorer is loaded before the clock starts, so
no selector lives off another's features:

preprocessing  opening, decoding and encoding the candidates that no question is needed for: MEC's index, the
               rivals' grid of seconds. Once per video; counted whole for each of its questions.
selection      what a question costs then. A selector that ranks runs once for all budgets; the others run
               for each, and score the candidates each time, as the released ones do.
frames, model  reading the original frames, and the model's answer; only with --base-url.
end to end     their sum. Per budget, and for all budgets together, where the rivals may score once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import empty_cache, facts, options
from rich.console import Console
from rich.table import Table

from framenest import MEC, Session
from framenest.cache.directory import DirectoryStore, cache_dir
from framenest.config import ScorerConfig
from framenest.evaluation.benchmarks import READERS, MediaFolder, load_benchmark
from framenest.evaluation.grounded_questions import load_questions
from framenest.images import ImageLimits
from framenest.lmm import messages
from framenest.lmm.client import Client
from framenest.scorers import load_scorer
from framenest.selectors import load_selector
from framenest.selectors.built_in import THUMBNAIL, MecSelector, RuleSelector

BUDGETS = (8, 16, 32, 64, 128, 256)
SELECTORS = ("mec", "aks", "wfs-sb")
PARTS = ("selection_seconds", "frames_seconds", "model_seconds", "end_to_end_seconds")
Asked = tuple[str, str, str]
"""(video's path, question, prompt)"""


class Stopwatch:
    """Seconds of a block."""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began


def questions_of(given: argparse.Namespace) -> list[Asked]:
    """The questions, a video at a time."""
    if given.dataset is None:
        own = load_questions(given.questions, videos=given.videos)
        found = [(question.video, question.question, question.question) for question in own]
    else:
        folder = MediaFolder(given.videos)
        every = load_benchmark(given.dataset, given.questions)
        kept = [question for question in every if given.category in (None, question.category)]
        found = [(str(folder.find(q.video)), q.question, q.prompt) for q in kept]
    return sorted(found[: given.limit], key=lambda asked: asked[0])


def preprocess(selector: Any, session: Session, video: str) -> None:
    """The work that no question is needed for."""
    if isinstance(selector, MecSelector):
        MEC(session=session).index(video)
    decoder = session.open(video)
    if isinstance(selector, RuleSelector):
        grid = selector.grid(decoder.info.num_frames, decoder.info.fps)
        session.features(decoder, session.scorer, THUMBNAIL).get(grid, "candidates")


def forget(session: Session, video: str) -> None:
    """Make the scorer score anew: some remember the last question's scores."""
    cache = session.features(session.open(video), session.scorer, THUMBNAIL)
    one = cache.get(np.array([0]), "candidates")
    cache.relevance(one, "another question altogether", one)


def measure(
    name: str, scorer: Any, asked: Sequence[Asked], budgets: Sequence[int], answer: Any
) -> Iterator[dict[str, Any]]:
    """A record for each question."""
    for video in dict.fromkeys(video for video, *_ in asked):
        with empty_cache() as folder:
            session = Session(scorer, store=folder)
            selector = load_selector(name, session)
            with Stopwatch() as preparing:
                preprocess(selector, session, video)
            for _, question, prompt in (entry for entry in asked if entry[0] == video):
                with Stopwatch() as together:
                    made = selector.select(video, question, budgets)
                alone = dict.fromkeys(budgets, together.seconds)
                if made.stats["runs"] > 1:
                    for budget in budgets:
                        forget(session, video)
                        with Stopwatch() as once:
                            selector.select(video, question, [budget])
                        alone[budget] = once.seconds
                by = {}
                for budget in budgets:
                    frames, model = answer(session.open(video), made.prefix(budget), prompt)
                    spent = [alone[budget], frames, model]
                    whole = preparing.seconds + sum(seconds or 0.0 for seconds in spent)
                    by[str(budget)] = dict(zip(PARTS, [*spent, whole], strict=True))
                later = [sum(row[part] or 0.0 for row in by.values()) for part in PARTS[1:3]]
                yield {
                    "candidates": made.stats["candidates"],
                    "runs": made.stats["runs"],
                    "preprocessing_seconds": preparing.seconds,
                    "budgets": by,
                    "together": {
                        "selection_seconds": together.seconds,
                        "end_to_end_seconds": preparing.seconds + together.seconds + sum(later),
                    },
                }


def mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there and len(there) == len(values) else None


def summary(records: Sequence[dict[str, Any]], budgets: Sequence[int]) -> dict[str, Any]:
    """Means over questions, at each budget, over the budgets, and for all budgets together."""
    by = {str(k): {p: mean([r["budgets"][str(k)][p] for r in records]) for p in PARTS} for k in budgets}
    over = {part: mean([row[part] for row in by.values()]) for part in PARTS}
    first = {name: mean([r[name] for r in records]) for name in ("candidates", "preprocessing_seconds")}
    together = {name: mean([r["together"][name] for r in records]) for name in records[0]["together"]}
    return {**first, "runs": records[0]["runs"], **over, "together": together, "budgets": by}


@contextlib.contextmanager
def answering(given: argparse.Namespace) -> Iterator[Any]:
    """Seconds of reading frames and of the model's answer; neither without a server."""
    if given.base_url is None:
        yield lambda *_: (None, None)
        return
    limits = ImageLimits(frame_pixels=given.frame_pixels)

    def answer(decoder: Any, prefix: Any, prompt: str) -> tuple[float, float]:
        with Stopwatch() as reading:
            request = messages(prefix, prompt, given.style, pairing="pairs", limits=limits, video=decoder)
        with Stopwatch() as asking:
            client.answer(request)
        return reading.seconds, asking.seconds

    with Client(given.base_url, given.model, thinking=False, temperature=0.0, max_tokens=1024) as client:
        yield answer


def shown(rows: dict[str, Any], budgets: Sequence[int], title: str) -> Table:
    """One line per selector and budget, their mean, and all together."""
    table = Table(title=title, title_justify="left")
    heads = ("", "K", "candidates", "runs", "preprocessing", "selection", "frames", "model", "end to end")
    for heading in heads:
        table.add_column(heading, justify="right" if heading else "left")
    for name, row in rows.items():
        lines = [(str(k), row["budgets"][str(k)]) for k in budgets]
        for label, cells in [*lines, ("mean", row), ("together", row["together"])]:
            seconds = [row["preprocessing_seconds"], *(cells.get(part) for part in PARTS)]
            texts = ["" if value is None else f"{value:.2f}" for value in seconds]
            first = label == lines[0][0]
            start = (name, f"{row['candidates']:,.2f}", str(row["runs"])) if first else ("", "", "")
            table.add_row(start[0], label, *start[1:], *texts, end_section=label == "together")
    return table


def saved(rows: dict[str, Any]) -> list[str]:
    """The paper's headline: the share of the end-to-end time that MEC saves."""
    key, mec = "end_to_end_seconds", rows.get("mec")
    what = "" if mec and mec["model_seconds"] is not None else ", without the model"
    return [
        f"mec takes {100 * (1 - mec[key] / row[key]):.2f} % less time than {name}{what}"
        for name, row in rows.items()
        if mec and name != "mec"
    ]


def main(arguments: Sequence[str]) -> None:
    parser = options(__doc__)
    parser.add_argument("questions", help="a question set, or a benchmark's annotations")
    parser.add_argument("--dataset", choices=list(READERS), help="whose annotations they are")
    parser.add_argument("--category", help="only these, as long")
    parser.add_argument("--videos", help="the folder of the videos; by default the file's own")
    parser.add_argument("--limit", type=int, help="only the first so many questions")
    parser.add_argument("--scorer", required=True, help="as `framenest models` names it")
    parser.add_argument("--device", default="auto", help="of the scorer")
    parser.add_argument("--selectors", default=",".join(SELECTORS))
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument(
        "--base-url", help="the server whose answers are timed; without one only selection is"
    )
    parser.add_argument("--model", help="by default the only one the server has")
    parser.add_argument("--style", default="openai")
    parser.add_argument("--frame-pixels", type=int, help="as in `framenest evaluate qa`")
    parser.add_argument("-o", "--output", default="efficiency.json")
    given = parser.parse_args(arguments)
    if given.dataset is not None and given.videos is None:
        parser.error("--dataset needs --videos")
    budgets = [int(k) for k in given.budgets.split(",")]
    asked = questions_of(given)
    scorer = load_scorer(given.scorer, DirectoryStore(cache_dir()), ScorerConfig(device=given.device))
    with answering(given) as answer:
        rows = {
            name: summary(list(measure(name, scorer, asked, budgets, answer)), budgets)
            for name in given.selectors.split(",")
        }
    videos = sorted({Path(video).name for video, *_ in asked})
    title = f"{len(asked)} questions on {len(videos)} videos, scorer {given.scorer}; seconds"
    Console(width=110).print(shown(rows, budgets, title))
    for line in saved(rows):
        print(line)
    about = {"machine": facts(), "scorer": given.scorer, "questions": len(asked), "videos": len(videos)}
    result = about | {"budgets": budgets, "rows": rows}
    Path(given.output).write_text(json.dumps(result, indent=1) + "\n")
    print(given.output)


if __name__ == "__main__":
    main(sys.argv[1:])
