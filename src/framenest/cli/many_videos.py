"""Commands over many videos: index, search, and what rank --manifest does."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from rich.markup import escape

from framenest.cache.directory import local_directory
from framenest.cache.files import write_atomic
from framenest.cache.remote import RemoteStore
from framenest.cli import options as opt
from framenest.cli.options import argument, command, option
from framenest.cli.printing import confirm, fail, note, out, print_json, print_table, say, short_path, table
from framenest.config import IndexConfig, MECConfig, VideoConfig
from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome, RunReport
from framenest.corpus.manifest import find_videos, index_groups, ranking_groups, write_rankings
from framenest.corpus.process_run import Watch, run_in_processes
from framenest.errors import ConfigError, FramenestError, StoreError, VideoError
from framenest.images import encode_image
from framenest.method.prefix import Prefix
from framenest.processes import ProcessLimits, cores, gpu_memory, memory_share
from framenest.rank_request import RankRequest
from framenest.report.contact_sheet import contact_sheet
from framenest.retrieval.search import IndexedVideo, Moment, Moments, Searcher, check_query
from framenest.retrieval.vectors import connect, optimize
from framenest.scorers import advice, choose, runs_on_gpu
from framenest.session import Session
from framenest.text import clock, slug
from framenest.video.opening import Video


@dataclass(frozen=True)
class ManyVideos:
    """How to process many videos."""

    panel: ClassVar = "Many videos"
    jobs: opt.Count | None = option("Worker processes. [default: one per core, fewer with a GPU model]")
    time_limit: opt.Duration | None = option("Time limit per video or question; 0 for none. [default: 30m]")
    memory: opt.Size | None = option(
        "Memory limit per worker, such as 2GiB; a worker over it is killed. "
        "[default: an equal share of 75 % of the machine's memory]"
    )
    failures: opt.OutputFile | None = option(
        "JSON lines file for what failed and why; each run replaces it. [default: failures.jsonl]"
    )
    engine: Literal["local", "ray"] = option(
        "Processes on this machine, or a Ray cluster (extra `ray`).", default="local"
    )
    address: str | None = option("With --engine ray: address for ray.init. [default: start a cluster here]")
    encoders: opt.Count | None = option(
        "With --engine ray: processes that run the scorer for all workers. [default: one per GPU, if any]"
    )


LIBRARY = option(
    "Directory or URI (s3://…) of a library of vectors that many machines share (extra `library`). "
    "[default: vectors are in the cache]",
    metavar="DIR|URI",
)
ITEM_SECONDS = 1800.0  # default of --time-limit
LABEL_CHARACTERS = 28  # of a video's name next to its progress bar, at most
GPU_BYTES, GPU_CORES = 8 * 2**30, 4
"""GPU memory and CPU cores per worker with a model on the GPU. BLIP-2 takes 5 GB; benchmarks/gpu_machine.py
measures throughput by number of workers."""


def outcomes_of(
    many: ManyVideos, job: BatchJob, groups: list[Group], watch: Watch = lambda *_: None
) -> Iterator[list[ItemOutcome]]:
    """Run the job on all groups. Yields each group's outcomes as it finishes."""
    seconds = ITEM_SECONDS if many.time_limit is None else many.time_limit or None
    if many.engine == "ray":
        from framenest.corpus.ray_run import run_on_ray

        if job.scorer == "auto":
            raise ConfigError("on a cluster every worker must use the same scorer; name it with --scorer")
        limits = ProcessLimits(seconds, many.memory)
        return run_on_ray(job, groups, limits, address=many.address, jobs=many.jobs, encoders=many.encoders)
    if many.address is not None or many.encoders is not None:
        raise ConfigError("--address and --encoders need --engine ray")
    jobs = min(many.jobs or _workers_for(job), len(groups))
    limits = ProcessLimits(seconds, many.memory or memory_share(jobs))
    return run_in_processes(job, groups, jobs, limits, watch)


def _workers_for(job: BatchJob) -> int:
    """One worker per core; if each loads a model onto the GPU, as many as its memory and the cores allow."""
    name = choose(local_directory(job.store()))[0] if job.scorer == "auto" else job.scorer
    if name is None or not runs_on_gpu(name) or job.scoring.device == "cpu":
        return cores()
    return max(1, min(gpu_memory() // GPU_BYTES, cores() // GPU_CORES))


def batch_job(
    common: opt.Common, request: RankRequest, library: str | None = None, keep_features: bool | None = True
) -> BatchJob:
    """Return a job with the scorer of a request, whose results go to the cache."""
    if library is not None:
        library = library if "://" in library else str(Path(library).absolute())
        connect(library)  # a clear error before the run begins
    remote = isinstance(common.cache, RemoteStore)
    cache = common.cache.location if remote else str(common.local.root.absolute())
    return BatchJob(request.scorer, request.scoring, cache, keep_features, library)


def run(
    job: BatchJob, groups: list[Group], many: ManyVideos, common: opt.Common, what: str, as_json: bool
) -> RunReport:
    """Run a job on all groups with progress bars, and print a summary, or a line of JSON for each item."""
    if len(groups) > 1 and Path(job.scoring.subtitles or "").is_file():
        raise ConfigError("--subtitles FILE is for one video; for several, give a folder or auto")
    report = RunReport(many.failures or opt.check_writable("failures.jsonl"))
    total = sum(map(len, groups))
    try:
        with common.bars() as bars:
            bars(what, 0, total)
            for outcomes in outcomes_of(
                many, job, groups, lambda video, stage, *counts: bars(_label(video), *counts, note=stage)
            ):
                if outcomes:
                    bars.end(_label(outcomes[0].item.video))
                for outcome in outcomes:
                    report.add(outcome)
                    _print_outcome(outcome, as_json)
                failed = report.counts["failed"]
                bars(what, report.counts.total(), total, note=f"{failed:,} failed" if failed else "")
                if report.stopped:
                    break
    except KeyboardInterrupt:
        note("finished work is kept, also of videos in progress; run the same command again to continue")
        raise
    if job.library is not None and report.counts["done"]:
        optimize(job.library)
    if not as_json:
        _print_summary(report, what)
    if report.stopped:
        raise StoreError(f"stopped because results cannot be stored: {report.stopped}")
    return report


def _label(video: str) -> str:
    shown = short_path(video)
    return shown if len(shown) <= LABEL_CHARACTERS else f"…{shown[1 - LABEL_CHARACTERS :]}"


def _print_outcome(outcome: ItemOutcome, as_json: bool, *, alone: bool = False) -> None:
    for text in outcome.notes:
        note(text)
    if as_json:
        names = ("status", "text", "error", "seconds", "duration")
        facts = {name: getattr(outcome, name) for name in names}
        print_json({"video": outcome.item.video, "question": outcome.item.request.question, **facts})
    elif outcome.status == "failed":
        note(f"{outcome.error}: {outcome.text}")
    elif alone or (outcome.status == "done" and not out.brief):
        say(f"{outcome.item.video}: {outcome.text}")


def _print_summary(report: RunReport, what: str) -> None:
    done, already, failed = (report.counts[status] for status in ("done", "already", "failed"))
    took = f"{report.seconds:.1f} s" if report.seconds < 60 else clock(report.seconds)
    parts = [f"{done:,} {what if done != 1 else what.removesuffix('s')} done in {took}"]
    if already:
        parts.append(f"{already:,} already done")
    if failed:
        errors = ", ".join(f"{name} {count:,}" for name, count in report.errors.most_common())
        parts.append(f"{failed:,} failed ({errors}), see {report.failures}")
    say("; ".join(parts))


@command(usual="as_json jobs time_limit failures name max_gap probing cache_location quiet")
def index(
    *,
    videos: tuple[opt.InputFile, ...] = argument(nargs=-1, required=True),
    as_json: bool = option("Print a line of JSON for each video.", "--json"),
    many: ManyVideos,
    library: str | None = LIBRARY,
    opening: VideoConfig,
    scorer: opt.ScorerChoice,
    probes: opt.ProbingOptions,
    others: tuple[tuple[str, Any], ...] = opt.other_settings(IndexConfig),
    common: opt.Common,
) -> int:
    """Index VIDEOS once, so that later questions need not decode them again.

    VIDEOS are files, URLs, folders to search (also a URL ending in /), and lists: text, CSV, JSON, JSON
    lines or Parquet with a column `video`. --scorer none makes the index only, without a scorer's features.

    Each video runs in a worker process. A video that fails, hangs or crashes does not stop the run; it is
    listed in failures.jsonl, and the exit code is 1. Run the same command again to resume.

    \b
    framenest index lectures/ --jobs 8
    framenest index films.csv more/*.mp4 --scorer none --probing keyframes \\
      --cache s3://bucket/library
    """
    paths = find_videos(videos)
    config = MECConfig().with_settings(probes.settings | dict(others))
    if config != MECConfig(index=config.index):
        raise ConfigError("--set of this command is for settings of the index; give others to rank")
    name = None if scorer.name == "none" else scorer.resolved(common)
    request = RankRequest(video="", config=config, scorer=name, scoring=scorer.config, opening=opening)
    job, groups = batch_job(common, request, library), index_groups(paths, request)
    if paths == [videos[0]] and set(vars(many).values()) == {None, "local"}:
        with common.bars() as bars:  # in this process, with bars for its stages
            (outcome,) = job.open()(groups[0], bars)
        if outcome.status == "failed":
            raise FramenestError(outcome.text)
        _print_outcome(outcome, as_json, alone=True)
        return 0
    report = run(job, groups, many, common, "videos", as_json)
    if report.counts["failed"]:
        fail(f"{report.counts['failed']:,} of {len(paths):,} videos could not be indexed")
    return int(report.counts["failed"] > 0)


def rank_many(
    manifest: Path,
    output: str | None,
    request: RankRequest,
    many: ManyVideos,
    common: opt.Common,
    *,
    keep_features: bool | None,
    as_json: bool,
) -> int:
    """Rank the videos of a list for their questions, as the request says. Returns the exit code."""
    if output is None or output == "-":
        raise ConfigError("--manifest needs a folder for the rankings; give -o FOLDER")
    folder = opt.check_writable_folder(output).absolute()
    table = Path((request.scorer or "").partition(":")[2])
    scores = common.local.fingerprint(str(table)) if table.is_file() else None
    groups = ranking_groups(manifest, folder, request, scores)
    job = batch_job(common, request, keep_features=keep_features)
    report = run(job, groups, many, common, "rankings", as_json)
    confirm("listed in", short_path(str(write_rankings(folder, groups))))
    return int(report.counts["failed"] > 0)


MAX_NAMED = 5  # of the videos that could not be searched
MOMENT_PIXELS = 480  # of the longer side of a moment's picture, at most


@command(usual="count as_json sheet folder jobs failures engine name subtitles cache_location quiet")
def search(
    *,
    query: str = argument(),
    videos: tuple[opt.InputFile, ...] = argument(nargs=-1),
    count: opt.Count = option("Moments to find.", "-n", default=10),
    as_json: bool = option("Print one JSON object: the verdict, the words it knows, the moments.", "--json"),
    sheet: opt.ImageFile | None = option("Also draw their best frames as a contact sheet."),
    folder: opt.OutputFolder | None = option(
        "Also write each moment as a short MP4 into this folder.", "--to"
    ),
    many: ManyVideos,
    library: str | None = LIBRARY,
    scorer: opt.ScorerChoice,
    common: opt.Common,
) -> int:
    """Find the moments of many VIDEOS that match QUERY: in which video, and when.

    VIDEOS are what `framenest index` takes: files, URLs, folders and lists. Those that are not indexed yet
    are indexed first. Without VIDEOS, all videos in the cache are searched.

    A score says how surely a moment matches, from 0 to 1. It can be compared across videos. If fewer than
    three clearly match, the nearest follow, marked as weak.

    \b
    framenest search "a dog catches a frisbee" holidays/
    framenest search "a dog catches a frisbee" holidays/ \\
      --to clips/ --sheet dogs.png
    framenest search "who paid for the ships?" -n 3 --json
    """
    check_query(query)
    name, bars, failed = scorer.resolved(common), common.bars(), dict[str, str]()
    session = Session(name, store=common.cache, progress=bars, scoring=scorer.config)
    searcher = Searcher(session, library=library)
    wanted: Sequence[Video | IndexedVideo] | None = None
    if videos:
        paths = find_videos(videos)
        with bars:
            wanted, missing = searcher.split(paths)
        if missing:
            request = RankRequest(video="", scorer=name, scoring=scorer.config)
            job, groups = batch_job(common, request, library), index_groups(map(str, missing), request)
            summary = io.StringIO() if out.brief else sys.stderr  # the moments alone go to stdout
            with redirect_stdout(summary):
                failed = run(job, groups, many, common, "videos", as_json=False).failed
            wanted = [video for video in paths if video not in failed]
        if not wanted:
            raise VideoError(f"no video can be searched: {next(iter(failed.values()))}")
    moments = searcher.search(query, wanted, count)
    _print_moments(moments, {**moments.skipped, **failed}, as_json)
    for line in advice(f"{name} ", query, moments.match, common.local):
        note(line)
    if moments and folder is not None:
        for rank, one in enumerate(moments, start=1):
            file = f"{rank:02d}_{slug(Path(one.video).stem, 'video')}_t{one.start:09.2f}s.mp4"
            one.clip(folder / file, store=common.cache)
        confirm(f"{len(moments)} clips in", str(folder))
    if moments and sheet is not None:
        _draw_sheet(query, moments, sheet, common)
    return int(bool(failed))


def _print_moments(moments: Moments, skipped: Mapping[str, str], as_json: bool) -> None:
    if skipped:
        reasons, count = list(skipped.values()), len(skipped)
        more = [f"{count - MAX_NAMED:,} more"] if count > MAX_NAMED else []
        videos = "1 video" if count == 1 else f"{count:,} videos"
        note(f"{videos} could not be searched: {'; '.join(reasons[:MAX_NAMED] + more)}")
    if as_json:
        print_json(moments.to_json())
        return
    if moments.summary:
        confirm("match", f"{moments.match.verdict}  {moments.summary}")
    texts = ("video", "why")
    rows = table("score", "from", "to", "best", *texts, texts=texts)
    for one in moments:
        times = (clock(seconds) for seconds in (one.start, one.end, one.time))
        score = f"{'' if one.confident else 'weak '}{one.score:.2f}"
        rows.add_row(score, *times, escape(short_path(one.video)), escape(one.why))
    print_table(rows)


def _draw_sheet(query: str, moments: Sequence[Moment], sheet: Path, common: opt.Common) -> None:
    """Write the best frames of moments as a contact sheet."""
    pictures = [one.images(max_side=MOMENT_PIXELS, store=common.cache)[0] for one in moments]
    ranks, frames = np.arange(1, len(moments) + 1), np.array([one.frame for one in moments])
    tiles = Prefix(moments[0].info, len(ranks), frames, np.array([one.time for one in moments]), ranks)
    names = [("" if one.confident else "weak · ") + Path(one.video).name for one in moments]
    drawn = contact_sheet(tiles, [np.asarray(one) for one in pictures], title=query, labels=names)
    write_atomic(sheet, encode_image(drawn, sheet.suffix[1:].lower()))
    confirm("contact sheet in", str(sheet))
