"""A batch in worker processes on this machine: whatever happens in one, only the video it was at is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import wait

from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome, WorkQueue
from framenest.errors import FramenestError
from framenest.processes import ProcessLimits, Report, WorkerLost, WorkerProcess, cores

POLL = 0.2
"""Seconds between two checks of the limits on time and memory."""


def run_in_processes(
    job: BatchJob, groups: Iterable[Group], jobs: int, limits: ProcessLimits
) -> Iterator[list[ItemOutcome]]:
    """Do all groups in `jobs` processes; outcomes come as they end.

    A group in which a worker dies or is stopped is done again item by item; a single item then fails.
    """
    queue, threads = WorkQueue(groups), max(1, cores() // jobs)
    idle = [WorkerProcess(_open, job, limits=limits, threads=threads) for _ in range(jobs)]
    busy: dict[WorkerProcess, Group] = {}
    try:
        while True:
            while idle and (group := queue.next()) is not None:
                worker = idle.pop()
                busy[worker] = group
                worker.send(group)
            if not busy:
                return
            wait([source for worker in busy for source in worker.wakes], POLL)
            for worker in list(busy):
                outcomes = _outcomes(worker, busy[worker], queue)
                if outcomes is not None:
                    del busy[worker]
                    idle.append(worker)
                    yield outcomes
    finally:
        for worker in (*idle, *busy):
            worker.kill()


def _outcomes(worker: WorkerProcess, group: Group, queue: WorkQueue) -> list[ItemOutcome] | None:
    """None while the worker is at work."""
    try:
        message = worker.poll()
    except WorkerLost as lost:
        if lost.kind == "StartFailed":
            raise FramenestError(f"{lost}; give fewer --jobs, or more --memory") from lost
        return queue.lost(group, lost)
    return None if message is None else message[1]


def _open(report: Report, job: BatchJob) -> Callable[[Group], list[ItemOutcome]]:
    """In the worker: a heartbeat after each item, so that each has the whole time limit."""
    return partial(job.open(), done=partial(report, "heartbeat"))
