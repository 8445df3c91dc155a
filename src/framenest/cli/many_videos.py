"""Commands over many videos: index, and what rank --manifest does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from framenest.cache.directory import local_directory
from framenest.cache.remote import RemoteStore
from framenest.cli import options
from framenest.cli.option_groups import (
    Common,
    ProbingOptions,
    ScorerChoice,
    VideoOptions,
    other_settings,
    refuse_one_file,
)
from framenest.cli.options import (
    Count,
    Duration,
    InputFile,
    OutputFile,
    Size,
    argument,
    check_writable,
    check_writable_folder,
    option,
)
from framenest.cli.terminal import confirm, fail, note, print_json, quiet, say, short_path
from framenest.config import IndexConfig, MECConfig
from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome
from framenest.corpus.manifest import find_videos, index_groups, ranking_groups
from framenest.corpus.process_run import Watch, run_in_processes
from framenest.corpus.run_report import RunReport, write_rankings
from framenest.errors import ConfigError, FramenestError, StoreError
from framenest.processes import ProcessLimits, cores, gpu_memory, memory_share
from framenest.progress import Bars
from framenest.retrieval.vectors import connect, optimize
from framenest.scorers import choose, runs_on_gpu
from framenest.text import clock


@dataclass(frozen=True)
class ManyVideos:
    """How to process many videos."""

    panel: ClassVar = "Many videos"
    jobs: Count | None = option("Worker processes. [default: one per core, fewer with a GPU model]")
    time_limit: Duration | None = option("Time limit per video or question; 0 for none. [default: 30m]")
    memory: Size | None = option(
        "Memory limit per worker, such as 2GiB; a worker over it is killed. "
        "[default: an equal share of 75 % of the machine's memory]"
    )
    failures: OutputFile | None = option(
        "JSON lines file for what failed and why; each run replaces it. [default: failures.jsonl]"
    )
    engine: Literal["local", "ray"] = option(
        "Processes on this machine, or a Ray cluster (extra `ray`).", default="local"
    )
    address: str | None = option("With --engine ray: address for ray.init. [default: start a cluster here]")
    encoders: Count | None = option(
        "With --engine ray: processes that run the scorer for all workers. [default: one per GPU, if any]"
    )

    @property
    def given(self) -> bool:
        """Whether the command line sets any of these."""
        return any(value not in (None, "local") for value in vars(self).values())


LIBRARY = option(
    "Directory or URI (s3://…) of a library of vectors that many machines share (extra `library`). "
    "[default: vectors are in the cache]",
    metavar="DIR|URI",
)
TIME_LIMIT = 1800.0  # default for --time-limit, in seconds
NAME = 28  # most characters of a video's name next to its progress bar
GPU_BYTES, GPU_CORES = 8 * 2**30, 4
"""GPU memory and CPU cores per worker with a model on the GPU. BLIP-2 takes 5 GB; benchmarks/gpu_machine.py
measures throughput by number of workers."""


def outcomes_of(
    many: ManyVideos, job: BatchJob, groups: list[Group], watch: Watch = lambda *_: None
) -> Iterator[list[ItemOutcome]]:
    """Run the job on all groups. Yields each group's outcomes as it finishes."""
    seconds = TIME_LIMIT if many.time_limit is None else many.time_limit or None
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


def batch_job(common: Common, video_options: VideoOptions, scorer: str | None, **settings: Any) -> BatchJob:
    """Return a job whose results go to the cache."""
    cache = common.cache
    if isinstance(cache, RemoteStore):
        settings["url"] = cache.location  # each machine has its own local directory
    else:
        settings["root"] = str(common.local.root.absolute())
    if (library := settings.get("library")) is not None:
        settings["library"] = library if "://" in library else str(Path(library).absolute())
        connect(library)  # a clear error before the run begins
    return BatchJob(scorer=None if scorer == "none" else scorer, **vars(video_options), **settings)


def run(
    job: BatchJob, groups: list[Group], many: ManyVideos, common: Common, what: str, as_json: bool
) -> RunReport:
    """Run a job on all groups with progress bars, and print a summary, or a line of JSON for each item."""
    refuse_one_file(job.scoring, len(groups))
    report = RunReport(many.failures or check_writable("failures.jsonl"))
    total = sum(map(len, groups))
    try:
        with common.bars() as bars:
            bars(what, 0, total)
            for outcomes in outcomes_of(many, job, groups, partial(_show, bars)):
                if outcomes:
                    bars.end(_label(outcomes[0].item.video))
                for place, outcome in enumerate(outcomes):
                    report.add(outcome, new_video=place == 0)
                    _print_outcome(outcome, as_json)
                bars(what, report.total, total, said=_speed(report))
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


def _show(bars: Bars, video: str, stage: str, done: int, total: int) -> None:
    bars(_label(video), done, total, said=stage)


def _label(video: str) -> str:
    shown = short_path(video)
    return shown if len(shown) <= NAME else f"…{shown[1 - NAME :]}"


def _print_outcome(outcome: ItemOutcome, as_json: bool, *, alone: bool = False) -> None:
    for text in outcome.notes:
        note(text)
    if as_json:
        names = ("status", "text", "error", "seconds", "duration")
        told = {name: getattr(outcome, name) for name in names}
        print_json({"video": outcome.item.video, "question": outcome.item.question, **told})
    elif outcome.status == "failed":
        note(f"{outcome.error}: {outcome.text}")
    elif alone or (outcome.status == "done" and not quiet()):
        say(f"{outcome.item.video}: {outcome.text}")


def _speed(report: RunReport) -> str:
    failed = f", {report.counts['failed']:,} failed" if report.counts["failed"] else ""
    return f"{_video_time(report.hours_a_minute)} of video per minute{failed}"


def _video_time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def _print_summary(report: RunReport, what: str) -> None:
    done, already, failed = (report.counts[status] for status in ("done", "already", "failed"))
    parts = [f"{done:,} {what if done != 1 else what.removesuffix('s')} done"]
    if done:
        length, speed = _video_time(report.hours), _video_time(report.hours_a_minute)
        parts[0] += f" ({length} of video, {speed} per minute)"
    if already:
        parts.append(f"{already:,} already done")
    if failed:
        errors = ", ".join(f"{name} {count:,}" for name, count in report.errors.most_common())
        parts.append(f"{failed:,} failed ({errors}), see {report.failures}")
    say(f"{'; '.join(parts)}; in {clock(report.seconds)}")


@options.command(usual="as_json jobs time_limit failures name max_gap probing cache_location quiet")
def index(
    *,
    videos: tuple[InputFile, ...] = argument(nargs=-1, required=True),
    as_json: bool = option("Print a line of JSON for each video.", "--json"),
    many: ManyVideos,
    library: str | None = LIBRARY,
    video_options: VideoOptions,
    scorer: ScorerChoice,
    probes: ProbingOptions,
    others: tuple[tuple[str, Any], ...] = other_settings(IndexConfig),
    common: Common,
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
    found = find_videos(videos, pictures=video_options.fps is not None)
    given = {name: value for name, value in vars(probes).items() if value is not None} | dict(others)
    config = MECConfig().with_settings(given)
    if config != MECConfig(index=config.index):
        raise ConfigError("--set of this command is for settings of the index; give others to rank")
    settings = {"config": config, "scoring": scorer.config, "library": library}
    job = batch_job(common, video_options, scorer.resolved(common), **settings)
    if len(found) == 1 and found[0] == videos[0] and not many.given:
        with common.bars() as bars:  # in this process, with bars for its stages
            (outcome,) = job.open()(index_groups(found)[0], bars)
        if outcome.status == "failed":
            raise FramenestError(outcome.text)
        _print_outcome(outcome, as_json, alone=True)
        return 0
    report = run(job, index_groups(found), many, common, "videos", as_json)
    if report.counts["failed"]:
        fail(f"{report.counts['failed']:,} of {len(found):,} videos could not be indexed")
    return int(report.counts["failed"] > 0)


def rank_many(
    manifest: Path,
    output: str | None,
    many: ManyVideos,
    common: Common,
    how: VideoOptions,
    scorer: str | None,
    settings: Mapping[str, Any],
    as_json: bool,
) -> int:
    """Rank the videos of a list for their questions. Returns the exit code."""
    job = batch_job(common, how, scorer, **settings)
    if output is None or output == "-":
        raise ConfigError("--manifest needs a folder for the rankings; give -o FOLDER")
    folder = check_writable_folder(output).absolute()
    groups = ranking_groups(manifest, folder, _identity(job), no_question=job.scorer is None)
    report = run(job, groups, many, common, "rankings", as_json)
    confirm("listed in", short_path(str(write_rankings(folder, groups))))
    return int(report.counts["failed"] > 0)


def _identity(job: BatchJob) -> list[Any]:
    """Everything a ranking depends on besides video and question; device and batch only affect speed."""
    scoring = {k: v for k, v in asdict(job.scoring).items() if k not in ("device", "batch")}
    file = Path((job.scorer or "").partition(":")[2])
    content = local_directory(job.store()).fingerprint(str(file)) if file.is_file() else None
    return [job.config.to_json(), job.scorer, content, scoring]
