"""A batch in worker processes on this machine: whatever happens in one, only the video it was at is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome, WorkQueue
from framenest.errors import FramenestError
from framenest.processes import Cancelled, ProcessLimits, Report, WorkerLost, WorkerProcess, cores

log = logging.getLogger("framenest")
POLL = 0.2
"""Seconds between two checks of the limits on time and memory."""
GRACE = 10.0
"""Seconds that workers have to keep what they have done, where the run is interrupted."""
Watch = Callable[[str, str, int, int], None]
"""Called with (video, stage, done, total) as work on a video goes on; total is 0 where it only begins."""


def run_in_processes(
    job: BatchJob,
    groups: Iterable[Group],
    jobs: int,
    limits: ProcessLimits,
    watch: Watch = lambda *_: None,
) -> Iterator[list[ItemOutcome]]:
    """Do all groups in `jobs` processes; outcomes come as they end.

    A group in which a worker dies or is stopped is done again item by item; a single item then fails. A
    worker that cannot be started, not even again, is given up, and the others go on; the run ends where none
    is left. Where the run is interrupted, workers keep what they have done of their videos.
    """
    threads = max(1, cores() // jobs)
    pool = _Pool(
        WorkQueue(groups),
        [WorkerProcess(_open, job, limits=limits, threads=threads) for _ in range(jobs)],
        watch,
    )
    try:
        while pool.send():
            yield from pool.poll()
    finally:
        try:
            pool.let_go()
        finally:
            pool.kill()


class _Pool:
    """The workers, and what each is at."""

    def __init__(self, queue: WorkQueue, workers: list[WorkerProcess], watch: Watch) -> None:
        self._queue = queue
        self._watch = watch
        self._idle = workers
        self._busy: dict[WorkerProcess, Group] = {}

    def send(self) -> bool:
        """Give all idle workers something to do; False where nothing is left and all are idle."""
        while self._idle and (group := self._queue.next()) is not None:
            worker = self._idle.pop()
            self._busy[worker] = group
            self._watch(group[0].video, "starting", 0, 0)
            self._outcomes(worker, partial(worker.send, group))
        return bool(self._busy)

    def poll(self) -> Iterator[list[ItemOutcome]]:
        """Wait a moment for outcomes."""
        wait([source for worker in self._busy for source in worker.wakes], POLL)
        for worker in list(self._busy):
            if outcomes := self._outcomes(worker, worker.poll):
                yield outcomes

    def let_go(self) -> None:
        """Cancel what workers are doing, and wait until they have kept what is done of it."""
        left = [worker for worker in self._busy if worker.cancel()]
        end = time.monotonic() + GRACE
        while left and time.monotonic() < end:
            wait([source for worker in left for source in worker.wakes], POLL)
            for worker in list(left):
                try:
                    message = worker.poll()
                except (FramenestError, Cancelled):
                    message = ("done",)
                if message is not None and message[0] == "done":
                    left.remove(worker)

    def kill(self) -> None:
        for worker in (*self._idle, *self._busy):
            worker.kill()

    def _outcomes(
        self, worker: WorkerProcess, step: Callable[[], tuple[Any, ...] | None]
    ) -> list[ItemOutcome]:
        """What a step of a worker brings; nothing while it is at work, and where it is given up."""
        outcomes: list[ItemOutcome] = []
        try:
            message = step()
            if message is None:
                return []
            if message[0] == "progress":
                self._watch(self._busy[worker][0].video, *message[1:])
                return []
            outcomes = message[1]
        except WorkerLost as lost:
            if lost.kind == "StartFailed":
                self._give_up(worker, lost)
                return []
            outcomes = self._queue.lost(self._busy[worker], lost)
        del self._busy[worker]
        self._idle.append(worker)
        return outcomes

    def _give_up(self, worker: WorkerProcess, lost: WorkerLost) -> None:
        self._queue.put_back(self._busy.pop(worker))
        if not (self._idle or self._busy):
            raise FramenestError(f"{lost}; give fewer --jobs, or more --memory") from lost
        log.warning("%s; the others go on without it", lost)


def _open(report: Report, job: BatchJob) -> Callable[[Group], list[ItemOutcome]]:
    """In the worker: a heartbeat after each item, so that each has the whole time limit."""
    return partial(job.open(), progress=partial(report, "progress"), done=partial(report, "heartbeat"))
