"""The same batch on a Ray cluster: a task per video, and actors that run the scorer where there are GPUs.

Only names and outcomes pass through the driver. A task lost with its node is retried elsewhere; keys are
content hashes, so doing one twice changes nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from cachetools import LRUCache, cached

from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome, Work, WorkQueue
from framenest.corpus.process_run import POLL
from framenest.corpus.remote_scorer import PATIENCE, BatchingEncoder, RemoteScorer
from framenest.errors import ConfigError, FramenestError, MissingExtra
from framenest.text import one_line
from framenest.video.formats import is_remote
from framenest.worker_process import ProcessLimits, WorkerLost

RETRIES = 5
"""How often a task, or a request to an encoder, is retried when its worker or node is lost."""
WAITING_AT_ONCE = 64
"""Requests that one encoder has waiting at most; they are joined into batches."""


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
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray") from error
    if job.scorer == "auto":
        raise ConfigError("on a cluster every worker must use the same scorer; name it with --scorer")
    job = replace(job, scorer=_absolute_scorer(job.scorer))
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, jobs)
    try:
        scorer = None if job.scorer is None else _start_encoders(ray, job, limits, encoders)
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_do)
        queue = WorkQueue(map(_absolute, groups))
        flying: dict[Any, Group] = {}
        while True:
            # Enough in flight to keep all processors busy, and to show a cluster that it should grow.
            most = jobs if jobs and address else 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while len(flying) < most and (group := queue.next()) is not None:
                flying[task.remote(job, group, limits, scorer)] = group
            if not flying:
                return
            ready, _ = ray.wait(list(flying), timeout=5.0)  # the cluster may have grown meanwhile
            for reference in ready:
                answer, group = _answer(ray, reference), flying.pop(reference)
                yield queue.lost(group, answer) if isinstance(answer, WorkerLost) else answer
    finally:
        if ours:
            ray.shutdown()


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


def _answer(ray: Any, reference: Any) -> list[ItemOutcome] | WorkerLost:
    try:
        answer: list[ItemOutcome] | WorkerLost = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise _ours(error) from error
    except ray.exceptions.RayError as error:  # the worker or its node was lost, again and again
        return WorkerLost(f"lost {RETRIES + 1} times ({type(error).__name__})")
    return answer


def _start_encoders(
    ray: Any, job: BatchJob, limits: ProcessLimits, wanted: int | None
) -> RemoteScorer | None:
    """A scorer on actors; None where every task runs its own."""
    there = ray.cluster_resources()
    processors, gpus = int(there.get("CPU", 0)), int(there.get("GPU", 0))
    count = gpus if wanted is None else wanted
    if not count:
        return None
    if not gpus and count >= processors:
        raise ConfigError(f"{count} encoders leave none of the cluster's {processors} processors to decode")
    share = {"num_gpus": min(1.0, gpus / count), "num_cpus": 0} if gpus else {"num_cpus": 1}
    lasting = {"max_restarts": -1, "max_task_retries": RETRIES, "max_concurrency": WAITING_AT_ONCE}
    actor = ray.remote(BatchingEncoder).options(**share, **lasting)
    actors = [actor.remote(job, limits) for _ in range(count)]
    patience = PATIENCE * limits.seconds if limits.seconds else None
    try:
        return RemoteScorer(ray.get(actors[0].traits.remote()), actors, patience)
    except ray.exceptions.RayTaskError as error:
        raise _ours(error) from error


def _ours(error: Any) -> FramenestError:
    cause = getattr(error, "cause", None)
    return FramenestError(str(cause) if isinstance(cause, FramenestError) else one_line(cause or error))


def _do(
    job: BatchJob, group: Group, limits: ProcessLimits, scorer: RemoteScorer | None
) -> list[ItemOutcome] | WorkerLost:
    """A task: the outcomes of a group, or why it had to be stopped.

    The work runs in a thread, watched; time that it waits for an encoder, which has limits of its own, is
    not counted. What has to be stopped takes this process with it, after the answer:
    a task that comes to it meanwhile is retried elsewhere.
    """
    os.environ["FRAMENEST_THREADS"] = "1"  # a task has one processor
    work, mine = _open(job, scorer)

    def worked() -> float:
        return time.monotonic() - (mine.waited if mine else 0.0)

    began = worked()
    answer: Future[list[ItemOutcome]] = Future()

    def heartbeat() -> None:
        nonlocal began
        began = worked()

    def run() -> None:
        try:
            answer.set_result(work(group, done=heartbeat))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while not wait([answer], POLL).done:
        lost = limits.exceeded(time.monotonic() - worked() + began, os.getpid())
        if lost is not None:
            threading.Timer(1.0, os._exit, (1,)).start()
            return lost
    return answer.result()


@cached(LRUCache(4), key=lambda job, scorer: (job, *map(str, scorer.actors if scorer else ())))
def _open(job: BatchJob, scorer: RemoteScorer | None) -> tuple[Work, RemoteScorer | None]:
    """Opened once per worker process, which serves many tasks: the work, and the scorer that it uses."""
    return job.open(scorer), scorer
