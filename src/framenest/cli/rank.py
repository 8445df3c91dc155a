"""framenest rank."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from click import get_current_context

from framenest.cli import options
from framenest.cli.many_videos import ManyVideos, rank_many
from framenest.cli.option_groups import (
    CHOICES,
    Common,
    Descriptions,
    KeptFeatures,
    ScorerChoice,
    VideoOptions,
)
from framenest.cli.option_types import Budgets, InputFile, Url, check_writable
from framenest.cli.options import argument, option
from framenest.cli.printing import print_facts, print_prefix, print_ranks
from framenest.cli.ranking_server import RankingServer
from framenest.cli.terminal import confirm, note, print_json, quiet
from framenest.config import IndexConfig, MECConfig
from framenest.errors import ConfigError, StoreError
from framenest.method.index import choose_probes
from framenest.method.mec import MEC, check_horizon
from framenest.method.ranking import Ranking
from framenest.protocols import Decoder
from framenest.records import read_rows
from framenest.text import one_line, slug
from framenest.transcript import NONE
from framenest.video.source import is_remote

TOP = 8
"""Ranks to print."""
WITH_SERVER = (
    "video", "question", "output", "budgets", "questions", "server", "no_question", "choices", "look_for",
    "preset", "horizon", "quiet", "verbose", "debug",
)  # fmt: skip
"""Parameters that work with --server: those its API takes, and those of this side alone."""


@options.command()
def rank(
    *,
    video: str | None = argument(required=False),
    question: str | None = argument(required=False),
    output: str | None = option(
        "Write the ranking as JSON (- is stdout). With --questions or --manifest: a folder.",
        "-o",
        metavar="FILE",
    ),
    budgets: Budgets = options.budgets("Also print the frames of this budget; may be repeated, or 8,16,32."),
    questions: InputFile | None = option("File with one question per line, or a JSON list."),
    server: Url | None = option(
        "Rank on a running `framenest serve`, such as http://127.0.0.1:8600, with its scorer. It must serve "
        "the video's folder (--videos). $FRAMENEST_TOKEN is its token. [default: $FRAMENEST_SERVER]",
        envvar="FRAMENEST_SERVER",
    ),
    no_question: bool = option("Rank by change, observability, coverage and diversity alone."),
    choices: tuple[str, ...] = CHOICES,
    descriptions: Descriptions,
    video_options: VideoOptions,
    features: KeptFeatures,
    scorer: ScorerChoice,
    manifest: InputFile | None = option(
        "CSV, JSON, JSON lines, Parquet or text with columns `video` and `question`.", panel=ManyVideos.panel
    ),
    many: ManyVideos,
    config: MECConfig,
    common: Common,
) -> int:
    """Rank the frames of VIDEO for QUESTION: one ranking, any budget.

    VIDEO is a file, a URL (http, https; s3 and others with the extra `remote`), or a folder of numbered
    images with --fps.

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
        options.refuse_others("not possible with --server; --server '' ranks here", *WITH_SERVER)
    _refuse_unscored(scorer, no_question)
    name = None if server or no_question else scorer.resolved(common)
    settings: dict[str, Any] = {"scoring": scorer.config, "keep_features": features.keep_features}
    if manifest is not None:
        if video is not None or question is not None or questions is not None or budgets:
            raise ConfigError("--manifest names videos and questions; give neither VIDEO, QUESTION nor -k")
        if descriptions.look_for:
            raise ConfigError("--look-for is for one question, not for --manifest")
        return rank_many(
            Path(manifest), output, many, common, video_options, name, settings | {"config": config}
        )
    if video is None:
        raise ConfigError("give a VIDEO, or --manifest FILE for many")
    options.refuse("it needs --manifest", *(entry.name for entry in fields(ManyVideos)))
    asked = _questions(question, questions, no_question)
    targets = _targets(output, asked, many=questions is not None)
    bars, look_for = common.bars(), descriptions.given()
    rank_for: Callable[..., Ranking]
    if server:
        remote = RankingServer(server, os.environ.get("FRAMENEST_TOKEN"))
        preset, horizon = get_current_context().params["preset"], config.ranking.horizon
        ask = {"options": choices, "look_for": look_for, "preset": preset, "horizon": horizon, "bars": bars}
        rank_for = partial(remote.rank, video, **ask)
    else:
        mec = MEC(config, name, store=common.cache, progress=bars, **settings)
        if is_remote(video) and name is not None:
            _ = mec.session.scorer  # loads while the video opens; a file is first checked to be a video
        opened = video_options.open(video, common)
        check_horizon(budgets, opened, config)
        _note_cost(opened, config.index)
        rank_for = partial(mec.rank, opened, options=choices, look_for=look_for or ())
    for text, target in zip(asked, targets, strict=True):
        with bars:
            ranking = rank_for(text)
        _deliver(ranking, budgets, target)
    return 0


def _refuse_unscored(scorer: ScorerChoice, no_question: bool) -> None:
    """Refuse scorer options that have no effect."""
    if no_question:
        scored = ("ocr", "text_weight", "rerank", "reranker", "calibration", "speech_weight")
        options.refuse("nothing is scored with --no-question", *scored)
    if not scorer.config.ocr:
        options.refuse("no text is read without --ocr FRAMES", "text_weight")
    if scorer.config.subtitles == NONE:
        options.refuse("no transcript is used with --subtitles none", "speech_weight")


def _note_cost(video: Decoder, config: IndexConfig) -> None:
    """Note how many more probes --max-gap takes than the default."""
    if config.max_gap is None:
        return
    wanted, usual = (len(choose_probes(video, one)[1]) for one in (config, replace(config, max_gap=None)))
    if wanted > usual:
        note(
            f"--max-gap {config.max_gap:g} takes {wanted:,} probes instead of {usual:,}: about "
            f"{wanted / usual:.1f} times the decoding and encoding for a first question"
        )


def _deliver(ranking: Ranking, budgets: list[int], target: str | None) -> None:
    """Write and print a ranking."""
    if target == "-":
        print_json(ranking.dumps())
        return
    prefixes = [ranking.prefix(size) for size in budgets]  # raises before a file is written
    if target is not None:
        ranking.save(target)
    if not quiet():
        print_facts(ranking)
    print_ranks(ranking, TOP)
    for prefix in prefixes:
        print_prefix(prefix)
    if target is not None:
        confirm("written to", target)


def _questions(question: str | None, file: str | None, no_question: bool) -> list[str | None]:
    if sum((question is not None, file is not None, no_question)) > 1:
        raise ConfigError("give only one of QUESTION, --questions and --no-question")
    if no_question:
        return [None]
    if file is not None:
        return [*_read_questions(Path(file))]
    if question is None or not question.strip():
        raise ConfigError("the question is empty; give a QUESTION, --questions FILE or --no-question")
    return [question]


def _read_questions(file: Path) -> list[str]:
    try:
        found = [row["question"].strip() for row in read_rows(file, only="question")]
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{file}: not UTF-8 text ({error.reason})") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{file}: not a JSON list of questions, nor one per line ({one_line(error)})"
        ) from error
    if not any(found):
        raise ConfigError(f"{file}: no questions in this file")
    return [question for question in found if question]


def _targets(output: str | None, asked: list[str | None], *, many: bool) -> list[str | None]:
    """Return where to write each ranking, once it is clear that it can be written."""
    if output is None or output == "-":
        return [output] * len(asked)
    if not many:
        return [str(check_writable(output))]
    digits = len(str(len(asked)))
    names = [f"{i:0{digits}d}-{slug(text or '', 'question')}.json" for i, text in enumerate(asked, start=1)]
    return [str(check_writable(Path(output, name))) for name in names]
