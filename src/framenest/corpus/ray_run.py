"""Batches on a Ray cluster, with scorers that serve many workers."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from framenest.cache.directory import DirectoryStore, local_directory
from framenest.config import ScorerConfig
from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome, Work, retry_or_fail
from framenest.corpus.process_run import POLL_SECONDS
from framenest.errors import ConfigError, FramenestError, needs_extra
from framenest.frames import FrameBatch
from framenest.processes import ProcessLimits, Report, WorkerLost, WorkerProcess
from framenest.protocols import Encoded, Scorer, Searchable
from framenest.scorers import load_scorer, wait_until_loaded
from framenest.text import one_line
from framenest.video.source import is_remote

LARGEST_BATCH = 64  # most frames in one batch
PATIENCE = 8  # times the limit of a call that a video waits for an encoder: others may hang there first

_Request = tuple[FrameBatch, "asyncio.Future[Encoded]"]


class BatchingEncoder:
    """An actor around a scorer. Requests that arrive while it encodes are queued, then batched.

    The scorer runs in its own process, so images that crash or hang it do not end the actor. The batch
    is then retried one request at a time, so that only the video at fault fails.
    """

    def __init__(self, job: BatchJob, limits: ProcessLimits) -> None:
        folder = local_directory(job.store()).root
        self._process = WorkerProcess(_load, str(job.scorer), str(folder), job.scoring, limits=limits)
        self._waiting: list[_Request] = []
        self._task: asyncio.Task[None] | None = None
        self._one = asyncio.Lock()  # a scorer does one thing at a time

    async def encode(self, frames: FrameBatch) -> Encoded:
        """Like Scorer.encode, batched with the other queued requests."""
        future: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        self._waiting.append((frames, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def ask(self, *call: Any) -> Any:
        """Call a function in the scorer's process with the scorer and these arguments; return its result.

        Raises WorkerLost if the process dies or exceeds a limit.
        """
        async with self._one:
            return await asyncio.to_thread(self._wait, *call)

    def _wait(self, *call: Any) -> Any:
        self._process.send(*call)
        while (message := self._process.poll(POLL_SECONDS)) is None:
            pass
        return message[1]

    async def _drain(self) -> None:
        while self._waiting:
            await self._answer(self._next_batch())

    async def _answer(self, requests: list[_Request]) -> None:
        try:
            results = await self.ask(_encode, [frames for frames, _ in requests])
        except Exception as error:
            if len(requests) == 1:
                requests[0][1].set_exception(_blame(error, requests[0][0]))
            else:  # so that only the one at fault fails
                for request in requests:
                    await self._answer([request])
            return
        for (_, future), encoded in zip(requests, results, strict=True):
            future.set_result(encoded)

    def _next_batch(self) -> list[_Request]:
        """The first request, and others with images of its shapes up to LARGEST_BATCH frames."""
        shapes, count = _shapes(self._waiting[0][0]), 0
        taken: list[_Request] = []
        for request in list(self._waiting):
            if _shapes(request[0]) == shapes and (not taken or count + len(request[0]) <= LARGEST_BATCH):
                count += len(request[0])
                taken.append(request)
                self._waiting.remove(request)
        return taken


def _load(_report: Report, scorer: str, folder: str, scoring: ScorerConfig) -> Callable[..., Any]:
    """In the scorer's process: a call names one of the functions below and its further arguments."""
    loaded = load_scorer(scorer, DirectoryStore(folder), scoring)
    wait_until_loaded(loaded)
    return lambda function, *arguments: function(loaded, *arguments)


def traits(scorer: Scorer) -> dict[str, Any]:
    """The attributes of a scorer that RemoteScorer copies."""
    known = {name: getattr(scorer, name, None) for name in ("name", "version", "inputs", "relevance")}
    return known | {"searchable": isinstance(scorer, Searchable)}


def call(scorer: Scorer, method: str, argument: Any) -> Any:
    """In the scorer's process: what one of its methods returns."""
    return getattr(scorer, method)(argument)


def _encode(scorer: Scorer, batches: list[FrameBatch]) -> list[Encoded]:
    """The features of each batch, encoded in one call."""
    encoded = scorer.encode(FrameBatch.join(batches))
    bounds = itertools.pairwise([0, *itertools.accumulate(map(len, batches))])
    return [{name: np.asarray(rows)[a:b] for name, rows in encoded.items()} for a, b in bounds]


def match(scorer: Scorer, encoded: Encoded, question: str, reference: Encoded | None) -> NDArray[np.float32]:
    """Like Scorer.match; reference: None if it is `encoded`, which is then not sent twice."""
    return scorer.match(encoded, question, reference=encoded if reference is None else reference)


def _blame(error: Exception, frames: FrameBatch) -> Exception:
    """The error, with the frames on which the scorer failed."""
    if not isinstance(error, WorkerLost) or error.kind == "StartFailed" or not len(frames):
        return error
    first, last = frames.frames[0], frames.frames[-1]
    return WorkerLost(f"the scorer failed on its frames {first} to {last} ({error})", error.kind)


def _shapes(batch: FrameBatch) -> tuple[tuple[int, ...], ...]:
    return tuple(pixels.shape[1:] for pixels in batch.pixels)


class RemoteScorer:
    """A Scorer that sends its work to BatchingEncoder actors in turn. Small and picklable.

    traits: of the scorer. patience: seconds to wait for an answer; None waits forever.
    """

    def __init__(self, traits: dict[str, Any], actors: Sequence[Any], patience: float | None = None) -> None:
        self.name, self.version = traits["name"], traits["version"]
        self.inputs, self.relevance = traits["inputs"], traits["relevance"]
        self.actors = actors
        for method in ("search_vectors", "search_query") if traits["searchable"] else ():
            setattr(self, method, partial(self._call, "ask", call, method))
        self._patience = patience
        self._calls = 0
        self._waited = 0.0
        self._since: float | None = None

    @property
    def waited(self) -> float:
        """Seconds that this scorer has waited for answers."""
        since = self._since
        return self._waited + (0.0 if since is None else time.monotonic() - since)

    def encode(self, frames: FrameBatch) -> Encoded:
        """As Scorer.encode."""
        encoded: Encoded = self._call("encode", frames)
        return encoded

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        """As Scorer.match."""
        other = None if reference is encoded else reference
        relevance: NDArray[np.float32] = self._call("ask", match, encoded, question, other)
        return relevance

    def _call(self, method: str, *arguments: Any) -> Any:
        import ray

        actor = self.actors[self._calls % len(self.actors)]
        self._calls += 1
        self._since = time.monotonic()
        try:
            return ray.get(getattr(actor, method).remote(*arguments), timeout=self._patience)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, FramenestError):  # without Ray's traceback
                raise error.cause from None
            raise
        except ray.exceptions.GetTimeoutError:
            raise WorkerLost(f"no answer from an encoder in {self._patience:g} s", "TimeLimit") from None
        except ray.exceptions.RayActorError as error:  # lost with its node, after all retries
            raise WorkerLost(f"its encoder was lost ({type(error).__name__})") from None
        finally:
            self._waited, self._since = self.waited, None


RETRIES = 5  # of a task, or of a request to an encoder, when its worker or node is lost
WAITING_AT_ONCE = 64  # most requests that one encoder queues; it joins them into batches


def run_on_ray(
    job: BatchJob,
    groups: Iterable[Group],
    limits: ProcessLimits,
    *,
    address: str | None = None,
    jobs: int | None = None,
    encoders: int | None = None,
) -> Iterator[list[ItemOutcome]]:
    """Process all groups on a Ray cluster; yields outcomes as groups finish.

    address: as ray.init takes it; None starts a cluster on this machine with `jobs` processors. On a
    cluster, `jobs` bounds the videos in progress. encoders: actors that run the scorer for all tasks; by
    default one per GPU, and none without GPUs: then every task runs the scorer itself.
    """
    with needs_extra("ray", "ray"):
        import ray
    if job.scorer == "auto":
        raise ConfigError("on a cluster every worker must use the same scorer; name it with --scorer")
    name, _, file = (job.scorer or "").partition(":")
    if file and Path(file).exists():
        job = replace(job, scorer=f"{name}:{Path(file).absolute()}")
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, jobs)
    try:
        scorer = None if job.scorer is None else _start_encoders(ray, job, limits, encoders)
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_do)
        todo = deque(map(_absolute, groups))
        flying: dict[Any, Group] = {}
        while True:
            # Enough in flight to keep all processors busy, and to show a cluster that it should grow.
            most = jobs if jobs and address else 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while len(flying) < most and todo:
                group = todo.popleft()
                flying[task.remote(job, group, limits, scorer)] = group
            if not flying:
                return
            ready, _ = ray.wait(list(flying), timeout=5.0)  # the cluster may have grown meanwhile
            for reference in ready:
                group = flying.pop(reference)
                answer = _answer(ray, reference)
                yield retry_or_fail(group, answer, todo) if isinstance(answer, WorkerLost) else answer
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, address: str | None, jobs: int | None) -> None:
    where = {"num_cpus": jobs, "include_dashboard": False} if address is None else {"address": address}
    try:
        ray.init(log_to_driver=False, logging_level="error", **where)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise FramenestError(f"no Ray cluster at {address or 'this machine'} ({one_line(error)})") from error


def _answer(ray: Any, reference: Any) -> list[ItemOutcome] | WorkerLost:
    try:
        answer: list[ItemOutcome] | WorkerLost = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise _ours(error) from error
    except ray.exceptions.RayError as error:  # the worker or its node was lost, after all retries
        return WorkerLost(f"lost {RETRIES + 1} times ({type(error).__name__})")
    return answer


def _absolute(group: Group) -> Group:
    """Make paths absolute, since workers have their own working directories."""
    return tuple(
        item
        if is_remote(item.video)
        else replace(item, request=replace(item.request, video=str(Path(item.video).absolute())))
        for item in group
    )


def _start_encoders(
    ray: Any, job: BatchJob, limits: ProcessLimits, wanted: int | None
) -> RemoteScorer | None:
    """A scorer on actors; None if every task runs its own."""
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
        return RemoteScorer(ray.get(actors[0].ask.remote(traits)), actors, patience)
    except ray.exceptions.RayTaskError as error:
        raise _ours(error) from error


def _ours(error: Any) -> FramenestError:
    cause = getattr(error, "cause", None)
    return FramenestError(str(cause) if isinstance(cause, FramenestError) else one_line(cause or error))


def _do(
    job: BatchJob, group: Group, limits: ProcessLimits, scorer: RemoteScorer | None
) -> list[ItemOutcome] | WorkerLost:
    """A task: the outcomes of a group, or the reason why it was stopped.

    The work runs in a thread. Time spent waiting for an encoder, which has its own limits, is not counted.
    After work over a limit, this process returns its answer and ends; Ray retries its next task elsewhere.
    """
    os.environ["FRAMENEST_THREADS"] = "1"  # a task has one processor
    work, mine = _open(job, scorer)

    def worked() -> float:
        return time.monotonic() - (mine.waited if mine else 0.0)

    began = worked()

    def heartbeat() -> None:
        nonlocal began
        began = worked()

    answer = ThreadPoolExecutor(1).submit(work, group, done=heartbeat)
    while not wait([answer], POLL_SECONDS).done:
        lost = limits.exceeded(time.monotonic() - worked() + began, os.getpid())
        if lost is not None:
            threading.Timer(1.0, os._exit, (1,)).start()
            return lost
    return answer.result()


@cached(LRUCache(4), key=lambda job, scorer: (job, *map(str, scorer.actors if scorer else ())))
def _open(job: BatchJob, scorer: RemoteScorer | None) -> tuple[Work, RemoteScorer | None]:
    """Opened once per worker process, which serves many tasks: the work, and the scorer that it uses."""
    return job.open(scorer), scorer
