"""framenest evaluate qa, framenest evaluate table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import rich_click as click
from rich import box
from rich.markup import escape
from rich.table import Table

from framenest import lmm
from framenest.cache.archive import write_atomic
from framenest.cli import asking, options
from framenest.cli.ask import ANSWER_TOKENS, greet
from framenest.cli.files import check_writable
from framenest.cli.terminal import Bars, note, out
from framenest.errors import ConfigError, ModelError, StoreError
from framenest.evaluation.annotations import Folder, load_benchmark
from framenest.evaluation.benchmarks import READERS
from framenest.evaluation.qa import QaRun, QaSettings
from framenest.evaluation.results import Results
from framenest.evaluation.selection_cache import SelectionCache, check_horizons, check_selector, needs_scorer
from framenest.evaluation.subtitles import SUBTITLES
from framenest.evaluation.tables import TABLES, Row, ScoredRun, cell, main_table, markdown
from framenest.lmm.client import KEY_VARIABLE, Client
from framenest.protocols import Store

BUDGETS = "8,16,32,64,128,256"
SERVER = "server"
"""A setting that is left to the server: nothing is sent."""


class Temperature(click.ParamType[float | Literal["server"]]):
    """A number, or "server"."""

    name = "T|server"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | Literal["server"]:
        try:
            return "server" if value == SERVER else float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {SERVER!r}", param, ctx)


@click.command("qa")
@click.option_panel("Options")
@click.option_panel("The benchmark")
@click.option_panel("The model")
@click.option_panel("The frames")
@click.option("--dataset", type=click.Choice(list(READERS)), required=True, panel="The benchmark")
@click.option(
    "--annotations", required=True, metavar="FILE",
    help="The benchmark's own file (.parquet, .json, .jsonl), or a folder of them.", panel="The benchmark",
)  # fmt: skip
@click.option("--videos", required=True, metavar="DIR", help="Searched by name.", panel="The benchmark")
@click.option("--category", metavar="NAME", help="Only these, as long.", panel="The benchmark")
@click.option("--limit", type=int, help="Only the first so many questions.", panel="The benchmark")
@click.option(
    "--subtitles", metavar="DIR", help="Send subtitles from here. [default: never]", panel="The benchmark"
)
@click.option(
    "--results", default="results.jsonl", show_default=True, metavar="FILE",
    help="Answers are appended here; those that are there are not asked again.",
)  # fmt: skip
@click.option("--jobs", type=int, default=4, show_default=True, help="Requests at a time.")
@click.option(
    "--base-url", envvar="OPENAI_BASE_URL", required=True, metavar="URL", panel="The model",
    help="An OpenAI-compatible server, as http://localhost:8000/v1. [default: $OPENAI_BASE_URL]",
)  # fmt: skip
@click.option("--model", metavar="NAME", help="By default the only one the server has.", panel="The model")
@click.option(
    "--style", type=click.Choice(lmm.FOR_SERVERS), default="openai", show_default=True, panel="The model"
)
@click.option(
    "--thinking", type=click.Choice(["on", "off", SERVER]), default="off", show_default=True,
    help="on, off: sends chat_template_kwargs, which some servers refuse. server: sends nothing.",
    panel="The model",
)  # fmt: skip
@click.option("--answer-tokens", type=int, help="[default: 8192, thinking off 1024]", panel="The model")
@click.option("--temperature", type=Temperature(), default=0.0, show_default=True, panel="The model",
              help="server: sends none, for models that take no other than their own.")  # fmt: skip
@click.option("--retries", type=int, default=4, show_default=True, help="When it is busy.", panel="The model")
@click.option("--timeout", type=float, default=600, show_default=True, help="Seconds.", panel="The model")
@click.option(
    "--key-variable", default=KEY_VARIABLE, show_default=True, metavar="NAME", panel="The model",
    help="The environment variable that holds the API key, if one is needed.",
)  # fmt: skip
@click.option("--budgets", default=BUDGETS, show_default=True, type=options.Budgets(), panel="The frames")
@click.option(
    "--selectors", default="mec,uniform", show_default=True, panel="The frames",
    help="Names between commas; mec:no-zoom and mec:horizon=64 are MEC with a preset or settings.",
)  # fmt: skip
@click.option("--scorer", metavar="NAME", help="Named on purpose: see `framenest models`.",
              panel="The frames")  # fmt: skip
@click.option(
    "--query", type=click.Choice(["question", "question+options"]), default="question", show_default=True,
    help="The text that relevance is scored for.", panel="The frames",
)  # fmt: skip
@asking.pictures
@options.common
def qa(
    dataset: str,
    annotations: str,
    videos: str,
    category: str | None,
    limit: int | None,
    subtitles: str | None,
    results: str,
    jobs: int,
    base_url: str,
    model: str | None,
    style: str,
    thinking: Literal["on", "off", "server"],
    answer_tokens: int | None,
    temperature: float | Literal["server"],
    retries: int,
    timeout: float,
    key_variable: str,
    budgets: list[int],
    selectors: str,
    scorer: str | None,
    query: str,
    pairing: lmm.Pairing,
    tell_times: bool | None,
    limits: lmm.ImageLimits,
    cache: Store,
    quiet: bool,
) -> None:
    """Ask a model a benchmark's questions, with each selector's frames at each budget.

    One selection serves all budgets of a question. It may be stopped at any time: the same command goes
    on where it was. Run it again with another benchmark and the same --results to fill the table.

    \b
    framenest evaluate qa --dataset videomme --annotations test-00000-of-00001.parquet --videos data/ \\
      --base-url http://localhost:8000/v1 --scorer blip2 --selectors mec,uniform,aks,wfs-sb
    """
    names = options.names(selectors)
    for name in names:
        check_selector(name)
    if scorer is None and any(needs_scorer(name) for name in names):
        raise ConfigError("name the scorer that selects, as --scorer tags; `framenest models` lists them")
    if min(budgets) < 1 or jobs < 1:
        raise ConfigError("budgets and --jobs must be 1 or more")
    check_horizons(names, max(budgets))
    check_writable(Path(results))
    questions = [q for q in load_benchmark(dataset, annotations) if category in (None, q.category)][:limit]
    if not questions:
        raise ConfigError(f"{annotations}: no questions of category {category!r}")
    folder = Folder(videos)
    missing, named = folder.missing(q.video for q in questions), {q.video for q in questions}
    if len(missing) == len(named):
        folder.find(missing[0])
    if missing:
        note(f"{len(missing)} of {len(named)} videos are not in {videos}, as {missing[0]}")
    said = None if subtitles is None else Folder(subtitles, SUBTITLES)
    silent = {q.video for q in questions if said is not None and said.missing([q.subtitles])}
    if silent:
        note(f"{len(silent)} of {len(named)} videos have no subtitles in {subtitles}; asked without them")
    tokens = answer_tokens or ANSWER_TOKENS[thinking != "off"]
    thinks = None if thinking == SERVER else thinking == "on"
    warmth = None if temperature == SERVER else float(temperature)
    bars = Bars(quiet)
    with Client(
        base_url, model, key_variable=key_variable, timeout=timeout, retries=retries,
        thinking=thinks, max_tokens=tokens, temperature=warmth,
    ) as client:  # fmt: skip
        greet(client)
        kept = SelectionCache(scorer, store=cache, progress=bars)
        settings = QaSettings(
            dataset, client.model, thinks, tokens, warmth, kept.scorer, query, style, pairing,
            limits, subtitles is not None, tell_times, Path(annotations).absolute().name,
        )  # fmt: skip
        file = Results(results)
        run = QaRun(
            settings, client, kept, folder, file,
            subtitles=said, jobs=jobs, progress=bars,
        )  # fmt: skip
        with bars:
            run(questions, names, sorted(set(budgets)))
    _print(main_table(ScoredRun([file])))
    how = f"{client.model}, thinking {thinking}, scorer {scorer or 'none'}, {len(questions)} questions"
    out.print(f"[dim]{escape(how)}; answers in[/] {escape(results)}", soft_wrap=True)
    if run.failed:
        raise ModelError(
            f"{run.failed} answers are missing yet; the same command tries them again "
            f"(the last: {run.last_error})"
        )


@click.command("table")
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--kind", type=click.Choice(list(TABLES)), default="main", show_default=True,
    help="main: the paper's main table. regimes: Low, Med., High. budgets: a column each. cost: seconds.",
)  # fmt: skip
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--json", "json_file", metavar="FILE", help="Write the rows here.")
@options.common
def table(
    files: tuple[str, ...],
    kind: str,
    as_markdown: bool,
    json_file: str | None,
    cache: Store,
    quiet: bool,
) -> None:
    """Tables from the results in FILES, in percent.

    \b
    framenest evaluate table results.jsonl --markdown
    framenest evaluate table results.jsonl --kind regimes
    """
    for file in files:
        if not Path(file).is_file():
            raise StoreError(f"{file}: no such file")
    rows = TABLES[kind](ScoredRun([Results(file) for file in files]))
    if not rows:
        note(f"no answers for the table {kind!r} in {', '.join(files)}")
    if as_markdown:
        out.print(markdown(rows), soft_wrap=True, markup=False)
    else:
        _print(rows)
    if json_file is not None:
        write_atomic(Path(json_file), (json.dumps(rows, indent=1) + "\n").encode())


def _print(rows: list[Row]) -> None:
    """One table for each way of running, under a line that says what tells it from the others."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        own = list(row)[: min(list(row).index(name) for name in ("K", "Selector") if name in row)]
        title = ", ".join(f"{name} {row[name]}" for name in own if row[name] != "")
        groups.setdefault(title, []).append({name: row[name] for name in row if name not in own})
    for title, group in groups.items():
        if title:
            out.print(f"[bold]{escape(title)}[/]")
        columns = list(dict.fromkeys(name for row in group for name in row))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
        for name in columns:
            number = all(isinstance(row.get(name), (int, float, type(None))) for row in group)
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for row in group:
            table.add_row(*(cell(row.get(name)) for name in columns))
        out.print(table)
