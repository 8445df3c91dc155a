"""Worker: a process with a Desk in it, asked over a pipe; started anew when it dies or must be stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from framenest.config import ScorerConfig
from framenest.errors import FramenestError, VideoError
from framenest.processes import ProcessLimits, end_with_parent
from framenest.protocols import Progress
from framenest.server.work import Desk

CANCEL = "cancel"
GRACE = 5.0  # seconds that a cancelled task may take to come to a stop by itself


class Cancelled(Exception):
    """The task was cancelled."""


class Worker:
    """Does one task at a time. Safe to call from several threads; they wait for each other.

    >>> worker = Worker("tags", ScorerConfig(), None, ProcessLimits(seconds=3600))   # doctest: +SKIP
    >>> worker.call("index", "kiln.mp4", progress=print)                  # doctest: +SKIP
    """

    def __init__(self, scorer: str, scoring: ScorerConfig, cache: str | None, limits: ProcessLimits) -> None:
        self._arguments = (scorer, scoring, cache)
        self._limits = limits
        self._context = multiprocessing.get_context("spawn")
        self._turn = threading.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def call(
        self,
        task: str,
        *arguments: Any,
        progress: Progress = lambda *_: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Any:
        """What the Desk's method `task` returns. Raises its errors, Cancelled, and VideoError at a limit."""
        with self._turn:
            if cancelled() or self._closed:
                raise Cancelled
            if self._process is None or not self._process.is_alive():
                self._start()
            assert self._pipe is not None
            try:
                self._pipe.send((task, arguments))
                return self._wait(self._pipe, progress, cancelled)
            except (EOFError, OSError) as error:
                self._end()
                if self._closed:
                    raise Cancelled from error
                raise VideoError("the decoder or the model broke down on this video") from error

    def _wait(self, pipe: Connection, progress: Progress, cancelled: Callable[[], bool]) -> Any:
        began, deadline = time.monotonic(), None
        while True:
            if exceeded := self._limits.exceeded(began, self.pid or 0):
                self._end()
                raise VideoError(exceeded[1])
            if deadline is None and (cancelled() or self._closed):
                pipe.send(CANCEL)
                deadline = time.monotonic() + (0 if self._closed else GRACE)
            if not pipe.poll(0.05):
                if deadline is not None and time.monotonic() > deadline:
                    self._end()
                    raise Cancelled
                continue
            kind, *rest = pipe.recv()
            if kind == "progress":
                progress(*rest)
            elif kind == "done":
                return rest[0]
            elif kind == "cancelled":
                raise Cancelled
            else:
                raise rest[0]

    def close(self) -> None:
        """End the process, also in the middle of a task."""
        self._closed = True
        with self._turn:
            self._end()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_main, args=(theirs, *self._arguments), daemon=True, name="framenest-worker"
        )
        self._process.start()
        theirs.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _main(pipe: Connection, scorer: str, scoring: ScorerConfig, cache: str | None) -> None:
    """The other process. It ends with the server, also in the middle of a task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this
    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(OSError, AttributeError):  # not on Windows
        os.nice(5)  # answering requests goes before work
    warnings.simplefilter("ignore")  # of the cache; the work goes on without it

    def progress(stage: str, done: int, total: int) -> None:
        if pipe.poll() and pipe.recv() == CANCEL:
            raise Cancelled
        pipe.send(("progress", stage, done, total))

    desk = Desk(scorer, scoring, cache, progress)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            asked = pipe.recv()
            if asked == CANCEL:  # came when the task was over
                continue
            task, arguments = asked
            try:
                pipe.send(("done", getattr(desk, task)(*arguments)))
            except Cancelled:
                pipe.send(("cancelled",))
            except FramenestError as error:
                pipe.send(("error", _plain(error)))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                return
            except Exception as error:  # a defect; the server lives on and the job says what happened
                pipe.send(("error", FramenestError(f"unexpected {type(error).__name__}: {error}")))


def _plain(error: FramenestError) -> FramenestError:
    """The error as it can travel: one whose constructor takes more than a message would not come through."""
    kind = type(error)
    with suppress(TypeError):
        return kind(str(error))
    return FramenestError(str(error))
