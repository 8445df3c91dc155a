"""framenest evaluate and framenest lmms-eval."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import rich_click as click
from rich.markup import escape

from framenest.cache.files import write_atomic
from framenest.cli import options as opt
from framenest.cli.options import argument, command, option
from framenest.cli.printing import confirm, note, out, print_table, say, table
from framenest.config import DEFAULT_PRESET, ScorerConfig
from framenest.errors import ConfigError, ModelError, StoreError
from framenest.evaluation.benchmarks import READERS as BENCHMARKS
from framenest.evaluation.benchmarks import BenchmarkQuestion, MediaFolder, QueryText, load_benchmark
from framenest.evaluation.grounded_questions import (
    QUESTION_READERS,
    GroundedQuestion,
    NoStore,
    Part,
    load_questions,
)
from framenest.evaluation.lmms_eval import conventions
from framenest.evaluation.lmms_eval.tasks import SELECTORS, write_tasks
from framenest.evaluation.qa_results import TABLES, QaResults, Row, ScoredAnswers, cell, main_table, markdown
from framenest.evaluation.qa_run import QaRun, QaSettings
from framenest.evaluation.qa_run import plan as plan_run
from framenest.evaluation.recall import ablations as run_ablations
from framenest.evaluation.recall import evaluate as measure_recall
from framenest.evaluation.selection_cache import SelectionCache
from framenest.progress import Bars
from framenest.selectors import check_selector, needs_scorer, served_budgets
from framenest.session import Session
from framenest.transcript import NONE, SUBTITLE_SUFFIXES

JSON_FILE = option("Write all numbers here.", "--json")


@dataclass(frozen=True)
class QuestionSet:
    """Which questions to use, and which scorer; for `recall` and `ablations`."""

    kind: str = option("Format of QUESTIONS.", type=click.Choice(list(QUESTION_READERS)), default="framenest")
    videos: opt.Folder | None = option("Folder of the videos. [default: the folder of QUESTIONS]")
    part: Part = option("All questions, or a fixed half of them.", default="all")
    scorer: str = option("A name from `framenest models`, or noisy-truth:SNR for no model.", required=True)

    def load(self, file: str) -> list[GroundedQuestion]:
        """Load the questions."""
        return load_questions(file, kind=self.kind, videos=self.videos, part=self.part)

    def session(self, scoring: ScorerConfig, common: opt.Common, bars: Bars) -> Session:
        """Open a session with the scorer."""
        store = NoStore() if self.kind == "timeline" else common.cache
        return Session(self.scorer, store=store, progress=bars, scoring=scoring)


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
    entries = question_set.load(questions)
    with common.bars() as bars:
        session = question_set.session(scoring, common, bars)
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
        hit = {k: summary[k]["hit"] for k in budgets}
        first_hit = whole["mean_first_hit"]
        hits.append({"Selector": name, **hit, "mean": whole["objective"], "first hit": first_hit})
        rest.append(
            {
                "Selector": name,
                "cov.": last["covered"],
                "gap": last["largest_gap"],
                "red.": last["redundancy"],
                f"dup@{few}": summary[few]["near_duplicates"],
                "nest": last["nesting"],
                "low": whole.get("low"),
                "med.": whole.get("medium"),
                "high": whole.get("high"),
                "seen": round(whole["candidates"]),
                "s": whole["seconds"],
            }
        )
    out.print(f"[bold]hit@K[/] over {result['questions']} questions, scorer {escape(result['scorer'])}")
    print_rows(hits)
    out.print(f"[dim]at K={budgets[-1]}, and per question for all budgets[/]")
    print_rows(rest)
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
    entries = question_set.load(questions)
    with common.bars() as bars:
        session = question_set.session(scoring, common, bars)
        measured = run_ablations(entries, session, progress=bars)
    for part in ("components", "schedules", "horizons"):
        print_rows(
            [
                {"Ablation": part, "Selector": name, **{column: 100 * value for column, value in row.items()}}
                for name, row in measured[part].items()
            ]
        )
    _write_json(json_file, {"scorer": question_set.scorer, **measured})


FRAMES_PANEL = "The frames"
PROMPT_PANEL = "The prompt"


def _share(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"{text!r} is not a part; write the second of eight as 2/8")
    return int(match[1]), int(match[2])


@dataclass(frozen=True)
class Benchmark:
    """Which questions to ask, and where their videos are."""

    panel: ClassVar = "The benchmark"
    dataset: str = option("Which benchmark.", type=click.Choice(list(BENCHMARKS)), required=True)
    annotations: opt.InputFile = option("The benchmark's own file, or a folder of them.", required=True)
    videos: opt.Folder = option("Folder to search for the videos by name.", required=True)
    category: str | None = option("Only questions of this category, such as long.")
    limit: int | None = option("Only the first this many questions.")
    part: tuple[int, int] | None = option(
        "Only the questions of every N-th video: 1/8 to 8/8 split the work among eight processes.",
        type=opt.Parsed("I/N", _share),
    )
    prompt_transcripts: opt.Folder | None = option(
        "Put the subtitle files of this folder, as text, before the question.", panel=PROMPT_PANEL
    )

    def questions(self) -> list[BenchmarkQuestion]:
        """Load the questions to ask."""
        every = load_benchmark(self.dataset, self.annotations)
        chosen = [q for q in every if self.category in (None, q.category)][: self.limit]
        if not chosen:
            raise ConfigError(f"{self.annotations}: no questions of category {self.category!r}")
        if self.part is None:
            return chosen
        number, of = self.part
        mine = set(sorted({question.video for question in chosen})[number - 1 :: of])
        return [question for question in chosen if question.video in mine]

    def folders(
        self, questions: list[BenchmarkQuestion], scoring: ScorerConfig
    ) -> tuple[MediaFolder, MediaFolder | None]:
        """Find the videos and the subtitles to send; note what is missing or not sent."""
        named, videos = {q.video for q in questions}, MediaFolder(self.videos)
        missing = sorted(name for name in named if not videos.has(name))
        if len(missing) == len(named):
            videos.find(missing[0])  # raises
        if missing:
            note(f"{len(missing)} of {len(named)} videos are not in {self.videos}, such as {missing[0]}")
        if self.prompt_transcripts is None:
            if scoring.subtitles not in (None, NONE):
                note("--subtitles chooses frames; --prompt-transcripts DIR sends the text to the model")
            return videos, None
        subtitles = MediaFolder(self.prompt_transcripts, SUBTITLE_SUFFIXES)
        without = {q.video for q in questions if not subtitles.has(q.subtitles)}
        if without:
            note(f"{len(without)} of {len(named)} videos have no subtitles in {self.prompt_transcripts}")
        return videos, subtitles


@dataclass(frozen=True)
class Prompting:
    """What the model is told besides the question, and how its answer is read."""

    panel: ClassVar = PROMPT_PANEL
    prompt: conventions.Wording = option("The paper's prompt, or lmms-eval's own.", default="paper")
    system: str | None = option(
        "System prompt. [default: none; lmms-eval's qwen3_5 sends “You are a helpful assistant.”]"
    )
    parse: conventions.Parse = option(
        "How the letter is read. lmms-eval: as its tasks do, from at most 16 to 64 tokens with thinking off.",
        default="framenest",
    )

    def limited(self, model: opt.AnsweringModel, dataset: str) -> opt.AnsweringModel:
        """The model with the token limit of lmms-eval's task, which is too low for thinking."""
        theirs = self.parse == "lmms-eval" and model.thinks is False
        limit = conventions.ANSWER_TOKENS[dataset] if theirs else None
        return replace(model, answer_tokens=model.answer_tokens or limit)


@command(evaluate)
def qa(
    *,
    results: opt.OutputFile = option(
        "Append answers here; questions answered there are not asked again.", default="results.jsonl"
    ),
    jobs: opt.Count = option("Concurrent requests.", default=4),
    keep_features: bool | None = opt.KEEP_FEATURES,
    images: opt.ImageOptions = opt.adapt(pairing={"default": "pairs"}),
    plan: bool = option(
        "Ask nothing; print what would run where, and how many frames, tokens and hours. Hours come from the "
        "answers in --results, so ask a few first, with --limit."
    ),
    benchmark: Benchmark,
    prompting: Prompting,
    json_file: opt.OutputFile | None = option("Write the table's rows here.", "--json"),
    model: opt.AnsweringModel = opt.adapt(
        thinking={"default": "off"},
        answer_tokens={"help": "Maximum tokens of an answer. [default: 8192; 1024 with thinking off]"},
        temperature={"default": 0.0},
    ),
    budgets: opt.Budgets = option(
        "Frame budgets to ask with.", default="8,16,32,64,128,256", panel=FRAMES_PANEL
    ),
    selectors: opt.SelectorNames = option(
        "Selectors to compare; mec:no-zoom and mec:horizon=64 are MEC with a preset or settings.",
        default="mec,uniform",
        panel=FRAMES_PANEL,
    ),
    scorer: str | None = option("A scorer from `framenest models`.", panel=FRAMES_PANEL),
    query: str = option(
        "Text to score frames against: question or question+options; per selector as in "
        "wfs-sb=question+options.",
        metavar="[SELECTOR=]TEXT,…",
        default="question",
        panel=FRAMES_PANEL,
    ),
    scoring: ScorerConfig,
    common: opt.Common,
) -> None:
    """Ask a model a benchmark's questions, with each selector's frames at each budget.

    One selection serves all budgets of a question. To resume an interrupted run, run the same command again.
    Run it with another benchmark and the same --results to fill the table.

    \b
    framenest evaluate qa --dataset videomme --videos data/ \\
      --annotations test-00000-of-00001.parquet \\
      --base-url http://localhost:8000/v1 \\
      --scorer blip2 --selectors mec,uniform,aks,wfs-sb
    """
    if scorer is None and any(needs_scorer(name) for name in selectors):
        raise ConfigError("give a scorer, such as --scorer tags; `framenest models` lists them")
    opt.refuse_pairing(model.style)
    for selector in selectors:
        check_selector(selector, min(budgets))
        left = [k for k in budgets if k not in served_budgets(selector, budgets)]
        if left:
            note(f"{selector} ranks fewer frames; not asked at {', '.join(map(str, left))}")
    text = QueryText(query)
    questions = benchmark.questions()
    if not questions:
        note("there are fewer videos than parts, and none in this part")
        return
    opt.refuse_one_file(scoring, len({question.video for question in questions}))
    videos, subtitles = benchmark.folders(questions, scoring)
    file = QaResults(results)
    with prompting.limited(model, benchmark.dataset).client(may_think=True) as client, common.bars() as bars:
        if not plan:
            opt.check_server(client)
        elif model.model is None:
            raise ConfigError("--plan asks no server; name the model, such as --model Qwen/Qwen3.5-9B")
        selections = SelectionCache(
            scorer, store=common.cache, progress=bars, scoring=scoring, keep_features=keep_features
        )
        settings = QaSettings(
            dataset=benchmark.dataset,
            model=client.model,
            thinking=model.thinks,
            answer_tokens=client.max_tokens,
            temperature=model.temperature,
            scorer=selections.scorer,
            query=str(text),
            style=model.style,
            transcripts_sent=subtitles is not None,
            annotations=Path(benchmark.annotations).absolute().name,
            **vars(prompting),
            **images.settings,
        )
        if plan:
            rows, lost = plan_run(settings, questions, selectors, budgets, videos, file, jobs)
            _print_plan(questions, rows, lost)
            say(f"selection: {selections.scorer or 'no scorer'} on device {scoring.device}, in this process")
            where = f"{client.model} at {model.base_url}"
            say(f"answers: {where}, {jobs} concurrent requests, style {model.style}")
            return
        run = QaRun(settings, client, selections, videos, file, subtitles=subtitles, jobs=jobs, progress=bars)
        run(questions, selectors, budgets)
    rows = main_table(ScoredAnswers([file]))
    print_rows(rows)
    _write_json(json_file, rows)
    how = f"{client.model}, thinking {model.thinking}, scorer {scorer or 'none'}, {len(questions)} questions"
    confirm(f"{how}; answers in", str(results))
    if run.failed:
        raise ModelError(
            f"{run.failed} answers are missing; run the same command to retry (last error: {run.last_error})"
        )


def _print_plan(questions: list[BenchmarkQuestion], rows: list[Row], lost: int) -> None:
    """Print what a run would ask. lost: how many videos are missing or unreadable."""
    print_rows([{name: f"{v:,}" if isinstance(v, int) else v for name, v in row.items()} for row in rows])
    left_out = f", {lost} of them missing or unreadable and left out" if lost else ""
    say(f"{len(questions)} questions on {len({question.video for question in questions})} videos{left_out}")
    if rows[-1]["Hours"] is None:
        say("hours: unknown until each selector has some answers; run with --limit 20 first")


@command(evaluate, name="table")
def results_table(
    *,
    files: tuple[str, ...] = argument(nargs=-1, required=True),
    kind: str = option(
        "main: the paper's main table. regimes: low, medium, high. budgets: one column each. cost: seconds.",
        type=click.Choice(list(TABLES)),
        default="main",
    ),
    as_markdown: bool = option("Print Markdown.", "--markdown"),
    json_file: opt.OutputFile | None = option("Write the rows here.", "--json"),
    common: opt.Common,
) -> None:
    """Print tables, in percent, from the results in FILES.

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
    _write_json(json_file, rows)


def print_rows(rows: list[Row]) -> None:
    """Print one table per setup; its columns before K and Selector become the title."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        setup = list(row)[: min(list(row).index(name) for name in ("K", "Selector") if name in row)]
        title = ", ".join(f"{name} {row[name]}" for name in setup if row[name] != "")
        groups.setdefault(title, []).append({name: row[name] for name in row if name not in setup})
    for title, group in groups.items():
        if title:
            out.print(f"[bold]{escape(title)}[/]")
        columns = list(dict.fromkeys(name for row in group for name in row))
        texts = [name for name in columns if any(isinstance(row.get(name), str) for row in group)]
        grid = table(*columns, texts=texts)
        for row in group:
            grid.add_row(*(cell(row.get(name)) or "–" for name in columns))
        print_table(grid)


@click.group("lmms-eval")
def lmms_eval() -> None:
    """Evaluate with lmms-eval on frames that Framenest selects."""


@command(lmms_eval)
def tasks(
    *,
    selectors: str = option("One task for each.", default=",".join(SELECTORS), metavar="NAME,…"),
    list_names: bool = option("Print the names of the tasks instead.", "--list"),
    common: opt.Common,
) -> None:
    """Write the task files, and print their folder for --include_path.

    K is the model's own frame argument. $FRAMENEST_SCORER, $FRAMENEST_SELECTOR, $FRAMENEST_DEVICE and
    others set the rest (docs/evaluation.md).

    \b
    python -m lmms_eval --model qwen3_5 \\
      --model_args pretrained=Qwen/Qwen3.5-9B,max_num_frames=32 \\
      --tasks framenest_videomme --include_path $(framenest lmms-eval tasks)
    """
    folder = write_tasks(common.local, [name.strip() for name in selectors.split(",") if name.strip()])
    if list_names:
        for file in sorted(folder.glob("*.yaml")):
            say(file.stem)
    else:
        say(str(folder))
