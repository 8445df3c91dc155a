"""A scorer that runs in another process: the one side joins what many videos ask for into batches."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import local_directory
from framenest.corpus.job import BatchJob
from framenest.errors import FramenestError
from framenest.frames import FrameBatch, ImageSpec
from framenest.protocols import Encoded, Scorer
from framenest.scorers import load_scorer

TOGETHER = 64
"""Frames of several videos that are encoded together at the most."""

_Asked = tuple[FrameBatch, "asyncio.Future[Encoded]"]


@dataclass(frozen=True)
class Traits:
    """What a pipeline must know of a scorer that is elsewhere."""

    name: str
    version: str
    inputs: tuple[ImageSpec, ...]
    relevance: str | None = None


class BatchingEncoder:
    """An actor around a scorer. While it encodes, what comes in waits and is then encoded together."""

    def __init__(self, job: BatchJob) -> None:
        self._job = job
        self._loaded: Scorer | None = None
        self._waiting: list[_Asked] = []
        self._working = False
        self._one = asyncio.Lock()  # a scorer does one thing at a time

    async def traits(self) -> Traits:
        scorer = self._scorer()
        return Traits(scorer.name, scorer.version, scorer.inputs, getattr(scorer, "relevance", None))

    async def encode(self, frames: FrameBatch) -> Encoded:
        future: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        self._waiting.append((frames, future))
        if not self._working:
            self._working = True
            self._task = asyncio.create_task(self._drain())
        return await future

    async def match(self, encoded: Encoded, question: str, reference: Encoded | None) -> NDArray[np.float32]:
        scorer = self._scorer()
        async with self._one:
            return await asyncio.to_thread(
                lambda: scorer.match(encoded, question, reference=encoded if reference is None else reference)
            )

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._answer(self._next())
        finally:
            self._working = False

    async def _answer(self, together: list[_Asked]) -> None:
        try:
            batches = [batch for batch, _ in together]
            async with self._one:
                results = await asyncio.to_thread(lambda: encode_together(self._scorer(), batches))
        except Exception as error:
            if len(together) == 1:
                together[0][1].set_exception(error)
            else:  # only the one to blame shall fail
                for asked in together:
                    await self._answer([asked])
            return
        for (_, future), encoded in zip(together, results, strict=True):
            future.set_result(encoded)

    def _next(self) -> list[_Asked]:
        """What can be encoded together: pictures of one shape, up to TOGETHER frames, at least one batch."""
        shape, count = _shape(self._waiting[0][0]), 0
        taken: list[_Asked] = []
        for entry in list(self._waiting):
            if _shape(entry[0]) == shape and (not taken or count + len(entry[0]) <= TOGETHER):
                count += len(entry[0])
                taken.append(entry)
                self._waiting.remove(entry)
        return taken

    def _scorer(self) -> Scorer:
        if self._loaded is None:
            self._loaded = load_scorer(
                str(self._job.scorer), local_directory(self._job.store()), self._job.scoring
            )
        return self._loaded


def _shape(batch: FrameBatch) -> tuple[tuple[int, ...], ...]:
    return tuple(pixels.shape[1:] for pixels in batch.pixels)


def encode_together(scorer: Scorer, batches: Sequence[FrameBatch]) -> list[Encoded]:
    """The features of each batch, encoded in one call. All batches have pictures of the same shapes."""
    encoded = {name: np.asarray(rows) for name, rows in scorer.encode(FrameBatch.join(batches)).items()}
    ends = list(itertools.accumulate(len(batch) for batch in batches))
    return [
        {name: array[end - len(batch) : end] for name, array in encoded.items()}
        for batch, end in zip(batches, ends, strict=True)
    ]


class RemoteScorer:
    """A scorer whose work is done by BatchingEncoder actors, in turn."""

    def __init__(self, traits: Traits, actors: Sequence[Any]) -> None:
        self.name, self.version, self.inputs = traits.name, traits.version, traits.inputs
        self.relevance = traits.relevance
        self._turn = itertools.cycle(actors)

    def encode(self, frames: FrameBatch) -> Encoded:
        encoded: Encoded = self._get(next(self._turn).encode.remote(frames))
        return encoded

    def match(
        self, encoded: Encoded, question: str, *, reference: Encoded | None = None
    ) -> NDArray[np.float32]:
        other = None if reference is encoded else reference
        relevance: NDArray[np.float32] = self._get(next(self._turn).match.remote(encoded, question, other))
        return relevance

    def _get(self, reference: Any) -> Any:
        import ray

        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, FramenestError):  # as it was there, without the way it came
                raise error.cause from None
            raise
