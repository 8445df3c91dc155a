"""framenest evaluate recall."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import rich_click as click

from framenest.cli import options
from framenest.cli.common_options import Common
from framenest.cli.options import argument, option
from framenest.cli.output_files import OutputFile, PlotFile, write_json
from framenest.cli.parameter_types import Budgets, SelectorNames
from framenest.cli.terminal import note, out, table
from framenest.config import ScorerConfig
from framenest.errors import ConfigError
from framenest.evaluation.grounded_questions import READERS, GroundedQuestion, Part, load_questions
from framenest.evaluation.recall_output import plot, plotting, write_csv
from framenest.evaluation.recall_run import evaluate
from framenest.evaluation.timeline_decoder import NoStore
from framenest.progress_bars import Bars
from framenest.session import Session

BUDGETS = "4,8,16,32,64,128,256"


@dataclass(frozen=True)
class QuestionSet:
    """How a file of questions is read, and who scores them; for `recall` and `ablations`."""

    kind: str = option("The file's format.", type=click.Choice(list(READERS)), default="framenest")
    videos: str | None = option("Where the videos lie. [default: beside the file]", metavar="DIR")
    part: Part = option(
        "All questions, or one half of them, the same one each time.",
        type=click.Choice(get_args(Part)),
        default="all",
    )
    scorer: str = option(
        "Must be named: `framenest models` lists the scorers; noisy-truth:SNR needs no model at all.",
        required=True,
        metavar="NAME",
    )

    def load(self, file: str) -> list[GroundedQuestion]:
        """The questions."""
        return load_questions(file, kind=self.kind, videos=self.videos, part=self.part)

    def session(self, scoring: ScorerConfig, common: Common, bars: Bars) -> Session:
        """A session with the scorer."""
        store = NoStore() if self.kind == "timeline" else common.cache
        return Session(self.scorer, store=store, progress=bars, scoring=scoring)


@click.command("recall")
@options.from_parameters
def recall(
    *,
    questions: str = argument(),
    selectors: list[str] = option(
        "Names between commas; mec:residual and mec:horizon=64 are MEC with a preset or settings.",
        type=SelectorNames(),
        default="mec,uniform,top-k,aks,wfs-sb",
    ),
    budgets: list[int] = option("Frame budgets to measure at.", default=BUDGETS, type=Budgets()),
    budget_weights: str | None = option(
        "π: how much each budget counts. [default: equally]", metavar="8=2,16=1"
    ),
    seeds: int = option("Draws of noisy truth's noise, averaged.", default=1, type=click.IntRange(1)),
    json_file: Path | None = option("Write all numbers here.", flag="--json", type=OutputFile()),
    csv_file: Path | None = option("Write a row per selector and budget.", flag="--csv", type=OutputFile()),
    plot_file: Path | None = option(
        "Draw recall over budgets and seconds (.png, .svg, .pdf).", flag="--plot", type=PlotFile()
    ),
    question_set: QuestionSet,
    scoring: ScorerConfig,
    common: Common,
) -> None:
    """How often a selection holds a frame of what QUESTIONS ask about.

    QUESTIONS is a JSON list of {"video", "question", "intervals": [[start, end], …]} in seconds.

    \b
    framenest evaluate recall qa.json --scorer tags --selectors mec,aks \\
      --json recall.json
    framenest evaluate recall qa.json --scorer noisy-truth:2
    """
    if plot_file is not None:
        plotting()
    weights = _weights(budget_weights, budgets)
    entries = question_set.load(questions)
    with common.bars() as bars:
        session = question_set.session(scoring, common, bars)
        measured = evaluate(entries, selectors, budgets, session, weights=weights, seeds=seeds, progress=bars)
    result = {"scorer": question_set.scorer, "part": question_set.part, **measured}
    _print(result)
    write_json(json_file, result)
    if csv_file is not None:
        write_csv(result, csv_file)
    if plot_file is not None:
        plot(result, plot_file)


def _weights(text: str | None, budgets: list[int]) -> dict[int, float] | None:
    if text is None:
        return None
    try:
        given = {int(k): float(w) for k, w in (part.split("=") for part in text.split(","))}
    except ValueError as error:
        raise ConfigError(f"budget weights look like 8=2,16=1, not {text!r}") from error
    if set(given) - set(budgets) or min(given.values()) < 0 or sum(given.values()) <= 0:
        raise ConfigError(f"budget weights must be 0 or more, for budgets of {budgets}, not {text!r}")
    return dict.fromkeys(budgets, 0.0) | given


def _print(result: dict[str, Any]) -> None:
    out.print(f"[bold]hit@K[/] over {result['questions']} questions, scorer {result['scorer']}", markup=True)
    first = next(iter(result["selectors"].values()))
    budgets = [k for k in first if k != "all"]
    hits = table("selector", *budgets, "mean", "first hit", left=["selector"], wrap=["selector"], gap=0)
    few = "8" if "8" in budgets else budgets[0]
    measures = ("cov.", "gap", "red.", f"dup@{few}", "nest", "low", "med.", "high", "seen", "s")
    rest = table("selector", *measures, left=["selector"], wrap=["selector"], gap=0)
    for name, summary in result["selectors"].items():
        whole, last = summary["all"], summary[budgets[-1]]
        first_hit = whole["mean_first_hit"]
        hits.add_row(
            name,
            *(f"{summary[k]['hit']:.2f}" for k in budgets),
            f"{whole['objective']:.3f}",
            f"{first_hit:.1f}" if first_hit is not None else "–",
        )
        rest.add_row(
            name,
            *(_number(last[measure]) for measure in ("covered", "largest_gap", "redundancy")),
            _number(summary[few]["near_duplicates"]),
            _number(last["nesting"]),
            *(_number(whole.get(regime)) for regime in ("low", "medium", "high")),
            f"{whole['candidates']:.0f}",
            f"{whole['seconds']:.2f}",
        )
    out.print(hits)
    out.print(f"[dim]at K={budgets[-1]}, and per question for all budgets[/]")
    out.print(rest)
    margins = [
        (s[k]["hit_high"] - s[k]["hit_low"]) / 2 for s in result["selectors"].values() for k in budgets
    ]
    note(f"95 % intervals reach up to ±{max(margins):.2f}; differences within them mean little")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
