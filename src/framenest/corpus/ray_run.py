"""Batches on a Ray cluster, with scorers that serve many workers."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from cachetools import LRUCache, cached

from framenest.corpus.batch_job import BatchJob, Group, ItemOutcome, Work, retry_or_fail
from framenest.corpus.process_run import POLL_SECONDS
from framenest.errors import ConfigError, FramenestError, ScorerError, error_line, needs_extra
from framenest.frames import Floats, FrameBatch
from framenest.processes import ProcessLimits, WorkerLost
from framenest.protocols import Encoded, Scorer
from framenest.text import one_line
from framenest.video.source import is_remote

TASK_RETRIES = 5  # of a task whose worker or node is lost
CALL_TRIES = 2  # of a call during which its encoder dies; it may have died with its node
RESTART_SECONDS = 1.0  # between two calls to an encoder that is restarting
TURN_LIMITS = 8  # times the limit of a call that a video waits for its turn: others may hang there first
METHODS = (
    "match_strength", "labels", "certainty", "frame_vectors", "text_vector", "search_vectors", "search_query",
    "known_words", "clearly_shows",
)  # fmt: skip
"""What scorers may be able to do besides encoding and matching."""
IN_STEPS = {"num_returns": "streaming", "_generator_backpressure_num_objects": 1}


class Encoder:
    """An actor that runs a scorer for many workers, one call at a time.

    The scorer loads with the first call: Ray does not restart an actor whose constructor raises.
    """

    def __init__(self, job: BatchJob) -> None:
        self._job = job

    @cached_property
    def _scorer(self) -> Scorer | None:
        return self._job.load()

    def traits(self) -> dict[str, Any]:
        """The attributes of the scorer that RemoteScorer copies."""
        names = ("name", "version", "inputs", "relevance", "batch")
        known = {name: getattr(self._scorer, name) for name in names if hasattr(self._scorer, name)}
        return known | {"methods": [name for name in METHODS if hasattr(self._scorer, name)]}

    def call(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Iterator[Any]:
        """True when the call begins, so that its caller knows whether it broke the actor; then the result."""
        work = getattr(self._scorer, method)
        yield True
        yield work(*arguments, **named)


class RemoteScorer:
    """A Scorer that sends its work to Encoder actors in turn. Small and picklable.

    traits: of the scorer. seconds: the limit of one call; None for no limit.
    """

    def __init__(self, traits: dict[str, Any], actors: Sequence[Any], seconds: float | None) -> None:
        self.name, self.version, self.inputs = traits["name"], traits["version"], traits["inputs"]
        self.relevance, self.batch = traits.get("relevance"), traits.get("batch", 1)
        self.actors = actors
        for method in traits["methods"]:
            setattr(self, method, partial(self._call, method))
        self._seconds = seconds
        self._calls = 0
        self._waited = 0.0
        self._since: float | None = None

    @property
    def waited(self) -> float:
        """Seconds that this scorer has waited for results."""
        since = self._since
        return self._waited + (0.0 if since is None else time.monotonic() - since)

    def encode(self, frames: FrameBatch) -> Encoded:
        try:
            encoded: Encoded = self._call("encode", frames)
        except WorkerLost as lost:
            if not len(frames):
                raise
            first, last = frames.frames[0], frames.frames[-1]
            text = f"the scorer failed on its frames {first} to {last} ({lost})"
            raise WorkerLost(text, lost.kind) from None
        return encoded

    def match(self, encoded: Encoded, question: str, *, reference: Encoded | None = None) -> Floats:
        relevance: Floats = self._call("match", encoded, question, reference=reference)
        return relevance

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """What a method of the scorer returns; WorkerLost if the call breaks the actor or hangs in it."""
        import ray

        actor = self.actors[self._calls % len(self.actors)]
        self._calls += 1
        self._since = time.monotonic()
        turn = TURN_LIMITS * self._seconds if self._seconds else None
        losses = 0
        try:
            while losses < CALL_TRIES:
                steps = actor.call.options(**IN_STEPS).remote(method, arguments, named)
                begun = False
                left = None if turn is None else max(0.0, self._since + turn - time.monotonic())
                if not ray.wait([steps], timeout=left)[0]:
                    raise ScorerError(f"no encoder was free for {turn:g} s")
                try:
                    begun = ray.get(next(steps))
                    if not ray.wait([steps], timeout=self._seconds)[0]:
                        ray.kill(actor, no_restart=False)
                        raise WorkerLost(f"not done after {self._seconds:g} s", "TimeLimit")
                    return ray.get(next(steps))
                except ray.exceptions.RayTaskError as error:
                    raise _ours(error) from None
                except ray.exceptions.RayActorError:  # in another call, unless this one had begun
                    losses += begun
                    time.sleep(RESTART_SECONDS)
            raise WorkerLost("its process died")
        finally:
            self._waited, self._since = self.waited, None


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

    job: its scorer must not be "auto", which may mean another one on each node. address: as ray.init takes
    it; None starts a cluster on this machine with `jobs` processors. On a cluster, `jobs` bounds the videos
    in progress. encoders: actors that run the scorer for all tasks; by default one per GPU, and none without
    GPUs: then every task runs the scorer itself.
    """
    with needs_extra("ray", "ray"):
        import ray
    name, _, file = (job.scorer or "").partition(":")
    if file and Path(file).exists():
        job = replace(job, scorer=f"{name}:{Path(file).absolute()}")
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, jobs)
    try:
        scorer = _start_encoders(ray, job, limits.seconds, encoders)
        task = ray.remote(num_cpus=1, max_retries=TASK_RETRIES)(_do)
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
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise _ours(error) from error
                except ray.exceptions.RayError as error:  # the worker or its node was lost, after all retries
                    result = WorkerLost(f"lost {TASK_RETRIES + 1} times ({type(error).__name__})")
                yield retry_or_fail(group, result, todo) if isinstance(result, WorkerLost) else result
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
    """Make paths absolute, since workers have their own working directories."""
    video = group[0].video
    path = video if is_remote(video) else str(Path(video).absolute())
    return tuple(replace(item, request=replace(item.request, video=path)) for item in group)


def _start_encoders(
    ray: Any, job: BatchJob, seconds: float | None, wanted: int | None
) -> RemoteScorer | None:
    """A scorer on actors; None if every task runs its own."""
    resources = ray.cluster_resources()
    processors, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    count = gpus if wanted is None else wanted
    if not count or job.scorer is None:
        return None
    if not gpus and count >= processors:
        raise ConfigError(f"{count} encoders leave none of the cluster's {processors} processors to decode")
    share = {"num_gpus": min(1.0, gpus / count), "num_cpus": 0} if gpus else {"num_cpus": 1}
    actor = ray.remote(Encoder).options(**share, max_restarts=-1)
    actors = [actor.remote(job) for _ in range(count)]
    try:
        return RemoteScorer(ray.get(actors[0].traits.remote()), actors, seconds)
    except ray.exceptions.RayTaskError as error:
        raise _ours(error) from error
    except ray.exceptions.RayActorError as error:
        raise FramenestError(f"the scorer {job.scorer} could not start; its process died") from error


def _ours(error: Any) -> FramenestError:
    """The error of a task or an actor, without Ray's traceback."""
    cause = error.cause
    return cause if isinstance(cause, FramenestError) else FramenestError(error_line(cause))


def _do(
    job: BatchJob, group: Group, limits: ProcessLimits, scorer: RemoteScorer | None
) -> list[ItemOutcome] | WorkerLost:
    """A task: the outcomes of a group, or the reason why it was stopped.

    Time spent waiting for an encoder, which has its own limits, is not counted. After work over a limit,
    this process returns its answer and ends; Ray retries its next task elsewhere.
    """
    os.environ["FRAMENEST_THREADS"] = "1"  # a task has one processor
    work, mine = _open(job, scorer)

    def waited() -> float:
        return mine.waited if mine else 0.0

    beats = [time.monotonic() - waited()]
    result = ThreadPoolExecutor(1).submit(work, group, done=lambda: beats.append(time.monotonic() - waited()))
    while not wait([result], POLL_SECONDS).done:
        if (lost := limits.exceeded(beats[-1] + waited(), os.getpid())) is not None:
            threading.Timer(1.0, os._exit, (1,)).start()
            return lost
    return result.result()


@cached(LRUCache(4), key=lambda job, scorer: (job, *map(str, scorer.actors if scorer else ())))
def _open(job: BatchJob, scorer: RemoteScorer | None) -> tuple[Work, RemoteScorer | None]:
    """Opened once per worker process, which serves many tasks: the work, and the scorer that it uses."""
    return job.open(scorer), scorer
