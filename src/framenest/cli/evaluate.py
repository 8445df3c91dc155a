"""framenest evaluate"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args

import rich_click as click
from rich.markup import escape

from framenest.cli import model_options, options, scorer_options
from framenest.cli.exports import OutputFile, PlotFile, write_json_file
from framenest.cli.model_options import THINKING, AnsweringModel, PictureOptions
from framenest.cli.options import Budgets, Common, SelectorNames, argument, option
from framenest.cli.scorer_options import KeptFeatures
from framenest.cli.terminal import confirm, note, out, say, table
from framenest.config import ScorerConfig
from framenest.errors import ConfigError, ModelError, StoreError
from framenest.evaluation.benchmarks import READERS as BENCHMARKS
from framenest.evaluation.benchmarks import BenchmarkQuestion, MediaFolder, QueryText, load_benchmark
from framenest.evaluation.grounded_questions import READERS, GroundedQuestion, NoStore, Part, load_questions
from framenest.evaluation.qa_results import TABLES, QaResults, Row, ScoredAnswers, cell, main_table, markdown
from framenest.evaluation.qa_run import QaPlan, QaRun, QaSettings
from framenest.evaluation.recall import ablations as run_ablations
from framenest.evaluation.recall import evaluate as measure_recall
from framenest.evaluation.recall import plot, plotting, write_csv
from framenest.evaluation.selection_cache import SelectionCache
from framenest.progress import Bars
from framenest.selectors import check_selector, needs_scorer, served_budgets
from framenest.session import Session
from framenest.transcript import SUBTITLE_SUFFIXES

RECALL_BUDGETS = "4,8,16,32,64,128,256"


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
    budgets: list[int] = option("Frame budgets to measure at.", default=RECALL_BUDGETS, type=Budgets()),
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
        measured = measure_recall(
            entries, selectors, budgets, session, weights=weights, seeds=seeds, progress=bars
        )
    result = {"scorer": question_set.scorer, "part": question_set.part, **measured}
    _print(result)
    write_json_file(json_file, result)
    if csv_file is not None:
        write_csv(result, csv_file)
    if plot_file is not None:
        plot(result, plot_file)


@click.command("ablations")
@options.from_parameters
def ablations(
    *,
    questions: str = argument(),
    json_file: Path | None = option("Write all numbers here.", flag="--json", type=OutputFile()),
    question_set: QuestionSet,
    scoring: ScorerConfig,
    common: Common,
) -> None:
    """The paper's component, schedule and horizon tables on QUESTIONS, with hit@K for accuracy.

    \b
    framenest evaluate ablations qa.json --scorer tags
    """
    entries = question_set.load(questions)
    with common.bars() as bars:
        session = question_set.session(scoring, common, bars)
        measured = run_ablations(entries, session, progress=bars)
    for title in ("components", "schedules"):
        rows = table("variant", "low", "medium", "high", "average", left=["variant"], title=title)
        for name, row in measured[title].items():
            rows.add_row(name, *(f"{100 * value:.2f}" for value in row.values()))
        out.print(rows)
    budgets = list(measured["horizons"]["256"])
    rows = table("M", *budgets, title="horizons (M \\ K)")
    for horizon, row in measured["horizons"].items():
        rows.add_row(horizon, *(f"{100 * row[k]:.2f}" if k in row else "–" for k in budgets))
    out.print(rows)
    write_json_file(json_file, {"scorer": question_set.scorer, **measured})


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


@click.command("table")
@options.from_parameters
def results_table(
    *,
    files: tuple[str, ...] = argument(nargs=-1, required=True),
    kind: str = option(
        "main: the paper's main table. regimes: Low, Med., High. budgets: a column each. cost: seconds.",
        type=click.Choice(list(TABLES)),
        default="main",
    ),
    as_markdown: bool = option("Print Markdown.", flag="--markdown"),
    json_file: Path | None = option("Write the rows here.", flag="--json", type=OutputFile()),
    common: Common,
) -> None:
    """Tables from the results in FILES, in percent.

    \b
    framenest evaluate table results.jsonl --markdown
    framenest evaluate table results.jsonl --kind regimes
    """
    for file in files:
        if not Path(file).is_file():
            raise StoreError(f"{file}: no such file")
    rows = TABLES[kind](ScoredAnswers([QaResults(file) for file in files]))
    if not rows:
        note(f"no answers for the table {kind!r} in {', '.join(files)}")
    if as_markdown:
        say(markdown(rows))
    else:
        print_rows(rows)
    write_json_file(json_file, rows)


def print_rows(rows: list[Row]) -> None:
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
        texts = [name for name in columns if any(isinstance(row.get(name), str) for row in group)]
        made = table(*columns, left=texts, wrap=["Selector"], gap=0)
        for row in group:
            made.add_row(*(cell(row.get(name)) for name in columns))
        out.print(made)


BENCHMARK_PANEL = "The benchmark"
FRAMES_PANEL = "The frames"
BUDGETS = "8,16,32,64,128,256"


@dataclass(frozen=True)
class Benchmark:
    """Which questions are asked, and where their videos lie."""

    panel: ClassVar = BENCHMARK_PANEL
    dataset: str = option("Which benchmark.", type=click.Choice(list(BENCHMARKS)), required=True)
    annotations: str = option(
        "The benchmark's own file (.parquet, .json, .jsonl), or a folder of them.",
        required=True,
        metavar="FILE",
    )
    videos: str = option("Folder that is searched for the videos by name.", required=True, metavar="DIR")
    category: str | None = option("Only questions of this category, such as long.", metavar="NAME")
    limit: int | None = option("Only the first so many questions.")
    part: tuple[int, int] | None = option(
        "Only the questions of every N-th video: 1/8 to 8/8 share the work among eight processes.",
        type=options.Part(),
    )
    send_subtitles: str | None = option(
        "Send the subtitles in this folder, whole, before the question. [default: never]", metavar="DIR"
    )

    def questions(self) -> list[BenchmarkQuestion]:
        """The questions that are asked."""
        every = load_benchmark(self.dataset, self.annotations)
        found = [q for q in every if self.category in (None, q.category)][: self.limit]
        if not found:
            raise ConfigError(f"{self.annotations}: no questions of category {self.category!r}")
        if self.part is None:
            return found
        number, of = self.part
        mine = set(sorted({question.video for question in found})[number - 1 :: of])
        return [question for question in found if question.video in mine]

    def folders(self, questions: list[BenchmarkQuestion]) -> tuple[MediaFolder, MediaFolder | None]:
        """Where videos and subtitles lie; notes what is missing there."""
        named, videos = {q.video for q in questions}, MediaFolder(self.videos)
        missing = videos.missing(q.video for q in questions)
        if len(missing) == len(named):
            videos.find(missing[0])
        if missing:
            note(f"{len(missing)} of {len(named)} videos are not in {self.videos}, as {missing[0]}")
        if self.send_subtitles is None:
            return videos, None
        subtitles = MediaFolder(self.send_subtitles, SUBTITLE_SUFFIXES)
        silent = {q.video for q in questions if subtitles.missing([q.subtitles])}
        if silent:
            without = f"{len(silent)} of {len(named)} videos have no subtitles in {self.send_subtitles}"
            note(f"{without}; asked without them")
        return videos, subtitles


@click.command("qa")
@click.option_panel("Options")
@click.option_panel(BENCHMARK_PANEL)
@click.option_panel(model_options.MODEL_PANEL)
@click.option_panel(FRAMES_PANEL)
@click.option_panel(options.SCORER_PANEL)
@options.from_parameters
def qa(
    *,
    benchmark: Benchmark,
    results: Path = option(
        "Answers are appended here; those that are there are not asked again.",
        type=OutputFile(),
        default="results.jsonl",
    ),
    jobs: int = option("Requests at a time.", default=4),
    model: AnsweringModel = options.group(
        thinking={"default": "off"},
        answer_tokens={"help": "The most that an answer may take. [default: 8192, thinking off 1024]"},
        temperature={"default": 0.0},
    ),
    budgets: list[int] = option(
        "Frame budgets to ask with.", default=BUDGETS, type=Budgets(), panel=FRAMES_PANEL
    ),
    selectors: list[str] = option(
        "Names between commas; mec:no-zoom and mec:horizon=64 are MEC with a preset or settings.",
        type=SelectorNames(),
        default="mec,uniform",
        panel=FRAMES_PANEL,
    ),
    scorer: str | None = option(
        "The scorer, which must be named: see `framenest models`.", metavar="NAME", panel=FRAMES_PANEL
    ),
    query: str = option(
        "The text that relevance is scored for: question or question+options, also by selector, as "
        "wfs-sb=question+options.",
        metavar="[SELECTOR=]TEXT,…",
        default="question",
        panel=FRAMES_PANEL,
    ),
    features: KeptFeatures,
    scoring: ScorerConfig,
    pictures: PictureOptions = options.group(pairing={"default": "pairs"}),
    plan: bool = option(
        "Select and ask nothing: print what would run where, how many frames, tokens and hours. Hours come "
        "from the answers in --results, so ask a few first, with --limit."
    ),
    common: Common,
) -> None:
    """Ask a model a benchmark's questions, with each selector's frames at each budget.

    One selection serves all budgets of a question. It may be stopped at any time: the same command goes
    on where it was. Run it again with another benchmark and the same --results to fill the table.

    \b
    framenest evaluate qa --dataset videomme --videos data/ \\
      --annotations test-00000-of-00001.parquet \\
      --base-url http://localhost:8000/v1 \\
      --scorer blip2 --selectors mec,uniform,aks,wfs-sb
    """
    if scorer is None and any(needs_scorer(name) for name in selectors):
        raise ConfigError("name the scorer that selects, as --scorer tags; `framenest models` lists them")
    model_options.refuse_pairing(model.style)
    scorer_options.refuse_reranker(scoring)
    if min(budgets) < 1 or jobs < 1:
        raise ConfigError("budgets and --jobs must be 1 or more")
    for selector in selectors:
        check_selector(selector, min(budgets))
        left = [k for k in budgets if k not in served_budgets(selector, budgets)]
        if left:
            note(f"{selector} ranks fewer frames; not asked at {', '.join(map(str, left))}")
    text = QueryText.parse(query)
    questions = benchmark.questions()
    if not questions:
        note("there are fewer videos than parts, and none in this one")
        return
    scorer_options.refuse_one_file(scoring, len({question.video for question in questions}))
    videos, subtitles = benchmark.folders(questions)
    file = QaResults(results)
    with model.client(may_think=True) as client, common.bars() as bars:
        if not plan:
            model_options.greet(client)
        elif model.model is None:
            raise ConfigError("with --plan no server is asked; name the model, as --model Qwen/Qwen3.5-9B")
        kept = SelectionCache(
            scorer,
            store=common.cache,
            progress=bars,
            scoring=scoring,
            keep_features=features.keep_features,
        )
        settings = QaSettings(
            dataset=benchmark.dataset,
            model=client.model,
            thinking=model.thinking,
            answer_tokens=client.max_tokens,
            temperature=model.temperature,
            scorer=kept.scorer,
            query=str(text),
            style=model.style,
            subtitles=subtitles is not None,
            annotations=Path(benchmark.annotations).absolute().name,
            **pictures.settings,
        )
        if plan:
            _print_plan(settings, videos, file, questions, selectors, budgets, jobs, model, scoring)
            return
        run = QaRun(settings, client, kept, videos, file, subtitles=subtitles, jobs=jobs, progress=bars)
        run(questions, selectors, sorted(set(budgets)))
    print_rows(main_table(ScoredAnswers([file])))
    thinking = next(name for name, value in THINKING.items() if value == model.thinking)
    how = f"{client.model}, thinking {thinking}, scorer {scorer or 'none'}, {len(questions)} questions"
    confirm(f"{how}; answers in", str(results))
    if run.failed:
        raise ModelError(
            f"{run.failed} answers are missing yet; the same command tries them again "
            f"(the last: {run.last_error})"
        )


def _print_plan(
    settings: QaSettings,
    videos: MediaFolder,
    results: QaResults,
    questions: list[BenchmarkQuestion],
    selectors: list[str],
    budgets: list[int],
    jobs: int,
    model: AnsweringModel,
    scoring: ScorerConfig,
) -> None:
    """What a run would do, and where."""
    plan = QaPlan(settings, videos, results, run=results.name_of(asdict(settings)), jobs=jobs)
    rows = plan.rows(questions, selectors, sorted(set(budgets)))
    print_rows([{name: _counted(value) for name, value in row.items()} for row in rows])
    named = len({question.video for question in questions})
    lost = plan.unreadable(questions)
    left = f", {lost} of them missing or unreadable and left out" if lost else ""
    say(f"{len(questions)} questions on {named} videos{left}")
    frames = plan.decoded(questions, selectors)
    where = f"{settings.scorer or 'no scorer'} on device {scoring.device}, in this process"
    say(f"selection: at most {frames:,} frames decoded and encoded, each once for all selectors; {where}")
    say(f"answers: {settings.model} at {model.base_url}, {jobs} requests at a time, style {settings.style}")
    if rows[-1]["Hours"] is None:
        say("hours: not known before some answers of each selector are there; run with --limit 20 first")


def _counted(value: object) -> object:
    return f"{value:,}" if isinstance(value, int) else value


@click.group()
def evaluate() -> None:
    """Measure selectors on question sets with known answers."""


for command in (recall, ablations, qa, results_table):
    evaluate.add_command(command)
