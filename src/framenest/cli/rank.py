"""framenest rank."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from framenest.cli import options
from framenest.cli.many_videos import ManyVideos, rank_many
from framenest.cli.option_groups import (
    CHOICES,
    KEEP_FEATURES,
    LOOK_FOR,
    Common,
    MethodOptions,
    ScorerChoice,
    VideoOptions,
)
from framenest.cli.options import Budgets, InputFile, Url, argument, check_writable, option
from framenest.cli.printing import print_facts, print_prefix, print_ranks
from framenest.cli.ranking_server import RankingServer
from framenest.cli.terminal import confirm, print_json, quiet
from framenest.errors import ConfigError
from framenest.method.discovery import LookFor
from framenest.method.mec import MEC, check_horizon
from framenest.method.ranking import Ranking
from framenest.video.source import is_remote

TOP = 8
"""Ranks to print."""
WITH_SERVER = (
    "video", "question", "output", "budgets", "server", "no_question", "choices", "look_for", "preset",
    "horizon", "quiet", "debug",
)  # fmt: skip
"""Parameters that work with --server: those its API takes, and those of this side alone."""


@options.command()
def rank(
    *,
    video: str | None = argument(required=False),
    question: str | None = argument(required=False),
    output: str | None = option(
        "Write the ranking as JSON (- is stdout). With --manifest: a folder.",
        "-o",
        metavar="FILE",
    ),
    budgets: Budgets = option("Also print the frames of these budgets.", "--budget", "-k", default=()),
    server: Url | None = option(
        "Rank on a running `framenest serve`, such as http://127.0.0.1:8600, with its scorer. It must serve "
        "the video's folder (--videos). $FRAMENEST_TOKEN is its token. [default: $FRAMENEST_SERVER]",
        envvar="FRAMENEST_SERVER",
    ),
    no_question: bool = option("Rank by change, observability, coverage and diversity alone."),
    choices: tuple[str, ...] = CHOICES,
    look_for: tuple[str, ...] = LOOK_FOR,
    video_options: VideoOptions,
    keep_features: bool | None = KEEP_FEATURES,
    scorer: ScorerChoice,
    manifest: InputFile | None = option(
        "CSV, JSON, JSON lines, Parquet or text with columns `video` and `question`.", panel=ManyVideos.panel
    ),
    many: ManyVideos,
    method: MethodOptions,
    common: Common,
) -> int:
    """Rank the frames of VIDEO for QUESTION: one ranking, any budget.

    VIDEO is a file, a URL (http, https; s3 and others with the extra `remote`), or a folder of numbered
    images with --fps.

    \b
    framenest rank kiln.mp4 "What happens after firing?" -o kiln.json -k 8,16
    framenest rank kiln.mp4 "What is fired?" --option cups --option tiles \\
      --set relevance_text=question+options
    framenest rank kiln.mp4 "What happens after firing?" \\
      --look-for "a glowing kiln" --look-for "cups cooling"
    framenest rank kiln.mp4 --no-question --start 60 --end 180
    framenest rank --manifest asked.csv -o rankings/ --jobs 8
    framenest rank kiln.mp4 "What is fired?" --server http://127.0.0.1:8600
    """
    if server:
        options.refuse_others("not possible with --server; --server '' ranks here", *WITH_SERVER)
    if no_question:
        options.refuse("nothing is scored with --no-question", "ocr", "rerank", "reranker", "calibration")
    name = None if server or no_question else scorer.resolved(common)
    settings: dict[str, Any] = {
        "config": method.config,
        "scoring": scorer.config,
        "keep_features": keep_features,
    }
    if manifest is not None:
        if video or question or budgets or look_for:
            raise ConfigError("--manifest does not go with VIDEO, QUESTION, -k or --look-for")
        return rank_many(Path(manifest), output, many, common, video_options, name, settings)
    if video is None:
        raise ConfigError("give a VIDEO, or --manifest FILE for many")
    options.refuse("it needs --manifest", *(entry.name for entry in fields(ManyVideos)))
    if no_question == bool((question or "").strip()):
        raise ConfigError("give either a QUESTION, which must not be empty, or --no-question")
    if output not in (None, "-"):
        check_writable(output)
    bars, described = common.bars(), LookFor.of(look_for)
    if server:
        remote = RankingServer(server, os.environ.get("FRAMENEST_TOKEN"))
        asked = {"preset": method.preset, "horizon": method.config.ranking.horizon}
        with bars:
            ranking = remote.rank(video, question, options=choices, look_for=described, bars=bars, **asked)
    else:
        mec = MEC(scorer=name, store=common.cache, progress=bars, **settings)
        if is_remote(video) and name is not None:
            _ = mec.scorer  # loads while the video opens; a file is first checked to be a video
        opened = video_options.open(video, common)
        check_horizon(budgets, opened, method.config)
        with bars:
            ranking = mec.rank(opened, question, options=choices, look_for=described or ())
    _deliver(ranking, budgets, output)
    return 0


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
