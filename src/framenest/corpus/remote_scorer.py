"""A scorer in another process: its actor joins what many videos send into batches."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import local_directory
from framenest.corpus.batch_job import BatchJob
from framenest.errors import FramenestError
from framenest.frames import FrameBatch
from framenest.protocols import Encoded, Scorer
from framenest.scorers import load_scorer

LARGEST_BATCH = 64
"""Frames of several videos that are encoded together at most."""

_Request = tuple[FrameBatch, "asyncio.Future[Encoded]"]


class BatchingEncoder:
    """An actor around a scorer. Requests that come while it encodes wait and are then encoded together."""

    def __init__(self, job: BatchJob) -> None:
        self._job = job
        self._waiting: list[_Request] = []
        self._task: asyncio.Task[None] | None = None
        self._one = asyncio.Lock()  # a scorer does one thing at a time

    @cached_property
    def _scorer(self) -> Scorer:
        return load_scorer(str(self._job.scorer), local_directory(self._job.store()), self._job.scoring)

    async def traits(self) -> dict[str, Any]:
        """The scorer's attributes: name, version, inputs and relevance."""
        names = ("name", "version", "inputs", "relevance")
        return {name: getattr(self._scorer, name, None) for name in names}

    async def encode(self, frames: FrameBatch) -> Encoded:
        """As Scorer.encode, together with what others asked for meanwhile."""
        future: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        self._waiting.append((frames, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def match(self, encoded: Encoded, question: str, reference: Encoded | None) -> NDArray[np.float32]:
        """As Scorer.match; reference: None where it is `encoded`, which is then not sent twice."""
        reference = encoded if reference is None else reference
        async with self._one:
            return await asyncio.to_thread(self._scorer.match, encoded, question, reference=reference)

    async def _drain(self) -> None:
        while self._waiting:
            await self._answer(self._next_batch())

    async def _answer(self, requests: list[_Request]) -> None:
        try:
            async with self._one:
                results = await asyncio.to_thread(self._encode_together, [frames for frames, _ in requests])
        except Exception as error:
            if len(requests) == 1:
                requests[0][1].set_exception(error)
            else:  # only the one to blame shall fail
                for request in requests:
                    await self._answer([request])
            return
        for (_, future), encoded in zip(requests, results, strict=True):
            future.set_result(encoded)

    def _next_batch(self) -> list[_Request]:
        """The first request, and others with pictures of its shapes up to LARGEST_BATCH frames."""
        shapes, count = _shapes(self._waiting[0][0]), 0
        taken: list[_Request] = []
        for request in list(self._waiting):
            if _shapes(request[0]) == shapes and (not taken or count + len(request[0]) <= LARGEST_BATCH):
                count += len(request[0])
                taken.append(request)
                self._waiting.remove(request)
        return taken

    def _encode_together(self, batches: list[FrameBatch]) -> list[Encoded]:
        """The features of each batch, encoded in one call."""
        encoded = self._scorer.encode(FrameBatch.join(batches))
        bounds = itertools.pairwise([0, *itertools.accumulate(map(len, batches))])
        return [{name: np.asarray(rows)[a:b] for name, rows in encoded.items()} for a, b in bounds]


def _shapes(batch: FrameBatch) -> tuple[tuple[int, ...], ...]:
    return tuple(pixels.shape[1:] for pixels in batch.pixels)


class RemoteScorer:
    """A Scorer whose work BatchingEncoder actors do, in turn. Small; travels between machines.

    traits: what BatchingEncoder.traits returns.
    """

    def __init__(self, traits: dict[str, Any], actors: Sequence[Any]) -> None:
        self.name, self.version = traits["name"], traits["version"]
        self.inputs, self.relevance = traits["inputs"], traits["relevance"]
        self.actors = actors
        self._calls = 0

    def encode(self, frames: FrameBatch) -> Encoded:
        """As Scorer.encode."""
        encoded: Encoded = self._call("encode", frames)
        return encoded

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        """As Scorer.match."""
        other = None if reference is encoded else reference
        relevance: NDArray[np.float32] = self._call("match", encoded, question, other)
        return relevance

    def _call(self, method: str, *arguments: Any) -> Any:
        import ray

        actor = self.actors[self._calls % len(self.actors)]
        self._calls += 1
        try:
            return ray.get(getattr(actor, method).remote(*arguments))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, FramenestError):  # as it was there, without the way it came
                raise error.cause from None
            raise
