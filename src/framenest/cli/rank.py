"""framenest rank and framenest select."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from framenest.cli import options as opt
from framenest.cli.exports import write_frames
from framenest.cli.many_videos import ManyVideos, rank_many
from framenest.cli.options import argument, command, option
from framenest.cli.printing import TOP, confirm, note, print_json, print_ranking, print_selections
from framenest.cli.ranking_server import RankingServer
from framenest.config import DEFAULT_PRESET, FOR_CLIENTS, MECConfig, VideoConfig
from framenest.errors import ConfigError
from framenest.image_tokens import TokenBudget
from framenest.images import ImageLimits
from framenest.method.mec import check_horizon, rank_request
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.rank_request import LookFor, RankRequest
from framenest.scorers import advice
from framenest.selectors import load_selector, selector_names
from framenest.session import Session
from framenest.video.opening import reopen
from framenest.video.source import is_remote

WITH_SERVER = (
    "video", "question", "output", "budgets", "tokens", "tiers", "folder", "max_side", "sheet", "as_json",
    "verbose", "server", "no_question", "choices", "look_for", "preset", "horizon", *FOR_CLIENTS, "quiet",
    "debug",
)  # fmt: skip
"""Parameters that work with --server: those its API takes, and those of this side alone."""


@command(usual="budgets output folder sheet as_json verbose no_question look_for name preset start end quiet")
def rank(
    *,
    video: opt.InputFile | None = argument(required=False),
    question: str | None = argument(required=False),
    output: str | None = option(
        "Write the ranking as JSON (- is stdout). With --manifest: a folder.", "-o", metavar="FILE"
    ),
    budgets: opt.Budgets = option(
        f"Frames to print; 8,16 prints the times of both. [default: {TOP}]", "--budget", "-k", default=()
    ),
    tokens: opt.TokenOptions,
    folder: opt.OutputFolder | None = option(
        "Also write the frames of the largest budget as images.", "--to"
    ),
    max_side: int | None = opt.MAX_SIDE,
    sheet: opt.ImageFile | None = option("Also draw them as a contact sheet, with ranks and times."),
    as_json: bool = opt.AS_JSON,
    verbose: bool = option("Also print what was looked at, and the scores of each rank.", "-v"),
    server: str | None = option(
        "Rank on a running `framenest serve`, such as http://127.0.0.1:8600, with its scorer. It must serve "
        "the video's folder (--videos). $FRAMENEST_TOKEN is its token. [default: $FRAMENEST_SERVER]",
        envvar="FRAMENEST_SERVER",
    ),
    no_question: bool = option(
        "Rank without a question: by visual change, sharpness and what is not shown yet."
    ),
    choices: tuple[str, ...] = opt.CHOICES,
    look_for: tuple[str, ...] = opt.LOOK_FOR,
    opening: VideoConfig,
    keep_features: bool | None = opt.KEEP_FEATURES,
    scorer: opt.ScorerChoice,
    manifest: opt.InputFile | None = option(
        "CSV, JSON, JSON lines, Parquet or text with columns `video` and `question`.", panel=ManyVideos.panel
    ),
    many: ManyVideos,
    method: opt.MethodOptions,
    common: opt.Common,
) -> int:
    """Rank the frames of VIDEO for QUESTION: one ranking, any budget.

    VIDEO is a file, a URL (s3 and others with the extra `remote`), a web page that shows a video (extra
    `web`), or a folder of numbered images.

    \b
    framenest rank kiln.mp4 "What happens after firing?" -o kiln.json
    framenest rank kiln.mp4 "What happens after firing?" -k 4 --to frames/
    framenest rank kiln.mp4 "What is fired?" --tokens 8000 --to frames/
    framenest rank kiln.mp4 "What is fired?" --option cups --option tiles \\
      --set relevance_text=question+options
    framenest rank kiln.mp4 "What happens after firing?" \\
      --look-for "a glowing kiln" --look-for "cups cooling"
    framenest rank kiln.mp4 --no-question --start 60 --end 180
    framenest rank --manifest asked.csv -o rankings/ --jobs 8
    framenest rank kiln.mp4 "What is fired?" --server http://127.0.0.1:8600
    """
    if server:
        opt.refuse_others("not possible with --server; --server '' ranks here", *WITH_SERVER)
    within = tokens.budget(limits=ImageLimits(max_side))
    opt.refuse("it is the size of images for --to", *() if folder else ("max_side",))
    if no_question:
        opt.refuse("nothing is scored with --no-question", "ocr", "rerank", "reranker", "calibration")
    if manifest is None:
        _check_one(video, question, no_question, output)
    elif video or question or budgets or within or look_for or folder or sheet or verbose:
        raise ConfigError("--manifest does not go with VIDEO, QUESTION, -k, --tokens, --look-for, --to, -v")
    request = RankRequest(
        video=video or "",
        question=question,
        options=choices,
        look_for=LookFor.of(look_for),
        preset=method.preset,
        config=method.config,
        scorer=None if server or no_question or scorer.name == "none" else scorer.resolved(common),
        scoring=scorer.config,
        opening=opening,
    )
    if video is None:
        where = Path(str(manifest)), output
        return rank_many(*where, request, many, common, keep_features=keep_features, as_json=as_json)
    bars = common.bars()
    if server:
        with bars:
            ranking = RankingServer(server, os.environ.get("FRAMENEST_TOKEN")).rank(request, bars)
    else:
        session = Session(
            request.scorer,
            store=common.cache,
            progress=bars,
            keep_features=keep_features,
            scoring=request.scoring,
        )
        if is_remote(video):
            _ = session.scorer  # loads while the video opens; a file is first checked to be a video
        opened = common.open(video, opening)
        check_horizon(budgets, opened, request.config)
        with bars:
            ranking = rank_request(request, session, opened)
    largest = _deliver(ranking, [within] if within else budgets, output, as_json, verbose)
    for line in () if server else advice(ranking.scorer, question, ranking.stats.match, common.local):
        note(line)
    if folder or sheet:
        shown = reopen(ranking.video, video, store=common.cache) if server else opened
        write_frames(largest, shown, common, folder, sheet, max_side=max_side, title=question)
    return 0


def _check_one(video: str | None, question: str | None, no_question: bool, output: str | None) -> None:
    if video is None:
        raise ConfigError("give a VIDEO, or --manifest FILE for many")
    opt.refuse("it needs --manifest", *(entry.name for entry in fields(ManyVideos)))
    if no_question == bool((question or "").strip()):
        raise ConfigError("give either a QUESTION, which must not be empty, or --no-question")
    if output not in (None, "-"):
        opt.check_writable(str(output))


def _deliver(
    ranking: Ranking, budgets: Sequence[int | TokenBudget], target: str | None, as_json: bool, verbose: bool
) -> Prefix:
    """Write and print a ranking; returns its largest prefix."""
    prefixes = [ranking.prefix(k) for k in budgets or [min(TOP, len(ranking))]]  # before a file is written
    if target not in (None, "-"):
        ranking.save(str(target))
    if target == "-":
        print_json(ranking.dumps())
    else:
        print_ranking(ranking, prefixes, scores=verbose, as_json=as_json)
    if target is not None:
        confirm("written to", target)
    return max(prefixes, key=len)


@command(usual="selectors budgets output as_json name quiet")
def select(
    *,
    video: opt.InputFile = argument(),
    question: str = argument(),
    selectors: opt.SelectorNames = option(
        f"One of {', '.join(selector_names())}, or file:PATH for a list of AKS or WFS-SB; several, separated "
        "by commas, are compared. mec and bolt take settings: mec:horizon=64, bolt:power=2.5.",
        "--selector",
        default="mec",
    ),
    budgets: opt.Budgets = option("Frame budgets, such as 8,16,32.", "--budget", "-k", required=True),
    output: opt.OutputFile | None = option("Write the selection as JSON; for one selector.", "-o"),
    as_json: bool = option("Print a line of JSON for each selector.", "--json"),
    opening: VideoConfig,
    scorer: opt.ScorerChoice,
    common: opt.Common,
) -> None:
    """Select frames of VIDEO for QUESTION with any selector, one list per budget.

    Most selectors do not rank: they choose separately for each budget. For one ranking that serves every
    budget, use `framenest rank`. Several selectors are compared in a table; `framenest report` shows their
    files side by side.

    \b
    framenest select kiln.mp4 "What happens after firing?" \\
      --selector aks -k 8,16 -o aks.json
    framenest select kiln.mp4 "What happens after firing?" \\
      --selector mec,uniform,aks -k 16
    """
    if output is not None and len(selectors) > 1:
        raise ConfigError("-o writes the selection of one selector; give one at a time")
    with common.bars() as bars:
        session = scorer.session(common, bars, selectors)
        ready = [load_selector(name, session, MECConfig.preset(DEFAULT_PRESET)) for name in selectors]
        opened = common.open(video, opening)
        selections = [selector.select(opened, question, budgets) for selector in ready]
    if output is not None:
        selections[0].save(output)
    if as_json:
        for selection in selections:
            print_json(selection.to_json())
    else:
        print_selections(selectors, [one.name for one in ready], selections)
    if output is not None:
        confirm("written to", str(output))
