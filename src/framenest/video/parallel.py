"""Several decoders over disjoint runs, their pictures in order, with a bound on what is held."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

Task = TypeVar("Task")
Task_contra = TypeVar("Task_contra", contravariant=True)
Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)

HELD_BYTES = 32 * 2**20
"""Items that one task may be ahead of the reader, at least one."""


class TaskWorker(Protocol[Task_contra, Item_co]):
    """Turns tasks into items, in one thread."""

    def __call__(self, task: Task_contra, /) -> Iterator[Item_co]: ...
    def close(self) -> None: ...


def ordered(
    tasks: Sequence[Task], workers: Sequence[TaskWorker[Task, Item]], *, item_bytes: int
) -> Iterator[Item]:
    """All items of all tasks, in the order of the tasks; each worker runs in a thread of its own.

    An exception in a worker is raised here, in the place of the item that it broke.
    """
    if len(workers) == 1 or len(tasks) <= 1:
        try:
            for task in tasks:
                yield from workers[0](task)
        finally:
            workers[0].close()
        return
    pool = _Pool(tasks, workers, max(1, HELD_BYTES // max(1, item_bytes)))
    try:
        yield from pool.items()
    finally:
        pool.stop()


class _Pool(Generic[Task, Item]):
    def __init__(self, tasks: Sequence[Task], workers: Sequence[TaskWorker[Task, Item]], depth: int) -> None:
        self._tasks = tasks
        self._results: list[queue.Queue[tuple[str, Any]]] = [queue.Queue(depth) for _ in tasks]
        self._todo = iter(range(len(tasks)))
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._ahead = threading.Semaphore(2 * len(workers))  # tasks begun but not read to their end
        self._threads = [threading.Thread(target=self._run, args=(w,), daemon=True) for w in workers]
        for thread in self._threads:
            thread.start()

    def items(self) -> Iterator[Item]:
        for results in self._results:
            kind, value = results.get()
            while kind == "item":
                yield value
                kind, value = results.get()
            if kind == "error":
                raise value
            self._ahead.release()

    def stop(self) -> None:
        self._stopped.set()
        for _ in self._threads:
            self._ahead.release()
        for thread in self._threads:
            thread.join()

    def _run(self, worker: TaskWorker[Task, Item]) -> None:
        try:
            while self._ahead.acquire() and not self._stopped.is_set():
                with self._lock:
                    place = next(self._todo, None)
                if place is None:
                    return
                self._do(worker, place)
        finally:
            worker.close()

    def _do(self, worker: TaskWorker[Task, Item], place: int) -> None:
        try:
            for item in worker(self._tasks[place]):
                self._put(place, "item", item)
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
