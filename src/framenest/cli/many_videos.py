"""Commands over many videos."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import rich_click as click

from framenest.cache.directory import local_directory
from framenest.cache.remote import RemoteStore
from framenest.cli.exports import OutputFile, check_writable, check_writable_folder
from framenest.cli.options import Common, Duration, Size, VideoOptions, option
from framenest.cli.scorer_options import refuse_one_file
from framenest.cli.terminal import confirm, note, say, short_path
from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome
from framenest.corpus.manifest import ranking_groups
from framenest.corpus.process_run import Watch, run_in_processes
from framenest.corpus.run_report import RunReport, write_rankings
from framenest.errors import ConfigError, StoreError
from framenest.processes import ProcessLimits, cores, gpu_memory, memory_share
from framenest.progress import Bars
from framenest.scorers import choose, runs_on_gpu
from framenest.text import duration_text

MANY_PANEL = "Many videos"
LOCAL = ("engine", "local")


@dataclass(frozen=True)
class ManyVideos:
    """How a run over many videos is done."""

    panel: ClassVar = MANY_PANEL
    jobs: int | None = option(
        "Worker processes. [default: one per core; fewer where each loads a model onto a GPU]",
        type=click.IntRange(1),
        metavar="N",
    )
    time_limit: float | None = option(
        "Time limit for one video or question; 0 for none. [default: 30m]", type=Duration()
    )
    memory: float | None = option(
        "Memory that a worker may use, such as 2GiB; one that uses more is stopped. "
        "[default: an equal share of three quarters of the machine's]",
        type=Size(),
    )
    failures: Path | None = option(
        "What failed and why, one JSON object a line; replaced by every run. [default: failures.jsonl]",
        type=OutputFile(),
    )
    engine: str = option(
        "Processes of this machine, or a Ray cluster (extra `ray`).",
        type=click.Choice(["local", "ray"]),
        default="local",
    )
    address: str | None = option(
        "With --engine ray: the cluster, as ray.init takes it. [default: a new one on this machine]",
        metavar="ADDRESS",
    )
    encoders: int | None = option(
        "With --engine ray: processes that run the scorer for all others. "
        "[default: one per GPU; without GPUs each worker runs its own]",
        type=click.IntRange(1),
        metavar="N",
    )

    @property
    def asked_for(self) -> bool:
        """Whether the command line sets any of these."""
        return any(value is not None for name, value in vars(self).items() if (name, value) != LOCAL)


TIME_LIMIT = 1800.0
"""Seconds for one video or question, unless the command line says otherwise."""
NAME = 28
"""Characters of a video's name beside its bar."""
GPU_BYTES, GPU_CORES = 8 * 2**30, 4
"""What a worker beside a GPU gets of its memory and of the cores. BLIP-2 takes 5 GB of memory;
benchmarks/gpu_machine.py has videos a minute by number of workers."""
TELL = 60.0
"""Seconds between two lines on the progress where there is no terminal."""


def outcomes_of(
    many: ManyVideos, job: BatchJob, groups: list[Group], watch: Watch = lambda *_: None
) -> Iterator[list[ItemOutcome]]:
    """Run the job on all groups; yields each group's outcomes as it finishes."""
    seconds = TIME_LIMIT if many.time_limit is None else many.time_limit or None
    memory = int(many.memory) if many.memory else None
    if many.engine == "ray":
        from framenest.corpus.ray_run import run_on_ray

        limits = ProcessLimits(seconds, memory)
        return run_on_ray(job, groups, limits, address=many.address, jobs=many.jobs, encoders=many.encoders)
    if many.address is not None or many.encoders is not None:
        raise ConfigError("--address and --encoders are for --engine ray")
    jobs = min(many.jobs or _workers_for(job), len(groups))
    limits = ProcessLimits(seconds, memory or memory_share(jobs))
    return run_in_processes(job, groups, jobs, limits, watch)


def _workers_for(job: BatchJob) -> int:
    """One worker per core; where each loads a model onto the GPU, as many as keep it or the cores busy."""
    name = choose(local_directory(job.store()))[0] if job.scorer == "auto" else job.scorer
    if name is None or not runs_on_gpu(name) or job.scoring.device == "cpu":
        return cores()
    return max(1, min(gpu_memory() // GPU_BYTES, cores() // GPU_CORES))


def batch_job(common: Common, video_options: VideoOptions, scorer: str | None, **settings: Any) -> BatchJob:
    """The job whose results go to the cache."""
    cache = common.cache
    # At an address, every machine has a directory of its own for what is not shared.
    if isinstance(cache, RemoteStore):
        settings["url"] = cache.location
    else:
        settings["root"] = str(common.local.root.absolute())
    return BatchJob(scorer=None if scorer == "none" else scorer, **video_options.settings, **settings)


def run(job: BatchJob, groups: list[Group], many: ManyVideos, common: Common, what: str) -> RunReport:
    """Run a job on all groups with progress, and print a summary."""
    refuse_one_file(job.scoring, len(groups))
    report = RunReport(many.failures or check_writable(Path("failures.jsonl")))
    total, told, quiet = sum(map(len, groups)), time.monotonic(), common.quiet
    with common.bars() as bars, _told_if_interrupted():
        bars(what, 0, total)
        for outcomes in outcomes_of(many, job, groups, partial(_show, bars)):
            if outcomes:
                bars.end(_label(outcomes[0].item.video))
            for place, outcome in enumerate(outcomes):
                report.add(outcome, new_video=place == 0)
                _tell(outcome, quiet)
            bars(what, report.total, total, said=_said(report))
            if not quiet and bars.off and time.monotonic() - told > TELL:
                told = time.monotonic()
                note(f"{report.total:,} of {total:,} {what}: {_said(report)}")
            if report.stopped:
                break
    _sum_up(report, what)
    if report.stopped:
        raise StoreError(f"stopped, since nothing more can be kept: {report.stopped}")
    return report


def _show(bars: Bars, video: str, stage: str, done: int, total: int) -> None:
    """A bar for each video that is worked on."""
    bars(_label(video), done, total, said=stage)


def _label(video: str) -> str:
    shown = short_path(video)
    return shown if len(shown) <= NAME else f"…{shown[1 - NAME :]}"


@contextmanager
def _told_if_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        note("what was done is kept, also of the videos at work; the same command goes on from there")
        raise


def _tell(outcome: ItemOutcome, quiet: bool) -> None:
    for text in outcome.notes:
        note(text)
    if outcome.status == "failed":
        note(f"{outcome.error}: {outcome.text}")
    elif outcome.status == "done" and not quiet:
        say(f"{outcome.item.video}: {outcome.text}")


def _said(report: RunReport) -> str:
    bad = f", {report.counts['failed']:,} failed" if report.counts["failed"] else ""
    return f"{_video_time(report.hours_a_minute)} of video a minute{bad}"


def _video_time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def _sum_up(report: RunReport, what: str) -> None:
    done, already, bad = (report.counts[status] for status in ("done", "already", "failed"))
    said = [f"{done:,} {what if done != 1 else what.removesuffix('s')} done"]
    if done:
        said[0] += f" ({_video_time(report.hours)} of video, {_video_time(report.hours_a_minute)} a minute)"
    if already:
        said.append(f"{already:,} were there already")
    if bad:
        kinds = ", ".join(f"{name} {count:,}" for name, count in report.errors.most_common())
        said.append(f"{bad:,} failed ({kinds}), see {report.failures}")
    say(f"{'; '.join(said)}; {duration_text(report.seconds)}")


def rank_many(
    manifest: Path,
    output: str | None,
    many: ManyVideos,
    common: Common,
    how: VideoOptions,
    scorer: str | None,
    settings: Mapping[str, Any],
) -> int:
    """Rank every video of a list for its questions; the exit code."""
    job = batch_job(common, how, scorer, **settings)
    if output is None or output == "-":
        raise ConfigError("--manifest needs a folder for the rankings; give -o FOLDER")
    folder = check_writable_folder(Path(output)).absolute()
    groups = ranking_groups(manifest, folder, _identity(job), no_question=job.scorer is None)
    report = run(job, groups, many, common, "rankings")
    confirm("listed in", short_path(str(write_rankings(folder, groups))))
    return int(report.counts["failed"] > 0)


def _identity(job: BatchJob) -> list[Any]:
    """All that a ranking depends on beside video and question; not what only makes it faster."""
    scoring = {k: v for k, v in asdict(job.scoring).items() if k not in ("device", "batch")}
    file = Path((job.scorer or "").partition(":")[2])
    content = local_directory(job.store()).fingerprint(str(file)) if file.is_file() else None
    return [job.config.to_json(), job.scorer, content, scoring]
