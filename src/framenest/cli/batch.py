"""framenest index, and what `rank --manifest` shares with it: a run over many videos."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich_click as click

from framenest.cache.directory import local_directory
from framenest.cache.remote import RemoteStore
from framenest.cli import options
from framenest.cli.files import check_writable
from framenest.cli.terminal import Bars, fail, note, out
from framenest.config import ScorerConfig
from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome
from framenest.corpus.manifest import find_videos, index_groups
from framenest.corpus.process_run import run_in_processes
from framenest.corpus.run_report import RunReport
from framenest.errors import ConfigError, FramenestError, StoreError
from framenest.processes import ProcessLimits, cores, machine_memory
from framenest.protocols import ManagedStore
from framenest.scorers import choose, runs_on_gpu
from framenest.text import duration_text

TIME_LIMIT = 1800.0
"""Seconds for one video or question, unless the command line says otherwise."""
TELL = 60.0
"""Seconds between two lines on the progress where there is no terminal."""


@dataclass(frozen=True)
class Batch:
    """How a run over many videos is done, as the command line says."""

    jobs: int | None
    time_limit: float | None
    memory: float | None
    failures: str | None
    engine: str
    address: str | None
    encoders: int | None

    @property
    def asked_for(self) -> bool:
        """Whether the command line says anything about how many videos are done."""
        return self.engine != "local" or any(
            value is not None
            for value in (self.jobs, self.time_limit, self.memory, self.failures, self.address, self.encoders)
        )

    @property
    def report(self) -> Path:
        return Path(self.failures or "failures.jsonl")

    def outcomes(self, job: BatchJob, groups: list[Group]) -> Iterator[list[ItemOutcome]]:
        seconds = TIME_LIMIT if self.time_limit is None else self.time_limit or None
        memory = int(self.memory) if self.memory else None
        if self.engine == "ray":
            from framenest.corpus.ray_run import run_on_ray

            limits = ProcessLimits(seconds, memory)
            return run_on_ray(
                job, groups, limits, address=self.address, jobs=self.jobs, encoders=self.encoders
            )
        if self.address is not None or self.encoders is not None:
            raise ConfigError("--address and --encoders are for --engine ray")
        jobs = min(self.jobs or _workers_for(job), len(groups))
        limits = ProcessLimits(seconds, memory or machine_memory() // jobs or None)
        return run_in_processes(job, groups, jobs, limits)


def _workers_for(job: BatchJob) -> int:
    """One per core; one alone where each would hold its own copy of a model on the GPU."""
    name = choose(local_directory(job.store()))[0] if job.scorer == "auto" else job.scorer
    return 1 if name is not None and runs_on_gpu(name) and job.scoring.device != "cpu" else cores()


def job_for(cache: ManagedStore, **settings: Any) -> BatchJob:
    """The job whose results go to this store."""
    if isinstance(cache, RemoteStore):
        return BatchJob(url=cache.url, **settings)  # every machine has its own directory for the rest
    return BatchJob(root=str(Path(cache.location).absolute()), **settings)


def run(job: BatchJob, groups: list[Group], batch: Batch, quiet: bool, what: str) -> RunReport:
    """Do all groups, tell how it goes, and sum up."""
    check_writable(batch.report)
    report, total = RunReport(batch.report), sum(map(len, groups))
    bars, told = Bars(quiet), time.monotonic()
    with bars:
        for outcomes in batch.outcomes(job, groups):
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


def _tell(outcome: ItemOutcome, quiet: bool) -> None:
    for text in outcome.notes:
        note(text)
    if outcome.status == "failed":
        note(f"{outcome.error}: {outcome.text}")
    elif outcome.status == "done" and not quiet:
        out.print(f"{outcome.item.video}: {outcome.text}", soft_wrap=True, markup=False)


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
    out.print(f"{'; '.join(said)}; {duration_text(report.seconds)}", soft_wrap=True, markup=False)


@click.command()
@click.option_panel("Options")
@click.option_panel(options.BATCH_PANEL)
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(options.METHOD_PANEL)
@click.argument("videos", nargs=-1, required=True)
@options.batch
@options.video
@options.scorer
@options.index_settings
@options.common
def index(
    videos: tuple[str, ...],
    fps: float | None,
    stream: int | None,
    decoder: str,
    scorer: str,
    scoring: ScorerConfig,
    cache: ManagedStore,
    quiet: bool,
    **settings: Any,
) -> int:
    """Index VIDEOS once, so that questions asked later need not decode them again.

    VIDEOS are files, addresses, folders to be searched (an address ending in / too), and lists: text, CSV,
    JSON, JSON lines or Parquet with a column `video`. With --scorer none only the index is made, without
    features for a scorer.

    Each video is worked on in a process of its own. One that fails, hangs or crashes never stops the run:
    it ends in failures.jsonl. Run again to do what is missing; nothing finished is done twice. The exit
    code is 1 where a video failed.

    \b
    framenest index lectures/ --jobs 8
    framenest index films.csv more/*.mp4 --scorer none --probing keyframes --cache s3://bucket/library
    """
    batch = options.take(Batch, settings)
    config = options.config_from("paper", settings)
    found = find_videos(videos, pictures=fps is not None)
    job = job_for(
        cache,
        config=config,
        scorer=None if scorer == "none" else scorer,
        scoring=scoring,
        fps=fps,
        stream=stream,
        decoder=decoder,
    )
    if len(found) == 1 and found[0] == videos[0] and not batch.asked_for:
        return _index_here(job, found[0], quiet)
    report = run(job, index_groups(found), batch, quiet, "videos")
    if report.counts["failed"]:
        fail(f"{report.counts['failed']:,} of {len(found):,} videos could not be indexed")
    return int(report.counts["failed"] > 0)


def _index_here(job: BatchJob, video: str, quiet: bool) -> int:
    """A single video needs no worker, and shows how far it is."""
    bars = Bars(quiet)
    with bars:
        (outcome,) = job.open()(index_groups([video])[0], bars)
    if outcome.status == "failed":
        raise FramenestError(outcome.text)
    for text in outcome.notes:
        note(text)
    out.print(f"{video}: {outcome.text}", soft_wrap=True, markup=False)
    return 0
