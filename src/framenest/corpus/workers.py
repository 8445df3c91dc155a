"""Worker processes on this machine: one video at a time each, with a limit on time and on memory.

Every worker has a pipe of its own, so that one killed at any moment can leave no shared queue locked;
whatever happens in a worker, only the video it was at is lost.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from framenest.corpus.job import BatchJob, Group, ItemOutcome, failed
from framenest.errors import FramenestError
from framenest.processes import ProcessLimits, cores, end_with_parent

POLL = 0.2
"""Seconds between two looks at clocks and memory."""


def run_here(
    job: BatchJob, groups: Iterable[Group], jobs: int, limits: ProcessLimits
) -> Iterator[list[ItemOutcome]]:
    """Do all groups in `jobs` processes; outcomes come as they end.

    A group in which a worker dies or is stopped is done again item by item; a single item then fails.
    """
    crew = _Crew(job, iter(groups), jobs, limits)
    try:
        while busy := crew.set_to_work():
            wait([thing for worker in busy for thing in (worker.pipe, worker.process.sentinel)], POLL)
            for worker in busy:
                yield from crew.answers(worker)
    finally:
        crew.stop()


class _Crew:
    """The workers, and what is still to do."""

    def __init__(self, job: BatchJob, groups: Iterator[Group], jobs: int, limits: ProcessLimits) -> None:
        self._job, self._groups, self._jobs, self._limits = job, groups, jobs, limits
        self._again: deque[Group] = deque()
        self._workers: list[_Worker] = []

    def set_to_work(self) -> list[_Worker]:
        """Give every idle worker a group, start workers while there are groups; those that are busy."""
        idle = [worker for worker in self._workers if worker.group is None]
        while idle or len(self._workers) < self._jobs:
            group = self._again.popleft() if self._again else next(self._groups, None)
            if group is None:
                break
            if not idle:
                idle.append(_Worker(self._job, max(1, cores() // self._jobs), self._limits))
                self._workers.append(idle[0])
            idle.pop().give(group)
        return [worker for worker in self._workers if worker.group is not None]

    def answers(self, worker: _Worker) -> Iterator[list[ItemOutcome]]:
        answer = worker.look()
        if isinstance(answer, list):
            yield answer
        elif answer is not None:
            self._workers.remove(worker)
            group = worker.stop()
            if len(group) > 1:
                self._again.extend((item,) for item in group)
            else:
                yield [failed(item, answer[0], f"{item.video}: {answer[1]}") for item in group]

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()


class _Worker:
    """One process, and what it is at."""

    def __init__(self, job: BatchJob, threads: int, limits: ProcessLimits) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, job, threads), daemon=True)
        self.process.start()
        theirs.close()
        self.group: Group | None = None
        self._limits = limits
        self._began = time.monotonic()
        self._ready = False

    def give(self, group: Group) -> None:
        self.group, self._began = group, time.monotonic()
        with suppress(OSError):  # it has died; `look` will tell
            self.pipe.send(group)

    def look(self) -> list[ItemOutcome] | tuple[str, str] | None:
        """Outcomes, or why the worker must go (class, line), or None while it works."""
        try:
            while self.pipe.poll():
                answer = self.pipe.recv()
                if isinstance(answer, str):
                    raise FramenestError(answer)
                if answer is None:  # one more item of the group is done
                    self._began = time.monotonic()
                    continue
                if self._ready:
                    self.group = None
                    return list(answer)
                self._ready, self._began = True, time.monotonic()  # loading is not the video's time
        except (EOFError, OSError):
            pass
        wrong = self._wrong()
        if wrong is not None and not self._ready:
            raise FramenestError(f"a worker could not start: {wrong[1]}; give fewer --jobs, or more --memory")
        return wrong

    def _wrong(self) -> tuple[str, str] | None:
        if not self.process.is_alive():
            return "WorkerDied", _cause(self.process.exitcode)
        began = self._began if self._ready else time.monotonic()  # loading may take long
        return self._limits.exceeded(began, self.process.pid or 0)

    def stop(self) -> Group:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return self.group or ()


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the worker was killed by {signal.Signals(-code).name}"
    return f"the worker ended with code {code}"


def _serve(pipe: Connection[Any, Any], job: BatchJob, threads: int) -> None:
    """What a worker does: open the job, then answer each group with its outcomes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=end_with_parent, daemon=True).start()
    os.environ["FRAMENEST_THREADS"] = str(threads)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    try:
        work = job.open()
    except FramenestError as error:
        pipe.send(str(error))
        return
    pipe.send(True)
    while True:
        try:
            group = pipe.recv()
        except EOFError:
            return
        pipe.send(work(group, done=lambda: pipe.send(None)))
