"""framenest evaluate qa."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import rich_click as click

from framenest.cli import model_options, options, scorer_options
from framenest.cli.common_options import Common
from framenest.cli.evaluate_table import print_rows
from framenest.cli.feature_options import KeptFeatures
from framenest.cli.model_options import THINKING, AnsweringModel, PictureOptions
from framenest.cli.options import option
from framenest.cli.output_files import OutputFile
from framenest.cli.parameter_types import Budgets, Part, SelectorNames
from framenest.cli.terminal import confirm, note, say
from framenest.config import ScorerConfig
from framenest.errors import ConfigError, ModelError
from framenest.evaluation.benchmarks import READERS, BenchmarkQuestion, load_benchmark
from framenest.evaluation.media_folder import MediaFolder
from framenest.evaluation.qa_plan import QaPlan
from framenest.evaluation.qa_results import QaResults
from framenest.evaluation.qa_run import QaRun, QaSettings
from framenest.evaluation.qa_tables import ScoredAnswers, main_table
from framenest.evaluation.query_text import QueryText
from framenest.evaluation.selection_cache import SelectionCache
from framenest.selectors import check_selector, needs_scorer, served_budgets
from framenest.transcript.subtitle_files import SUBTITLE_SUFFIXES

BENCHMARK_PANEL = "The benchmark"
FRAMES_PANEL = "The frames"
BUDGETS = "8,16,32,64,128,256"


@dataclass(frozen=True)
class Benchmark:
    """Which questions are asked, and where their videos lie."""

    panel: ClassVar = BENCHMARK_PANEL
    dataset: str = option("Which benchmark.", type=click.Choice(list(READERS)), required=True)
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
        type=Part(),
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
