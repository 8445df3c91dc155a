"""framenest rank."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rich_click as click
from rich.markup import escape

from framenest.cache.directory import local_directory
from framenest.cli import asking, options
from framenest.cli.batch import Batch, job_for, run
from framenest.cli.files import check_writable, check_writable_folder
from framenest.cli.terminal import Bars, out, print_facts, print_prefix, print_ranks, short_path
from framenest.config import MECConfig, ScorerConfig
from framenest.corpus.batch_job import BatchJob
from framenest.corpus.manifest import ranking_groups
from framenest.corpus.run_report import write_rankings
from framenest.errors import BudgetError, ConfigError, StoreError
from framenest.method.index import choose_probes
from framenest.method.mec import MEC
from framenest.method.ranking import Ranking
from framenest.protocols import Decoder, ManagedStore
from framenest.text import slug
from framenest.video import open_video

TOP = 8


@click.command(cls=asking.WithSeveral)
@click.option_panel("Options")
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(options.BATCH_PANEL)
@click.option_panel(options.METHOD_PANEL)
@click.argument("video", required=False)
@click.argument("question", required=False)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the ranking here as JSON (- is stdout). With --questions or --manifest: a folder, one file "
    "per question.",
)
@click.option(
    "-k",
    "--budget",
    "budgets",
    type=options.Budgets(),
    multiple=True,
    help="Also print the frames of this budget, in time order; may be given again, or as 8,16,32.",
)
@click.option(
    "--questions", metavar="FILE", help="Many questions: one per line, or a JSON list. Indexes once."
)
@click.option(
    "--manifest",
    metavar="FILE",
    panel=options.BATCH_PANEL,
    help="Many videos: text, CSV, JSON, JSON lines or Parquet with columns `video` and `question`.",
)
@click.option(
    "--no-question", is_flag=True, help="Rank by change, observability, coverage and diversity alone."
)
@asking.choices
@options.batch
@options.video
@click.option("--keep-features", is_flag=True, help="Keep features on disk even where they take over 64 MiB.")
@options.scorer
@options.method
@options.common
def rank(
    video: str | None,
    question: str | None,
    output: str | None,
    budgets: tuple[list[int], ...],
    questions: str | None,
    manifest: str | None,
    no_question: bool,
    fps: float | None,
    stream: int | None,
    decoder: str,
    keep_features: bool,
    choices: tuple[str, ...],
    scorer: str,
    scoring: ScorerConfig,
    preset: str,
    cache: ManagedStore,
    quiet: bool,
    **settings: Any,
) -> int:
    """Rank the frames of VIDEO for QUESTION: one ranking, any budget.

    VIDEO is a file, an address (http, https; s3 and others with the extra `remote`), or a folder of
    numbered images with --fps.

    \b
    framenest rank kiln.mp4 "What does the potter do after firing?" -o kiln.json -k 8,16
    framenest rank kiln.mp4 --questions questions.txt -o rankings/
    framenest rank kiln.mp4 "What is fired?" --options cups tiles --relevance-text question+options
    framenest rank kiln.mp4 --no-question --start 60 --end 180
    framenest rank --manifest asked.csv -o rankings/ --jobs 8
    """
    batch = options.take(Batch, settings)
    if manifest is not None:
        if video is not None or question is not None or questions is not None or budgets:
            raise ConfigError("--manifest names videos and questions; give neither VIDEO, QUESTION nor -k")
        config = options.config_from(preset, settings)
        named = None if no_question or scorer == "none" else scorer
        job = job_for(
            cache,
            config=config,
            scorer=named,
            scoring=scoring,
            fps=fps,
            stream=stream,
            decoder=decoder,
            keep_features=keep_features,
        )
        return _rank_many(Path(manifest), output, job, batch, quiet)
    if video is None:
        raise ConfigError("give a VIDEO, or --manifest FILE for many")
    if batch.asked_for:
        raise ConfigError("--jobs, --engine and the other options for many videos need --manifest")
    asked = _questions(question, questions, no_question)
    sizes = options.flat(budgets)
    config = options.config_from(preset, settings)
    targets = _targets(output, asked, many=questions is not None)
    bars = Bars(quiet)
    mec = MEC(
        config,
        None if no_question else scorer,
        store=cache,
        progress=bars,
        keep_features=keep_features,
        scoring=scoring,
    )
    opened = open_video(video, fps=fps, stream=stream, decoder=decoder, store=cache)
    _check_budgets(sizes, opened, config)
    for text, target in zip(asked, targets, strict=True):
        with bars:
            ranking = mec.rank(opened, text, options=choices)
        if target == "-":
            out.file.write(ranking.dumps())
            continue
        if target is not None:
            ranking.save(target)
        _print(ranking, sizes, target)
    return 0


def _rank_many(manifest: Path, output: str | None, job: BatchJob, batch: Batch, quiet: bool) -> int:
    if output is None or output == "-":
        raise ConfigError("--manifest needs a folder for the rankings; give -o FOLDER")
    folder = Path(output).absolute()
    check_writable_folder(folder)
    groups = ranking_groups(manifest, folder, _settings(job), no_question=job.scorer is None)
    report = run(job, groups, batch, quiet, "rankings")
    listed = write_rankings(folder, groups)
    out.print(f"[dim]listed in[/] {escape(short_path(str(listed)))}", soft_wrap=True)
    return int(report.counts["failed"] > 0)


def _settings(job: BatchJob) -> list[Any]:
    """All that a ranking depends on beside video and question; not what only makes it faster."""
    scoring = {k: v for k, v in asdict(job.scoring).items() if k not in ("device", "batch")}
    file = Path((job.scorer or "").partition(":")[2])
    content = local_directory(job.store()).fingerprint(str(file)) if file.is_file() else None
    return [job.config.to_json(), job.scorer, content, scoring]


def _check_budgets(sizes: list[int], video: Decoder, config: MECConfig) -> None:
    """Refuse a budget that the ranking cannot serve, before the work."""
    if any(size < 1 for size in sizes):
        raise BudgetError(f"a frame budget must be 1 or more, not {min(sizes)}")
    horizon = config.ranking.horizon
    if sizes and max(sizes) > horizon and len(choose_probes(video, config.index)[1]) > horizon:
        raise BudgetError(
            f"a ranking of {horizon} ranks is too short for a budget of {max(sizes)}; "
            f"give --horizon {max(sizes)}"
        )


def _print(ranking: Ranking, sizes: list[int], target: str | None) -> None:
    print_facts(ranking)
    print_ranks(ranking, TOP)
    for size in sizes:
        print_prefix(ranking.prefix(size))
    if target is not None:
        out.print(f"[dim]written to[/] {escape(target)}", soft_wrap=True)


def _questions(question: str | None, file: str | None, none: bool) -> list[str | None]:
    given = [question is not None, file is not None, none]
    if sum(given) > 1:
        raise ConfigError("give a QUESTION, --questions or --no-question, not several of them")
    if none:
        return [None]
    if file is not None:
        return [*_read_questions(Path(file))]
    if question is None or not question.strip():
        raise ConfigError("the question is empty; give a QUESTION, --questions FILE or --no-question")
    return [question]


def _read_questions(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{file}: not a text in UTF-8 ({error.reason})") from error
    if text.lstrip()[:1] in ("[", "{"):
        try:
            listed = json.loads(text)
            if not isinstance(listed, list):
                raise TypeError(f"a {type(listed).__name__}")
            entries = [e["question"] if isinstance(e, dict) else e for e in listed]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file}: not a JSON list of questions ({error!r})") from error
        if not all(isinstance(entry, str) for entry in entries):
            raise ConfigError(f"{file}: every question must be a text")
    else:
        entries = text.splitlines()
    found = [entry.strip() for entry in entries if entry.strip()]
    if not found:
        raise ConfigError(f"{file}: no questions in this file")
    return found


def _targets(output: str | None, asked: list[str | None], *, many: bool) -> list[str | None]:
    """Where each ranking goes; checked before the work, not after."""
    if output is None or output == "-":
        return [output] * len(asked)
    if not many:
        check_writable(Path(output))
        return [output]
    folder = Path(output)
    digits = len(str(len(asked)))
    names = [f"{i + 1:0{digits}d}-{slug(text or '', 'question')}.json" for i, text in enumerate(asked)]
    check_writable(folder / names[0])
    return [str(folder / name) for name in names]
