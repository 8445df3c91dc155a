"""framenest rank, framenest index."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import rich_click as click
from rich.markup import escape

from framenest.cli import options
from framenest.cli.files import check_writable
from framenest.cli.terminal import Bars, note, out, print_facts, print_prefix, print_ranks
from framenest.config import MECConfig, ScorerConfig
from framenest.errors import BudgetError, ConfigError, StoreError, VideoError
from framenest.index import choose_probes
from framenest.mec import MEC
from framenest.protocols import Decoder
from framenest.report.sheet import clock
from framenest.result import Ranking
from framenest.store import DirectoryStore, size_text
from framenest.video import open_video

TOP = 8


@click.command()
@click.option_panel("Options")
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(options.METHOD_PANEL)
@click.argument("video")
@click.argument("question", required=False)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the ranking here as JSON (- is stdout). With --questions: a folder, one file per question.",
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
    "--no-question", is_flag=True, help="Rank by change, observability, coverage and diversity alone."
)
@click.option(
    "--option",
    "answers",
    multiple=True,
    metavar="TEXT",
    help="An answer to choose from; give it once for each. Scored with --relevance-text question+options.",
)
@options.video
@click.option("--keep-features", is_flag=True, help="Keep features on disk even where they take over 64 MiB.")
@options.scorer
@options.method
@options.common
def rank(
    video: str,
    question: str | None,
    output: str | None,
    budgets: tuple[list[int], ...],
    questions: str | None,
    no_question: bool,
    fps: float | None,
    stream: int | None,
    decoder: str,
    keep_features: bool,
    answers: tuple[str, ...],
    scorer: str,
    scoring: ScorerConfig,
    preset: str,
    cache: DirectoryStore,
    quiet: bool,
    **settings: Any,
) -> None:
    """Rank the frames of VIDEO for QUESTION: one ranking, any budget.

    VIDEO is a file, an address (http, https; s3 and others with the extra `remote`), or a folder of
    numbered images with --fps.

    \b
    framenest rank kiln.mp4 "What does the potter do after firing?" -o kiln.json -k 8,16
    framenest rank kiln.mp4 --questions questions.txt -o rankings/
    framenest rank kiln.mp4 --no-question --start 60 --end 180
    """
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
            ranking = mec.rank(opened, text, options=answers)
        if target == "-":
            out.file.write(ranking.dumps())
            continue
        if target is not None:
            ranking.save(target)
        _print(ranking, sizes, target)


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
    names = [f"{i + 1:0{digits}d}-{_slug(text or '')}.json" for i, text in enumerate(asked)]
    check_writable(folder / names[0])
    return [str(folder / name) for name in names]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "question"


@click.command()
@click.option_panel("Options")
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(options.METHOD_PANEL)
@click.argument("videos", nargs=-1, required=True)
@options.video
@click.option("--keep-features", is_flag=True, help="Keep features on disk even where they take over 64 MiB.")
@options.scorer
@options.index_settings
@options.common
def index(
    videos: tuple[str, ...],
    fps: float | None,
    stream: int | None,
    decoder: str,
    keep_features: bool,
    scorer: str,
    scoring: ScorerConfig,
    cache: DirectoryStore,
    quiet: bool,
    **settings: Any,
) -> None:
    """Index VIDEOS once, so that questions asked later need not decode them again.

    With --scorer none only the index is made, without features for a scorer.

    \b
    framenest index lectures/*.mp4
    """
    config = options.config_from("paper", settings)
    bars, failed = Bars(quiet), 0
    mec = MEC(
        config,
        None if scorer == "none" else scorer,
        store=cache,
        progress=bars,
        keep_features=keep_features,
        scoring=scoring,
    )
    for video in videos:
        try:
            with bars:
                made = mec.index(open_video(video, fps=fps, stream=stream, decoder=decoder, store=cache))
        except VideoError as error:
            if len(videos) == 1:
                raise
            note(str(error))
            failed += 1
            continue
        lost = f", {len(made.substitutes)} undecodable" if len(made.substitutes) else ""
        out.print(
            f"{video}: {len(made)} probes over {clock(made.video.duration)}, "
            f"at most {made.largest_gap:.2f} s apart{lost}; "
            f"timeline from {size_text(made.video.timeline_bytes)}",
            soft_wrap=True,
            markup=False,
        )
        for text in made.video.notes:
            note(f"{video}: {text}")
    if failed:
        raise VideoError(f"{failed} of {len(videos)} videos could not be indexed")
