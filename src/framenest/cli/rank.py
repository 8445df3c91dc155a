"""framenest rank"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from framenest.cli import options
from framenest.cli.exports import check_writable
from framenest.cli.many_videos import MANY_PANEL, ManyVideos
from framenest.cli.options import CHOICES, ChoicesCommand, Common, VideoOptions, argument, option
from framenest.cli.scorer_options import Descriptions, KeptFeatures, ScorerChoice
from framenest.cli.terminal import confirm, note, print_json, quiet
from framenest.config import IndexConfig, MECConfig
from framenest.errors import ConfigError, StoreError
from framenest.method.index import choose_probes
from framenest.method.mec import MEC, check_horizon
from framenest.method.ranking import Ranking
from framenest.progress import Bars
from framenest.protocols import Decoder
from framenest.records import read_rows
from framenest.text import one_line, slug
from framenest.transcript import NONE
from framenest.video.source import is_remote

if TYPE_CHECKING:
    from framenest.method.discovery import LookFor
    from framenest.method.ranking import Ranking


def rank_here(
    video: str,
    config: MECConfig,
    scorer: str | None,
    common: Common,
    how: VideoOptions,
    budgets: Sequence[int],
    settings: Mapping[str, Any],
) -> Callable[..., Ranking]:
    """`MEC.rank` of the open video, once it is clear that its ranking serves the budgets."""
    mec = MEC(config, scorer, store=common.cache, **settings)
    if is_remote(video):
        mec.session.begin_loading()  # else once it is clear that this is a video
    opened = how.open(video, common)
    check_horizon(budgets, opened, config)
    if config.index.max_gap is not None:
        _tell_cost(opened, config.index)
    return partial(mec.rank, opened)


def _tell_cost(video: Decoder, config: IndexConfig) -> None:
    """How much more --max-gap looks at than the default would."""
    wanted, usual = (len(choose_probes(video, one)[1]) for one in (config, replace(config, max_gap=None)))
    if wanted > usual:
        note(
            f"--max-gap {config.max_gap:g} looks at {wanted:,} probes instead of {usual:,}: about "
            f"{wanted / usual:.1f} times the decoding and encoding of a first question"
        )


TOP = 8
SENT = (
    "video", "question", "output", "budgets", "questions", "server", "no_question", "choices", "look_for",
    "preset", "horizon", "quiet", "verbose", "debug",
)  # fmt: skip
"""What can be given with --server: what its API takes, and what concerns this side alone."""


@click.command(cls=ChoicesCommand)
@click.option_panel("Options")
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(MANY_PANEL)
@click.option_panel(options.METHOD_PANEL)
@options.from_parameters
def rank(
    *,
    video: str | None = argument(required=False),
    question: str | None = argument(required=False),
    output: str | None = option(
        "Write the ranking here as JSON (- is stdout). With --questions or --manifest: a folder, one file "
        "per question.",
        short="-o",
        metavar="FILE",
    ),
    budgets: list[int] = options.budgets(
        "Also print the frames of this budget, in time order; may be given again, or as 8,16,32."
    ),
    questions: str | None = option(
        "Many questions: one per line, or a JSON list. Indexes once.", metavar="FILE"
    ),
    manifest: str | None = option(
        "Many videos: text, CSV, JSON, JSON lines or Parquet with columns `video` and `question`.",
        metavar="FILE",
        panel=MANY_PANEL,
    ),
    server: str | None = option(
        "Let a running `framenest serve` rank, as http://127.0.0.1:8600: no model is loaded here. It must "
        "offer the video's folder (--videos), and its scorer is used; $FRAMENEST_TOKEN if it needs one. "
        "[default: $FRAMENEST_SERVER, or none]",
        envvar="FRAMENEST_SERVER",
        metavar="URL",
    ),
    no_question: bool = option("Rank by change, observability, coverage and diversity alone."),
    choices: tuple[str, ...] = CHOICES,
    descriptions: Descriptions,
    many: ManyVideos,
    video_options: VideoOptions,
    kept: KeptFeatures,
    scorer: ScorerChoice,
    config: MECConfig,
    common: Common,
) -> int:
    """Rank the frames of VIDEO for QUESTION: one ranking, any budget.

    VIDEO is a file, an address (http, https; s3 and others with the extra `remote`), or a folder of
    numbered images with --fps.

    \b
    framenest rank kiln.mp4 "What happens after firing?" -o kiln.json -k 8,16
    framenest rank kiln.mp4 --questions questions.txt -o rankings/
    framenest rank kiln.mp4 "What is fired?" --options cups tiles \\
      --relevance-text question+options
    framenest rank kiln.mp4 "What happens after firing?" \\
      --look-for "a glowing kiln" --look-for "cups cooling"
    framenest rank kiln.mp4 --no-question --start 60 --end 180
    framenest rank --manifest asked.csv -o rankings/ --jobs 8
    framenest rank kiln.mp4 "What is fired?" --server http://127.0.0.1:8600
    """
    if server:
        options.refuse_others("not for --server, which ranks its own way; --server '' ranks here", *SENT)
    name = None if server else _scorer_name(scorer, common, no_question)
    if manifest is not None:
        if video is not None or question is not None or questions is not None or budgets:
            raise ConfigError("--manifest names videos and questions; give neither VIDEO, QUESTION nor -k")
        if descriptions.look_for:
            raise ConfigError("--look-for is for the question of one video, not for --manifest")
        from framenest.cli.many_videos import rank_many

        settings = {"config": config, "scoring": scorer.config, "keep_features": kept.keep_features}
        return rank_many(Path(manifest), output, many, common, video_options, name, settings)
    if video is None:
        raise ConfigError("give a VIDEO, or --manifest FILE for many")
    if many.asked_for:
        raise ConfigError("--jobs, --engine and the other options for many videos need --manifest")
    asked = _questions(question, questions, no_question)
    targets = _targets(output, asked, many=questions is not None)
    bars, look_for = common.bars(), descriptions.given()
    if server:
        ask = _ask_server(server, video, choices, look_for, config, bars)
    else:
        settings = {"keep_features": kept.keep_features, "scoring": scorer.config, "progress": bars}
        rank_video = rank_here(video, config, name, common, video_options, budgets, settings)
        ask = partial(rank_video, options=choices, look_for=look_for or ())
    for text, target in zip(asked, targets, strict=True):
        with bars:
            ranking = ask(text)
        _deliver(ranking, budgets, target)
    return 0


def _ask_server(
    url: str,
    video: str,
    choices: tuple[str, ...],
    look_for: LookFor | None,
    config: MECConfig,
    bars: Bars,
) -> Callable[[str | None], Ranking]:
    """What ranks for a question at a server."""
    from framenest.cli.ranking_server import RankingServer

    context = click.get_current_context()
    assert context is not None
    preset = context.params["preset"]
    remote = RankingServer(url, os.environ.get("FRAMENEST_TOKEN"))
    asked = {"options": choices, "look_for": look_for, "preset": preset, "horizon": config.ranking.horizon}
    return partial(remote.rank, video, **asked, bars=bars)


def _scorer_name(scorer: ScorerChoice, common: Common, no_question: bool) -> str | None:
    if no_question:
        scored = ("ocr", "text_weight", "rerank", "reranker", "calibration", "speech_weight")
        options.refuse("nothing is scored with --no-question", *scored)
        return None
    if not scorer.config.ocr:
        options.refuse("no text is read without --ocr FRAMES", "text_weight")
    if scorer.config.subtitles == NONE:
        options.refuse("nothing that is said is weighed with --subtitles none", "speech_weight")
    return scorer.resolved(common)


def _deliver(ranking: Ranking, budgets: list[int], target: str | None) -> None:
    """Write and print a ranking."""
    from framenest.cli.printing import print_facts, print_prefix, print_ranks

    if target == "-":
        print_json(ranking.dumps())
        return
    prefixes = [ranking.prefix(size) for size in budgets]  # refused before a file is written
    if target is not None:
        ranking.save(target)
    if not quiet():
        print_facts(ranking)
    print_ranks(ranking, TOP)
    for prefix in prefixes:
        print_prefix(prefix)
    if target is not None:
        confirm("written to", target)


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
        entries = [row["question"] for row in read_rows(file, only="question")]
        found = [entry.strip() for entry in entries if entry.strip()]
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{file}: not a text in UTF-8 ({error.reason})") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{file}: not a JSON list of questions, nor one on each line ({one_line(error)})"
        ) from error
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
    return [str(check_writable(folder / name)) for name in names]
