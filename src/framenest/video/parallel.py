"""Several decoders at once over disjoint runs of frames: pictures come in order, memory is bounded."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from framenest.video.picture_decoder import Picture
from framenest.video.reader import Reader, Run
from framenest.video.scale import Scaler
from framenest.video.source import DAMAGE, damage_as_video_error

HELD_BYTES = 32 * 2**20
"""Pictures that one run may be ahead of who reads them, at least one."""


class DecodeWorker:
    """Decodes and scales runs, in one thread."""

    def __init__(self, path: str, reader: Reader, scaler: Scaler) -> None:
        self._path = path
        self._reader = reader
        self._scaler = scaler
        self.close = reader.close

    def __call__(self, run: Run) -> Iterator[Picture]:
        for number, frame in self._reader.read(run):
            with damage_as_video_error(self._path):
                try:
                    pictures = self._scaler(frame)
                except DAMAGE:  # no picture comes of it: as if it had not decoded
                    continue
            yield number, pictures


def ordered(runs: Sequence[Run], workers: Sequence[DecodeWorker], *, item_bytes: int) -> Iterator[Picture]:
    """The pictures of all runs, in order; each worker has a thread of its own.

    An exception in a worker is raised here, in the place of the picture that it concerns.
    """
    if len(workers) == 1 or len(runs) <= 1:
        with closing(workers[0]):
            for run in runs:
                yield from workers[0](run)
    else:
        with closing(_Pool(runs, workers, max(1, HELD_BYTES // max(1, item_bytes)))) as pool:
            yield from pool.pictures()


class _Pool:
    """Threads that each take the next run; every run has a bounded queue of its own."""

    def __init__(self, runs: Sequence[Run], workers: Sequence[DecodeWorker], depth: int) -> None:
        self._runs = runs
        self._results: list[queue.Queue[tuple[str, Any]]] = [queue.Queue(depth) for _ in runs]
        self._todo = deque(range(len(runs)))
        self._stopped = threading.Event()
        self._ahead = threading.Semaphore(2 * len(workers))  # runs begun but not read to their end
        self._threads = [threading.Thread(target=self._work, args=(w,), daemon=True) for w in workers]
        for thread in self._threads:
            thread.start()

    def pictures(self) -> Iterator[Picture]:
        for results in self._results:
            kind, value = results.get()
            while kind == "picture":
                yield value
                kind, value = results.get()
            if kind == "error":
                raise value
            self._ahead.release()

    def close(self) -> None:
        self._stopped.set()
        for _ in self._threads:
            self._ahead.release()
        for thread in self._threads:
            thread.join()

    def _work(self, worker: DecodeWorker) -> None:
        with closing(worker):
            while self._ahead.acquire() and not self._stopped.is_set():
                try:
                    place = self._todo.popleft()
                except IndexError:
                    return
                self._decode(worker, place)

    def _decode(self, worker: DecodeWorker, place: int) -> None:
        try:
            for picture in worker(self._runs[place]):
                self._put(place, "picture", picture)
                if self._stopped.is_set():
                    return
            self._put(place, "end", None)
        except BaseException as error:
            self._put(place, "error", error)

    def _put(self, place: int, kind: str, value: Any) -> None:
        while not self._stopped.is_set():
            try:
                self._results[place].put((kind, value), timeout=0.1)
                return
            except queue.Full:
                continue
