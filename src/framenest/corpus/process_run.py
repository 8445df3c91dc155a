"""Run a batch in worker processes on this machine; a crash loses only the video in progress."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import wait

from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome, retry_or_fail
from framenest.errors import FramenestError
from framenest.processes import Cancelled, ProcessLimits, Report, WorkerLost, WorkerProcess, cores

log = logging.getLogger("framenest")
POLL_SECONDS = 0.2  # between two checks of the limits on time and memory
GRACE_SECONDS = 10.0  # that workers get to save their work when the run is interrupted
Watch = Callable[[str, str, int, int], None]
"""Called with (video, stage, done, total) as work on a video progresses; total is 0 when it begins."""


def run_in_processes(
    job: BatchJob, groups: Iterable[Group], jobs: int, limits: ProcessLimits, watch: Watch = lambda *_: None
) -> Iterator[list[ItemOutcome]]:
    """Process all groups in `jobs` worker processes; yields outcomes as groups finish.

    If a worker dies or is stopped, its group is retried item by item; a single item then fails. If a worker
    still fails to start after its retries, the others continue without it; the run ends if none is left.
    If the run is interrupted, workers save the work done so far.
    """
    threads = max(1, cores() // jobs)
    idle = [WorkerProcess(_open, job, limits=limits, threads=threads) for _ in range(jobs)]
    busy: dict[WorkerProcess, Group] = {}
    todo = deque(groups)
    try:
        while todo or busy:
            while idle and todo:
                worker, group = idle.pop(), todo.popleft()
                busy[worker] = group
                watch(group[0].video, "starting", 0, 0)
                worker.send(group)
            wait([source for worker in busy for source in worker.wakes], POLL_SECONDS)
            for worker, group in list(busy.items()):
                try:
                    kind, *rest = worker.poll() or ("nothing",)
                except WorkerLost as lost:
                    del busy[worker]
                    if lost.kind != "StartFailed":
                        idle.append(worker)
                        yield retry_or_fail(group, lost, todo)
                    elif idle or busy:
                        todo.append(group)
                        log.warning("%s; the others continue without it", lost)
                    else:
                        raise FramenestError(f"{lost}; give fewer --jobs, or more --memory") from lost
                    continue
                if kind == "progress":
                    watch(group[0].video, *rest)
                elif kind == "done":
                    idle.append(worker)
                    del busy[worker]
                    yield rest[0]
    finally:
        try:
            _let_go([worker for worker in busy if worker.cancel()])
        finally:
            for worker in (*idle, *busy):
                worker.kill()


def _let_go(workers: list[WorkerProcess]) -> None:
    """Wait until cancelled workers have saved their work."""
    end = time.monotonic() + GRACE_SECONDS
    while workers and time.monotonic() < end:
        wait([source for worker in workers for source in worker.wakes], POLL_SECONDS)
        for worker in list(workers):
            try:
                message = worker.poll()
            except (FramenestError, Cancelled):
                message = ("done",)
            if message is not None and message[0] == "done":
                workers.remove(worker)


def _open(report: Report, job: BatchJob) -> Callable[[Group], list[ItemOutcome]]:
    """In the worker: a heartbeat after each item, so that each has the whole time limit."""
    return partial(job.open(), progress=partial(report, "progress"), done=partial(report, "heartbeat"))
