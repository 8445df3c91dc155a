"""VideoWorker: a worker process that does VideoTasks, asked from the server's threads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from framenest.errors import VideoError
from framenest.protocols import Progress
from framenest.server.server_settings import ServerSettings
from framenest.server.video_tasks import load_tasks
from framenest.worker_process import Cancelled, ProcessLimits, WorkerLost, WorkerProcess

GRACE = 5.0  # seconds that a cancelled task may take to stop by itself
NICENESS = 5  # answering requests goes before work


class VideoWorker:
    """Does one task at a time, in a process that is replaced when it dies. Thread-safe: calls take turns.

    >>> from pathlib import Path
    >>> settings = ServerSettings(Path("data"), scorer="table:scores.csv")
    >>> worker = VideoWorker(settings, ProcessLimits(seconds=3600))
    >>> worker.call("index", "kiln.mp4")["video"]["num_frames"]
    300
    >>> worker.close()
    """

    def __init__(self, settings: ServerSettings, limits: ProcessLimits) -> None:
        what = (settings.scorer, settings.scoring, settings.cache)
        self.limits = limits
        self._process = WorkerProcess(load_tasks, *what, limits=limits, niceness=NICENESS)
        self._turn = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """None where no process runs."""
        return self._process.pid

    def call(
        self,
        task: str,
        *arguments: Any,
        progress: Progress = lambda *_: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Any:
        """What the method `task` of VideoTasks returns.

        Raises:
            Cancelled: `cancelled` became true, or the worker was closed.
            VideoError: The process died or went over a limit.
            FramenestError: What the task raised.
        """
        with self._turn:
            if cancelled() or self._closed:
                raise Cancelled
            deadline = math.inf
            self._process.send(task, *arguments)
            try:
                while True:
                    if deadline == math.inf and (cancelled() or self._closed):
                        self._process.cancel()
                        deadline = time.monotonic() + (0 if self._closed else GRACE)
                    message = self._process.poll(0.05)
                    if message is None and time.monotonic() > deadline:
                        self._process.kill()
                        raise Cancelled
                    if message is not None and message[0] == "done":
                        return message[1]
                    if message is not None:
                        progress(*message[1:])
            except WorkerLost as lost:
                if self._closed:
                    raise Cancelled from lost
                died = "the decoder or the model broke down on this video"
                raise VideoError(died if lost.kind == "WorkerDied" else str(lost)) from lost

    def close(self) -> None:
        """End the process, also in the middle of a task."""
        self._closed = True
        with self._turn:
            self._process.kill()
