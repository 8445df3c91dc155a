"""framenest evaluate and framenest lmms-eval."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import rich_click as click
from rich.markup import escape

from framenest.cache.files import write_atomic
from framenest.cli import options as opt
from framenest.cli.options import argument, command, option
from framenest.cli.printing import fail, note, out, print_json, print_table, say, table
from framenest.config import DEFAULT_PRESET, RelevanceText, ScorerConfig
from framenest.evaluation.grounded_questions import (
    QUESTION_READERS,
    GroundedQuestion,
    NoStore,
    Part,
    load_questions,
)
from framenest.evaluation.lmms_eval.preparation import prepare as run_preparation
from framenest.evaluation.lmms_eval.tasks import SELECTORS, FramesAs, TaskPairing, write_tasks
from framenest.evaluation.recall import ablations as run_ablations
from framenest.evaluation.recall import evaluate as measure_recall
from framenest.progress import Bars
from framenest.session import Session

Row = dict[str, Any]  # cells by column: numbers, strings, or None for an empty cell

JSON_FILE = option("Write all numbers here.", "--json")


@dataclass(frozen=True)
class QuestionSet:
    """Which questions to use, and which scorer; for `recall` and `ablations`."""

    kind: str = option("Format of QUESTIONS.", type=click.Choice(list(QUESTION_READERS)), default="framenest")
    videos: opt.Folder | None = option("Folder of the videos. [default: the folder of QUESTIONS]")
    part: Part = option("All questions, or a fixed half of them.", default="all")
    scorer: str = option("A name from `framenest models`, or noisy-truth:SNR for no model.", required=True)

    def open(
        self, file: str, scoring: ScorerConfig, common: opt.Common, bars: Bars
    ) -> tuple[list[GroundedQuestion], Session]:
        """The questions, and a session with the scorer."""
        questions = load_questions(file, kind=self.kind, videos=self.videos, part=self.part)
        store = NoStore() if self.kind == "timeline" else common.cache
        return questions, Session(self.scorer, store=store, progress=bars, scoring=scoring)


@click.group()
def evaluate() -> None:
    """Measure selectors on questions with known answers."""


@command(evaluate)
def recall(
    *,
    questions: str = argument(),
    selectors: opt.SelectorNames = option(
        "Selectors to compare; mec:residual and mec:horizon=64 are MEC with a preset or settings.",
        default="mec:residual,mec,uniform,top-k,aks,wfs-sb",
    ),
    budgets: opt.Budgets = option("Frame budgets to measure at.", default="4,8,16,32,64,128,256"),
    seeds: opt.Count = option("Seeds of noisy-truth's noise to average over.", default=1),
    json_file: opt.OutputFile | None = JSON_FILE,
    question_set: QuestionSet,
    scoring: ScorerConfig,
    common: opt.Common,
) -> None:
    """Measure how often a selection includes a frame that shows what QUESTIONS ask about.

    QUESTIONS is a JSON list of {"video", "question", "intervals": [[start, end], …]} in seconds.

    \b
    framenest evaluate recall qa.json --scorer tags --selectors mec,aks \\
      --json recall.json
    framenest evaluate recall qa.json --scorer noisy-truth:2
    """
    with common.bars() as bars:
        entries, session = question_set.open(questions, scoring, common, bars)
        measured = measure_recall(entries, selectors, budgets, session, seeds=seeds, progress=bars)
    result = {"scorer": question_set.scorer, "part": question_set.part, **measured}
    _print_recall(result)
    _write_json(json_file, result)


def _print_recall(result: dict[str, Any]) -> None:
    selectors = result["selectors"]
    budgets = [k for k in next(iter(selectors.values())) if k != "all"]
    few = "8" if "8" in budgets else budgets[0]
    hits: list[Row] = []
    rest: list[Row] = []
    for name, summary in selectors.items():
        whole, last = summary["all"], summary[budgets[-1]]
        means = {"mean": whole["objective"], "first hit": whole["mean_first_hit"]}
        hits.append({"Selector": name, **{k: summary[k]["hit"] for k in budgets}, **means})
        times = {"cov.": last["covered"], "gap": last["largest_gap"], "red.": last["redundancy"]}
        looks = {f"dup@{few}": summary[few]["near_duplicates"], "nest": last["nesting"]}
        regimes = {"low": whole.get("low"), "med.": whole.get("medium"), "high": whole.get("high")}
        rest.append({"Selector": name, **times, **looks, **regimes, "seen": round(whole["candidates"])})
    out.print(f"[bold]hit@K[/] over {result['questions']} questions, scorer {escape(result['scorer'])}")
    _print_rows(hits)
    out.print(f"[dim]at K={budgets[-1]}, and per question for all budgets[/]")
    _print_rows(rest)
    labels = {"mec": "the paper's rule", f"mec:{DEFAULT_PRESET}": "the default of `rank`"}
    if named := "; ".join(f"{name} is {label}" for name, label in labels.items() if name in selectors):
        out.print(f"[dim]{named}[/]")
    ranges = (one[k]["hit_high"] - one[k]["hit_low"] for one in selectors.values() for k in budgets)
    note(f"95 % intervals reach up to ±{max(ranges) / 2:.2f}; smaller differences mean little")


def _write_json(file: Path | None, data: Any) -> None:
    if file is not None:
        write_atomic(file, (json.dumps(data, indent=1) + "\n").encode())


@command(evaluate)
def ablations(
    *,
    questions: str = argument(),
    json_file: opt.OutputFile | None = JSON_FILE,
    question_set: QuestionSet,
    scoring: ScorerConfig,
    common: opt.Common,
) -> None:
    """Compute the paper's component, schedule and horizon tables on QUESTIONS, with hit@K for accuracy.

    \b
    framenest evaluate ablations qa.json --scorer tags
    """
    with common.bars() as bars:
        entries, session = question_set.open(questions, scoring, common, bars)
        measured = run_ablations(entries, session, progress=bars)
    for part in ("components", "schedules", "horizons"):
        out.print(f"[bold]Ablation {part}[/]")
        rows = measured[part].items()
        _print_rows([{"Selector": name, **{k: 100 * v for k, v in row.items()}} for name, row in rows])
    _write_json(json_file, {"scorer": question_set.scorer, **measured})


def _print_rows(rows: list[Row]) -> None:
    """Print a table; all rows have the same columns."""
    grid = table(*rows[0], texts=["Selector"])
    for row in rows:
        cells = (f"{value:.2f}" if isinstance(value, float) else value for value in row.values())
        grid.add_row(*("–" if cell is None else str(cell) for cell in cells))
    print_table(grid)


@click.group("lmms-eval")
def lmms_eval() -> None:
    """Evaluate with lmms-eval on frames that Framenest selects."""


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= (number := int(match[1])) <= (parts := int(match[2])):
        raise ValueError(f"{text!r} must be i/n, such as 1/8 for the first of eight")
    return number, parts


@dataclass(frozen=True)
class TaskChoice:
    """Which frames tasks show; for `tasks` and `prepare`."""

    scorer: str | None = option("A name from `framenest models`; not auto, so that results say which.")
    selectors: Annotated[list[str], opt.Parsed("NAME,…", _names)] = option(
        "Selectors; each gets a task for each benchmark.", default=",".join(SELECTORS)
    )
    query: RelevanceText = option("Text to score frames against.", default="question")


@command(lmms_eval)
def tasks(
    *,
    choice: TaskChoice,
    pairing: TaskPairing = option(
        "Qwen3-VL and Qwen3.5 fuse two frames. pairs: always, as in the paper. auto: only frames less than "
        "2 s apart. duplicate: never.",
        default="pairs",
    ),
    frames_as: FramesAs = option(
        "video: for models that use qwen-vl-utils. frames, images: frames in the message, for others.",
        default="video",
    ),
    frames: int = option("Frames in the message, for --frames-as frames and images.", "-k", default=0),
    common: opt.Common,
) -> None:
    """Write the task files, and print their folder for --include_path.

    K is the model's own frame argument. lmms-eval copies these settings into its results. A selector with
    a scorer needs `framenest lmms-eval prepare` first. Qwen3.5 thinks unless enable_thinking=False.

    \b
    python -m lmms_eval --model qwen3_5 --model_args \\
      pretrained=Qwen/Qwen3.5-9B,max_num_frames=32,enable_thinking=False \\
      --include_path $(framenest lmms-eval tasks --scorer blip2) \\
      --tasks framenest_videomme --log_samples --use_cache cache/
    """
    folder = write_tasks(common.local, **vars(choice), pairing=pairing, frames_as=frames_as, frames=frames)
    say(str(folder))


@command(lmms_eval)
def prepare(
    names: tuple[str, ...] = argument(nargs=-1, required=True, metavar="TASK…"),
    *,
    choice: TaskChoice,
    include_path: opt.Folder | None = option(
        "Folder of your own task files that include ours, in place of the three options above."
    ),
    budgets: opt.Budgets = option("Frame budgets; a ranking of MEC serves all.", required=True),
    part: Annotated[tuple[int, int], opt.Parsed("I/N", _part)] = option(
        "Every N-th video, beginning with the I-th; for N processes.", default="1/1"
    ),
    limit: opt.Count | None = option("Only so many questions of each task, as lmms-eval's --limit."),
    as_json: bool = option("Print counts and failures as JSON.", "--json"),
    common: opt.Common,
) -> None:
    """Select the frames of tasks before a model is loaded.

    Each video is decoded and encoded once for all its questions, selectors and budgets. What is in the cache
    is not selected again, so the same command goes on after an interruption.

    \b
    framenest lmms-eval prepare framenest_videomme --scorer blip2 \\
      --budgets 8,16,32,64,128,256 --part 1/8
    """
    folder = Path(include_path) if include_path else write_tasks(common.local, **vars(choice))
    report = run_preparation(names, folder, budgets, part=part, limit=limit, tell=note)
    for line in report["failures"]:
        fail(line)
    if as_json:
        print_json(report)
    else:
        say(
            f"{report['videos']:,} videos: {report['selected']:,} selections made in "
            f"{report['seconds'] / 3600:.2f} hours, {report['present']:,} were there, "
            f"{len(report['failures']):,} videos failed"
        )
    if report["failures"]:
        raise SystemExit(1)
