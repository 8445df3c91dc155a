"""The same work on Ray: a task per video, and where there are GPUs, actors that run the scorer for all.

Nothing passes through the driver but names and outcomes. A task that a lost node took with it runs again
elsewhere; entries are kept under the hash of what they are made of, so doing one twice changes nothing.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from framenest.corpus.encoder import BatchingEncoder, RemoteScorer, Traits
from framenest.corpus.job import BatchJob, Group, ItemOutcome, Work, failed
from framenest.corpus.workers import POLL
from framenest.errors import ConfigError, FramenestError, MissingExtra
from framenest.processes import ProcessLimits
from framenest.text import one_line
from framenest.video.address import is_remote

RETRIES = 5
"""How often a task is begun anew when its worker or node is lost."""
ENCODERS_AT_ONCE = 64
"""Requests that one encoder has waiting at the most; they are joined into batches."""


def run_on_ray(
    job: BatchJob,
    groups: Iterable[Group],
    limits: ProcessLimits,
    *,
    address: str | None = None,
    jobs: int | None = None,
    encoders: int | None = None,
) -> Iterator[list[ItemOutcome]]:
    """Do all groups on a Ray cluster; outcomes come as they end.

    address: as ray.init takes it; None starts a cluster on this machine with `jobs` processors. On a
    cluster, `jobs` bounds the videos in work. encoders: actors that run the scorer for all tasks; by
    default one per GPU, and none without GPUs: then every task runs the scorer itself.
    """
    ray = _ray()
    if job.scorer == "auto":
        raise ConfigError("on a cluster every worker must use the same scorer; name it with --scorer")
    job = replace(job, scorer=_absolute_scorer(job.scorer))
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, jobs)
    try:
        yield from _Run(ray, job, limits, jobs if address else None, encoders).outcomes(
            map(_absolute, groups)
        )
    finally:
        if ours:
            ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray") from error
    return ray


def _connect(ray: Any, address: str | None, jobs: int | None) -> None:
    where = {"num_cpus": jobs, "include_dashboard": False} if address is None else {"address": address}
    try:
        ray.init(log_to_driver=False, logging_level="error", **where)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise FramenestError(f"no Ray cluster at {address or 'this machine'} ({one_line(error)})") from error


def _absolute(group: Group) -> Group:
    """Workers have working directories of their own."""
    return tuple(
        item if is_remote(item.video) else replace(item, video=str(Path(item.video).absolute()))
        for item in group
    )


def _absolute_scorer(scorer: str | None) -> str | None:
    name, mark, where = (scorer or "").partition(":")
    return f"{name}:{Path(where).absolute()}" if mark and Path(where).exists() else scorer


class _Run:
    """One run on a cluster: what is in flight, and what came of it."""

    def __init__(
        self, ray: Any, job: BatchJob, limits: ProcessLimits, jobs: int | None, encoders: int | None
    ) -> None:
        self._ray, self._job, self._limits, self._jobs = ray, job, limits, jobs
        self._actors = self._start(encoders) if job.scorer is not None else []
        self._traits = self._traits_of_scorer() if self._actors else None
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)
        self._task = remote(_do)
        self._again: deque[Group] = deque()

    def outcomes(self, groups: Iterator[Group]) -> Iterator[list[ItemOutcome]]:
        flying: dict[Any, Group] = {}
        while True:
            while len(flying) < self._most():
                group = self._again.popleft() if self._again else next(groups, None)
                if group is None:
                    break
                reference = self._task.remote(self._job, group, self._limits, self._actors, self._traits)
                flying[reference] = group
            if not flying:
                return
            ready, _ = self._ray.wait(list(flying), timeout=5.0)  # the cluster may have grown meanwhile
            for reference in ready:
                yield from self._answer(reference, flying.pop(reference))

    def _most(self) -> int:
        """Videos in flight: enough to keep all processors busy and to show a cluster that it should grow."""
        return self._jobs or 2 * max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _answer(self, reference: Any, group: Group) -> Iterator[list[ItemOutcome]]:
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(reference)
        except errors.RayTaskError as error:
            raise _ours(error) from error
        except errors.RayError as error:  # the worker or its node was lost, again and again
            answer = ("WorkerDied", f"lost {RETRIES + 1} times ({type(error).__name__})")
        if isinstance(answer, list):
            yield answer
        elif len(group) > 1:
            self._again.extend((item,) for item in group)
        else:
            yield [failed(item, answer[0], f"{item.video}: {answer[1]}") for item in group]

    def _start(self, wanted: int | None) -> list[Any]:
        there = self._ray.cluster_resources()
        processors, gpus = int(there.get("CPU", 0)), int(there.get("GPU", 0))
        count = gpus if wanted is None else wanted
        if count and not gpus and count >= processors:
            raise ConfigError(
                f"{count} encoders leave none of the cluster's {processors} processors to decode"
            )
        share = {"num_gpus": min(1.0, gpus / count), "num_cpus": 0} if gpus and count else {"num_cpus": 1}
        lasting = {"max_restarts": -1, "max_task_retries": -1, "max_concurrency": ENCODERS_AT_ONCE}
        kind = self._ray.remote(BatchingEncoder).options(**share, **lasting)
        return [kind.remote(self._job) for _ in range(count)]

    def _traits_of_scorer(self) -> Traits:
        try:
            traits: Traits = self._ray.get(self._actors[0].traits.remote())
        except self._ray.exceptions.RayTaskError as error:
            raise _ours(error) from error
        return traits


def _ours(error: Any) -> FramenestError:
    cause = getattr(error, "cause", None)
    return FramenestError(str(cause) if isinstance(cause, FramenestError) else one_line(cause or error))


_OPENED: dict[tuple[object, ...], Work] = {}
"""What this worker process has opened: it serves many tasks."""


def _do(
    job: BatchJob, group: Group, limits: ProcessLimits, actors: list[Any], traits: Traits | None
) -> list[ItemOutcome] | tuple[str, str]:
    """A task: the outcomes of a group, or why it had to be stopped (class, line)."""
    os.environ["FRAMENEST_THREADS"] = "1"  # a task has one processor
    what = (job, *map(str, actors))
    if what not in _OPENED:
        _OPENED[what] = job.open(RemoteScorer(traits, actors) if traits is not None else None)
    return _bounded(_OPENED[what], group, limits)


def _bounded(work: Work, group: Group, limits: ProcessLimits) -> list[ItemOutcome] | tuple[str, str]:
    """Work in a thread, watched. What has to be stopped takes this process with it, after the answer: a
    task that comes to it meanwhile is begun anew elsewhere."""
    answers: queue.SimpleQueue[list[ItemOutcome] | Exception] = queue.SimpleQueue()

    began = time.monotonic()

    def next_item() -> None:
        nonlocal began
        began = time.monotonic()

    def run() -> None:
        try:
            answers.put(work(group, done=next_item))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=run, daemon=True).start()
    while True:
        try:
            answer = answers.get(timeout=POLL)
        except queue.Empty:
            wrong = limits.exceeded(began, os.getpid())
            if wrong is None:
                continue
            threading.Timer(1.0, os._exit, (1,)).start()
            return wrong
        if isinstance(answer, Exception):
            raise answer
        return answer
