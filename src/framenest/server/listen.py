"""Listening: limits on connections before authentication."""

from __future__ import annotations

import asyncio
import faulthandler
import socket
import sys
import time
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEADER_BYTES = 65_536  # of an address and all headers; browsers and proxies send less than 16 KiB
STALLED_SECONDS = 1.0  # after which a connection whose answer waits to be read may make room
SHUTDOWN_SECONDS = 5
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 5\r\n\r\n"


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, with limits on slow requests, unread answers and open connections.

    If all connections are taken, the one that has been idle for longest makes room; a new one is refused only
    if all others have a request under way. Who does not read an answer makes room, too.
    """

    header_seconds = 20.0  # until the headers of a request, or the rest of an answered one, are here
    write_seconds = 60.0  # in which a client must take something of its answer; players pause for less
    max_connections = 512

    _idle_since = 0.0
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, or nobody reads the answer."""
        stalled = self.flow.write_paused and time.monotonic() - self._idle_since > STALLED_SECONDS
        return stalled or self.cycle is None or self.cycle.response_complete

    # uvicorn's names, and types, which differ between its releases.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused while anything waits to be read
        self._expect_request()
        if len(self.connections) > self.max_connections:
            others = [c for c in self.connections if isinstance(c, BoundedProtocol) and c is not self]
            idle = min((c for c in others if c.is_idle), key=lambda c: c._idle_since, default=None)
            if idle is not None:
                idle.transport.abort()
            else:
                transport.write(BUSY)
                transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
        self.resume_writing()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._expect_request()  # first: the next request may have come already
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._idle_since = time.monotonic()
        self._watch_writing(sys.maxsize)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _expect_request(self) -> None:
        self._idle_since = time.monotonic()
        if self._header_timer is not None:
            self._header_timer.cancel()
        self._header_timer = self.loop.call_later(self.header_seconds, self._end_if_still_at, self.cycle)

    def _end_if_still_at(self, cycle: object) -> None:
        if self.cycle is cycle:
            self.transport.abort()

    def _watch_writing(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._write_timer = self.loop.call_later(self.write_seconds, self._watch_writing, left)
        else:
            self.transport.abort()


def listen(app: ASGIApp, port: socket.socket) -> None:
    """Serve an application behind the guard until the process is told to stop."""
    # uvicorn's own access log would have query strings in it; the guard logs instead.
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    faulthandler.enable()  # if native code crashes, the log says where
    with suppress(KeyboardInterrupt):
        server.run(sockets=[port])
    if not server.started:  # it has logged why
        sys.exit(3)
