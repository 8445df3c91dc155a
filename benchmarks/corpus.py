"""Hours of video indexed per core-hour and per second, with 1 and 2 jobs, and what Ray adds.

    python benchmarks/corpus.py FOOTAGE --videos 4 --minutes 30

Copies the footage's packets into several files, each from another starting point, so that no two are alike.
No scorer. Core-hours are CPU time of all processes, which other work on the machine hardly changes; seconds
are wall-clock time and include starting the workers.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import av
from clips import repeat
from machine import options, write

from framenest import IndexConfig, MECConfig
from framenest.cache.directory import DirectoryStore
from framenest.corpus.batch_job import BatchJob, Group
from framenest.corpus.manifest import index_groups
from framenest.corpus.process_run import ProcessLimits, run_in_processes
from framenest.rank_request import RankRequest


def processor_seconds() -> float:
    """CPU seconds of this process and all its descendants, living or not."""
    ticks, parents = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.parent.name)] = int(fields[1])
        ticks[int(entry.parent.name)] = sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks[pid] for pid in family) / os.sysconf("SC_CLK_TCK")


def run(engine: str, jobs: int, job: BatchJob, groups: list[Group]) -> dict[str, Any]:
    """Wall and CPU seconds of one run, and the hours of video it did. Starting Ray is not counted."""
    if engine == "ray":
        import ray

        from framenest.corpus.ray_run import run_on_ray

        ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False, logging_level="error")
    began, spent = time.perf_counter(), processor_seconds()
    work = (
        run_on_ray(job, groups, ProcessLimits())
        if engine == "ray"
        else run_in_processes(job, groups, jobs, ProcessLimits())
    )
    outcomes = [outcome for found in work for outcome in found]
    wall, cpu = time.perf_counter() - began, processor_seconds() - spent
    if engine == "ray":
        ray.shutdown()
    if any(outcome.status != "done" for outcome in outcomes):
        raise SystemExit(f"not all done: {[o.text for o in outcomes if o.status != 'done']}")
    hours = sum(outcome.duration for outcome in outcomes) / 3600
    seconds = sum(outcome.seconds for outcome in outcomes)
    return {"hours": hours, "wall_seconds": wall, "cpu_seconds": cpu, "work_seconds": seconds, "jobs": jobs}


def rerun(store: str, groups: list[Group]) -> float:
    """CPU milliseconds per video that is already indexed, in one worker."""
    work = BatchJob(cache=store).open()
    began = time.process_time()
    for group in groups:
        if work(group)[0].status != "already":
            raise SystemExit("done twice")
    return 1000 * (time.process_time() - began) / len(groups)


def main(footage: Path, videos: int, minutes: float) -> None:
    with av.open(str(footage)) as source:
        length = source.duration / av.time_base
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.mp4" for number in range(videos)]
        for number, path in enumerate(paths):
            repeat(footage, path, 60 * minutes, begin=length * number / (videos + 1))
        size = sum(path.stat().st_size for path in paths)
        rows = {}
        for probing in ("uniform", "keyframes"):
            request = RankRequest(video="", config=MECConfig(IndexConfig(probing=probing)))
            groups = index_groups([str(path) for path in paths], request)
            for engine, jobs in (("local", 1), ("local", 2), ("ray", 2)):
                with tempfile.TemporaryDirectory(dir=folder) as store:
                    row = run(engine, jobs, BatchJob(cache=store), groups)
                    kept = sum(entry.size for entry in DirectoryStore(store).entries())
                    row |= {"stored_bytes_per_hour": kept / row["hours"]}
                    if (engine, jobs) == ("local", 2):
                        row["rerun_ms_per_video"] = rerun(store, groups)
                row["hours_per_core_hour"] = row["hours"] / (row["cpu_seconds"] / 3600)
                row["hours_per_second"] = row["hours"] / row["wall_seconds"]
                rows[f"{probing}, {engine}, {jobs} job{'s' * (jobs > 1)}"] = row
                speed = (
                    f"{row['hours_per_second']:.3f} h a second, {row['hours_per_core_hour']:.0f} a core-hour"
                )
                print(f"{probing:9s} {engine:5s} {jobs} jobs: {row['wall_seconds']:6.1f} s, {speed}")
    facts = {"videos": videos, "minutes": minutes, "bytes": size, "load": os.getloadavg()[0]}
    print(write("corpus", {"corpus": facts, "rows": rows}))


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("footage", type=Path)
    parser.add_argument("--videos", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=30.0)
    main(**vars(parser.parse_args()))
