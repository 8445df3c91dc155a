"""framenest evaluate recall, framenest evaluate ablations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import rich_click as click
from rich import box
from rich.table import Table

from framenest.cache.archive import write_atomic
from framenest.cli import options
from framenest.cli.files import check_writable
from framenest.cli.terminal import Bars, note, out
from framenest.config import ScorerConfig
from framenest.errors import ConfigError
from framenest.evaluation.output import plot, plotting, write_csv
from framenest.evaluation.questions import READERS, load_questions
from framenest.evaluation.run import ablations as run_ablations
from framenest.evaluation.run import evaluate as run_recall
from framenest.protocols import Store
from framenest.selectors import FILE, selector_names
from framenest.session import Session

BUDGETS = "4,8,16,32,64,128,256"


@click.group()
def evaluate() -> None:
    """Measure selectors on question sets with known answers."""


def _question_options(command: Any) -> Any:
    kind = click.option(
        "--kind", type=click.Choice(list(READERS)), default="framenest", show_default=True,
        help="The file's format.",
    )  # fmt: skip
    videos = click.option("--videos", metavar="DIR", help="Where the videos lie. [default: beside the file]")
    return kind(videos(command))


@evaluate.command("recall")
@click.argument("questions")
@click.option("--selectors", default="mec,uniform,top-k,aks,wfs-sb", show_default=True)
@click.option("--budgets", default=BUDGETS, show_default=True, type=options.Budgets())
@click.option(
    "--budget-weights", metavar="8=2,16=1", help="π: how much each budget counts. [default: equally]"
)
@click.option("--json", "json_file", metavar="FILE", help="Write all numbers here.")
@click.option("--csv", "csv_file", metavar="FILE", help="Write a row per selector and budget.")
@click.option(
    "--plot", "plot_file", metavar="FILE", help="Draw recall over budgets and seconds (.png, .svg)."
)
@_question_options
@click.option(
    "--scorer",
    required=True,
    metavar="NAME",
    help="Named on purpose: `framenest models` lists them; noisy-truth:SNR needs no model at all.",
)
@options.scoring
@options.common
def recall(
    questions: str,
    selectors: str,
    budgets: list[int],
    budget_weights: str | None,
    json_file: str | None,
    csv_file: str | None,
    plot_file: str | None,
    kind: str,
    videos: str | None,
    scorer: str,
    scoring: ScorerConfig,
    cache: Store,
    quiet: bool,
) -> None:
    """How often a selection holds a frame of what QUESTIONS ask about.

    QUESTIONS is a JSON list of {"video", "question", "intervals": [[start, end], …]} in seconds.

    \b
    framenest evaluate recall qa.json --scorer tags --selectors mec,aks --json recall.json
    framenest evaluate recall qa.json --scorer noisy-truth:2
    """
    for file in (json_file, csv_file, plot_file):
        if file is not None:
            check_writable(Path(file))
    if plot_file is not None:
        plotting()
    names = options.names(selectors)
    for name in names:
        if name not in selector_names() and not name.startswith(FILE):
            raise ConfigError(f"there is no selector {name!r}; choose from {', '.join(selector_names())}")
    weights = _weights(budget_weights, budgets)
    entries = load_questions(questions, kind=kind, videos=videos)
    snr = _snr(scorer)
    bars = Bars(quiet)
    space = Session(None if snr is not None else scorer, store=cache, progress=bars, scoring=scoring)
    with bars:
        result = run_recall(entries, names, budgets, space, snr=snr, weights=weights, progress=bars)
    result = {"scorer": scorer, **result}
    _print_recall(result)
    if json_file is not None:
        write_atomic(Path(json_file), (json.dumps(result, indent=1) + "\n").encode())
    if csv_file is not None:
        write_csv(result, csv_file)
    if plot_file is not None:
        plot(result, plot_file)


def _snr(scorer: str) -> float | None:
    if not scorer.startswith("noisy-truth"):
        return None
    try:
        return float(scorer.partition(":")[2])
    except ValueError as error:
        raise ConfigError(f"noisy truth needs its ratio, as in noisy-truth:2, not {scorer!r}") from error


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


def _print_recall(result: dict[str, Any]) -> None:
    out.print(f"[bold]hit@K[/] over {result['questions']} questions, scorer {result['scorer']}", markup=True)
    first = next(iter(result["selectors"].values()))
    budgets = [k for k in first if k != "all"]
    hits = _table("selector", (*budgets, "mean", "first hit"))
    rest = _table("selector", ("cov.", "gap", "red.", "nest", "low", "med.", "high", "seen", "s"))
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
            *(_number(last[measure]) for measure in ("covered", "largest_gap", "redundancy", "nesting")),
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


def _table(first: str, headings: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


@evaluate.command("ablations")
@click.argument("questions")
@click.option("--json", "json_file", metavar="FILE", help="Write all numbers here.")
@_question_options
@click.option("--scorer", required=True, metavar="NAME", help="Named on purpose, as for `recall`.")
@options.scoring
@options.common
def ablations(
    questions: str,
    json_file: str | None,
    kind: str,
    videos: str | None,
    scorer: str,
    scoring: ScorerConfig,
    cache: Store,
    quiet: bool,
) -> None:
    """The paper's component, schedule and horizon tables on QUESTIONS, with hit@K for accuracy.

    \b
    framenest evaluate ablations qa.json --scorer tags
    """
    if json_file is not None:
        check_writable(Path(json_file))
    entries = load_questions(questions, kind=kind, videos=videos)
    bars = Bars(quiet)
    snr = _snr(scorer)
    space = Session(None if snr is not None else scorer, store=cache, progress=bars, scoring=scoring)
    with bars:
        result = {"scorer": scorer} | run_ablations(entries, space, snr=snr, progress=bars)
    for title in ("components", "schedules"):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("variant")
        for heading in ("low", "medium", "high", "average"):
            table.add_column(heading, justify="right")
        for name, row in result[title].items():
            table.add_row(name, *(f"{100 * value:.2f}" for value in row.values()))
        out.print(table)
    table = Table(title="horizons (M \\ K)", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    budgets = list(result["horizons"]["256"])
    for heading in ("M", *budgets):
        table.add_column(heading, justify="right")
    for horizon, row in result["horizons"].items():
        table.add_row(horizon, *(f"{100 * row[k]:.2f}" if k in row else "–" for k in budgets))
    out.print(table)
    if json_file is not None:
        write_atomic(Path(json_file), (json.dumps(result, indent=1) + "\n").encode())
