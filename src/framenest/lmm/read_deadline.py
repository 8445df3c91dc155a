"""ReadDeadline: an end to what a thread reads from a server, however steadily its bytes drip."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any


class ReadDeadline:
    """Bounds all reads of a request together, headers and body; httpx bounds each of them alone.

    One deadline may serve many threads: each reads within its own time.

    Example::

        deadline = ReadDeadline()
        client = httpx.Client(event_hooks={"request": [deadline.watch]})
        with deadline.within(60.0):
            client.get("http://localhost:8000/v1/models")  # httpx.ReadTimeout after 60 s, at the latest
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What this thread reads here is read within so many seconds, or times out."""
        outer = self._until
        self.extend(seconds)
        try:
            yield
        finally:
            self._of_thread.until = outer

    def extend(self, seconds: float) -> None:
        """Inside `within`: so many seconds from now."""
        self._of_thread.until = monotonic() + seconds

    @property
    def _until(self) -> float:
        return getattr(self._of_thread, "until", float("inf"))

    def watch(self, request: Any) -> None:
        """The hook of a client for every request; a connection that it opens is bounded from then on."""
        request.extensions["trace"] = self._opened

    def _opened(self, event: str, info: dict[str, Any]) -> None:
        stream: Any = info.get("return_value")
        if event.endswith(".complete") and hasattr(stream, "start_tls"):  # connected, or now encrypted
            stream.read = self._bounded(stream)

    def _bounded(self, stream: Any) -> Callable[..., bytes]:
        library = importlib.import_module(type(stream).__module__.partition(".")[0])  # httpcore, of httpx
        unbounded = stream.read

        def read(max_bytes: int, timeout: float | None = None) -> bytes:
            left = self._until - monotonic()
            if left <= 0:
                raise library.ReadTimeout("the answer is not complete in time")
            known: bytes = unbounded(max_bytes, timeout=left if timeout is None else min(timeout, left))
            return known

        return read
