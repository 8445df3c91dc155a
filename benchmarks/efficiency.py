"""The paper's efficiency table: what each selector costs, every one from an empty cache.

    python benchmarks/efficiency.py qa.json --scorer tags --limit 2
    python benchmarks/efficiency.py test-00000-of-00001.parquet --videomme --category long \
      --videos data/ --scorer blip2 --base-url http://localhost:8000/v1 --style vllm-video -o efficiency.json

QUESTIONS is a file as `framenest evaluate recall` takes it, or with --videomme the Parquet file of Video-MME.
For each selector and video a cache of its own begins empty, and the scorer is loaded before the clock starts,
so no selector lives off another's features. The parts, in seconds a question:

decode      opening the video and decoding candidates.
encode      the scorer's forward pass over the candidates, as far as it needs no question.
match       the scorer's comparison of candidates with the question.
rule        everything else until the frames are chosen: cues, zoom, order, writing the cache.
frames      reading the original frames and encoding them for a request.
model       the model's answer; only with --base-url.
end to end  their sum. Per budget, and for all budgets together, where a rival may score once.

Normally later frames are decoded while earlier ones are encoded. Here all frames of a step are decoded before
the first is encoded, so that each part is what it costs by itself, and the first four sum to the wall clock.
That takes memory for the scorer's images of all candidates of a video, and longer than `framenest rank`.

The paper has two columns before the model, preprocessing and selection, and does not say where encoding
belongs. Both readings are printed beside it. What a question asks for, such as MEC's zoom frames, counts as
selection in both:

encode in selection      preprocessing decodes; selection encodes, matches and applies the rule.
encode in preprocessing  preprocessing decodes and encodes; selection matches and applies the rule.

Preprocessing is done once per video and counted in full for each question. A selector that ranks runs once
for all budgets; the others match and apply the rule for each, as the released ones do. `uniform` only opens
the video.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from machine import HERE, empty_cache, facts, options
from rich.console import Console
from rich.table import Table

from framenest import MEC, Session
from framenest.cache.directory import DirectoryStore, cache_dir
from framenest.config import ScorerConfig
from framenest.evaluation.grounded_questions import load_questions
from framenest.evaluation.lmms_eval.tasks import text
from framenest.frames import FrameBatch
from framenest.images import ImageLimits
from framenest.lmm import messages
from framenest.lmm.client import Client
from framenest.progress import Timing
from framenest.protocols import Scorer
from framenest.records import read_rows
from framenest.scorers import load_scorer
from framenest.scorers.feature_store import finish_writes
from framenest.selectors import load_selector
from framenest.selectors.built_in import THUMBNAIL, MecSelector, RuleSelector
from framenest.video.decoder import Decoder
from framenest.video.opening import open_video

PAPER = json.loads((HERE / "paper.json").read_text())
BUDGETS = (8, 16, 32, 64, 128, 256)
SELECTORS = ("uniform", "mec", "aks", "wfs-sb")
PARTS = ("decode", "encode", "match", "rule")
PART_OF = {"timeline": "decode", "decode": "decode", "encode": "encode", "match": "match"}
"""The part of each stage of a session's clock; the rule has all others."""
SPLITS = ("encode_in_selection", "encode_in_preprocessing")
Asked = tuple[str, str, str]
"""(video's path, question, prompt)"""
Parts = dict[str, float]
Made = TypeVar("Made")


class DecodedFirst:
    """A video that decodes all frames of a read before it returns the first."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.name, self.version, self.info = decoder.name, decoder.version, decoder.info
        self.seconds, self.key_frames = decoder.seconds, decoder.key_frames

    def read(self, frames: Any, *, sizes: Any = (None,)) -> Iterator[FrameBatch]:
        yield from [*self._decoder.read(frames, sizes=sizes)]


def timed(timing: Timing, work: Callable[..., Made], *given: Any) -> tuple[Made, Parts]:
    """What the work made, and its seconds by part, which sum to its wall clock. timing: a session's."""
    clock = Timing()
    with clock("rule", timing):
        made = work(*given)
    assert clock.seconds["rule"] >= 0, f"stages overlap, so they exceed the wall clock: {clock.seconds}"
    spent = dict.fromkeys(PARTS, 0.0)
    for stage, seconds in clock.seconds.items():
        spent[PART_OF.get(stage, "rule")] += seconds
    return made, spent


def questions_of(given: argparse.Namespace) -> list[Asked]:
    """The questions, a video at a time."""
    if not given.videomme:
        own = load_questions(given.questions, videos=given.videos)
        found = [(question.video, question.question, question.question) for question in own]
    else:
        rows = [row for row in read_rows(Path(given.questions)) if given.category in (None, row["duration"])]
        task = {"framenest": {"benchmark": "videomme", "selector": "uniform"}}
        found = [
            (str(Path(given.videos) / f"{row['videoID']}.mp4"), row["question"], text(row, task))
            for row in rows
        ]
    if given.minutes:
        minutes = {video: open_video(video).info.duration / 60 for video in {asked[0] for asked in found}}
        found = [asked for asked in found if minutes[asked[0]] >= given.minutes]
    return sorted(found[: given.limit], key=lambda asked: asked[0])


def preprocess(selector: Any, session: Session, path: str) -> DecodedFirst:
    """The work that no question is needed for; returns the open video."""
    video = DecodedFirst(session.open(path))
    if isinstance(selector, MecSelector):
        MEC(session=session).index(video)
    if isinstance(selector, RuleSelector):
        grid = selector.rule.grid(video.info.num_frames, video.info.fps)
        session.features(video, session.scorer, THUMBNAIL).get(grid, "candidates")
    finish_writes()  # not while a question is timed
    return video


def match_another(scorer: Scorer) -> None:
    """Match a black frame with another question: loads the scorer, and it forgets the last one's scores."""
    sizes = [spec.size(16, 9) for spec in scorer.inputs]
    black = tuple(np.zeros((1, height, width, 3), np.uint8) for width, height in sizes)
    scorer.match(scorer.encode(FrameBatch(np.zeros(1, np.int64), np.zeros(1), black)), "Is it dark?")


def costs(prepared: Parts, chosen: Parts, frames: float, model: float | None) -> dict[str, Any]:
    """Seconds of a question: every part, their sum, and preprocessing and selection both ways."""
    before, after, encode = sum(prepared.values()), sum(chosen.values()), prepared["encode"]
    pairs = ((before - encode, after + encode), (before, after))
    return {
        **{f"{part}_seconds": prepared[part] + chosen[part] for part in PARTS},
        "frames_seconds": frames,
        "model_seconds": model,
        "end_to_end_seconds": before + after + frames + (model or 0.0),
        **{
            name: {"preprocessing_seconds": first, "selection_seconds": second}
            for name, (first, second) in zip(SPLITS, pairs, strict=True)
        },
    }


def measure(
    name: str, scorer: Scorer, asked: Sequence[Asked], budgets: Sequence[int], answer: Any
) -> Iterator[dict[str, Any]]:
    """A record for each question."""
    for path in dict.fromkeys(path for path, *_ in asked):
        with empty_cache() as folder:
            session = Session(scorer, store=folder)
            selector = load_selector(name, session)
            video, prepared = timed(session.timing, preprocess, selector, session, path)
            for _, question, prompt in (entry for entry in asked if entry[0] == path):
                made, together = timed(session.timing, selector.select, video, question, budgets)
                alone = dict.fromkeys(budgets, together)
                if made.stats["runs"] > 1:
                    for k in budgets:
                        match_another(scorer)
                        _, alone[k] = timed(session.timing, selector.select, video, question, [k])
                answers = {k: answer(session.open(path), made.prefix(k), prompt) for k in budgets}
                frames, models = zip(*answers.values(), strict=True)
                yield {
                    "candidates": made.stats["candidates"],
                    "runs": made.stats["runs"],
                    "budgets": {str(k): costs(prepared, alone[k], *answers[k]) for k in budgets},
                    "together": costs(
                        prepared, together, sum(frames), None if None in models else sum(models)
                    ),
                }


def mean(values: Sequence[Any]) -> Any:
    """Of numbers, or of each number in dicts; None where one is missing."""
    if isinstance(values[0], dict):
        return {name: mean([value[name] for value in values]) for name in values[0]}
    return None if None in values else sum(values) / len(values)


def summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over questions, at each budget, over the budgets, and for all budgets together."""
    over = mean(records) | {"runs": records[0]["runs"]}
    return over | mean([*over["budgets"].values()])


@contextlib.contextmanager
def answering(given: argparse.Namespace) -> Iterator[Any]:
    """Seconds of reading frames and of the model's answer, None without a server."""
    limits = ImageLimits(frame_pixels=given.frame_pixels)
    settings = {"thinking": False, "temperature": 0.0, "max_tokens": 1024}
    client = None if given.base_url is None else Client(given.base_url, given.model, **settings)

    def answer(decoder: Any, prefix: Any, prompt: str) -> tuple[float, float | None]:
        clock = Timing()
        with clock("frames"):
            request = messages(prefix, prompt, given.style, pairing="pairs", limits=limits, video=decoder)
        if client is not None:
            with clock("model"):
                client.answer(request)
        return clock.seconds["frames"], clock.seconds.get("model")

    with client or contextlib.nullcontext():
        yield answer


def table_of(title: str, headings: Sequence[str], words: int) -> Table:
    """An empty table whose first columns are words, the others numbers."""
    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < words else "right")
    return table


def texts(*seconds: float | None) -> list[str]:
    return ["" if value is None else f"{value:,.2f}" for value in seconds]


def parts_table(rows: dict[str, Any], budgets: Sequence[int], title: str) -> Table:
    """One line per selector and budget, their mean, and all together."""
    parts = (*PARTS, "frames", "model", "end_to_end")
    headings = ("", "K", "candidates", "runs", *(part.replace("_", " ") for part in parts))
    table = table_of(title, headings, 1)
    for name, row in rows.items():
        lines = [*((str(k), row["budgets"][str(k)]) for k in budgets), ("mean", row)]
        for label, cells in [*lines, ("together", row["together"])]:
            first = label == lines[0][0]
            start = (name, *texts(row["candidates"]), str(row["runs"])) if first else ("", "", "")
            seconds = texts(*(cells[f"{part}_seconds"] for part in parts))
            table.add_row(start[0], label, *start[1:], *seconds, end_section=label == "together")
    return table


def splits_table(rows: dict[str, Any]) -> Table:
    """Means over the budgets in the paper's columns, below the paper's own."""
    headings = ("", "", "candidates", "preprocessing", "selection", "frames", "model", "end to end")
    table = table_of("in the paper's columns, means over the budgets", headings, 2)
    for name, row in rows.items():
        if name in PAPER["efficiency"]:
            *first, end = PAPER["efficiency"][name]
            table.add_row(name, "paper", *texts(*first, None, PAPER["model_seconds"], end))
        for split in SPLITS:
            pair = row[split]["preprocessing_seconds"], row[split]["selection_seconds"]
            rest = (row[f"{part}_seconds"] for part in ("frames", "model", "end_to_end"))
            label = "" if name in PAPER["efficiency"] or split != SPLITS[0] else name
            numbers = texts(row["candidates"], *pair, *rest)
            table.add_row(label, split.replace("_", " "), *numbers, end_section=split == SPLITS[-1])
    return table


def saved(rows: dict[str, Any]) -> list[str]:
    """The paper's headline: the share of the end-to-end time that MEC saves."""
    key, mec = "end_to_end_seconds", rows.get("mec")
    what = "" if mec and mec["model_seconds"] is not None else ", without the model"
    return [
        f"mec takes {100 * (1 - mec[key] / row[key]):.2f} % less time than {name}{what}"
        for name, row in rows.items()
        if mec and name not in ("mec", "uniform")
    ]


def main(arguments: Sequence[str]) -> None:
    parser = options(__doc__)
    parser.add_argument("questions", help="a question set, or Video-MME's file")
    parser.add_argument("--videomme", action="store_true", help="QUESTIONS is Video-MME's own file")
    parser.add_argument("--category", help="only Video-MME's videos of this duration, such as long")
    parser.add_argument("--videos", help="the folder of the videos; by default the file's own")
    parser.add_argument("--minutes", type=float, help="only videos at least this long")
    parser.add_argument("--limit", type=int, help="only the first so many questions")
    parser.add_argument("--scorer", required=True, help="as `framenest models` names it")
    parser.add_argument("--device", default="auto", help="of the scorer")
    parser.add_argument("--selectors", default=",".join(SELECTORS))
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--base-url", help="the server whose answers are timed")
    parser.add_argument("--model", help="by default the only one the server has")
    parser.add_argument("--style", default="openai")
    parser.add_argument("--frame-pixels", type=int, help="as in `framenest ask`")
    parser.add_argument("-o", "--output", default="efficiency.json")
    given = parser.parse_args(arguments)
    if given.videomme and given.videos is None:
        parser.error("--videomme needs --videos")
    load = os.getloadavg()[0]  # of the last minute, by others
    budgets = [int(k) for k in given.budgets.split(",")]
    asked = questions_of(given)
    if not asked:
        parser.error("no questions are left")
    scorer = load_scorer(given.scorer, DirectoryStore(cache_dir()), ScorerConfig(device=given.device))
    match_another(scorer)
    with answering(given) as answer:
        rows = {
            name: summary(list(measure(name, scorer, asked, budgets, answer)))
            for name in given.selectors.split(",")
        }
    videos = sorted({Path(video).name for video, *_ in asked})
    title = f"{len(asked)} questions on {len(videos)} videos, scorer {given.scorer}; seconds"
    for table in (parts_table(rows, budgets, title), splits_table(rows)):
        Console(width=110).print(table)
    for line in saved(rows):
        print(line)
    about = {"machine": facts(), "load_before": load, "scorer": given.scorer}
    about |= {"questions": len(asked), "videos": len(videos)}
    result = about | {"budgets": budgets, "rows": rows}
    Path(given.output).write_text(json.dumps(result, indent=1) + "\n")
    print(given.output)


if __name__ == "__main__":
    main(sys.argv[1:])
