"""Listening: limits on connections before authentication."""

from __future__ import annotations

import asyncio
import faulthandler
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from framenest.errors import ConfigError
from framenest.server.server_settings import ServerSettings

HEADER_BYTES = 65_536  # of an address and all headers; browsers and proxies send less than 16 KiB
HEADER_SECONDS = 20.0  # from the first byte of a request, or a new connection, to the end of its headers
WRITE_SECONDS = 60.0  # in which a client must take something of its answer; players pause for less
STALLED_SECONDS = 1.0  # after which a connection whose answer waits to be read may make room
CONNECTIONS = 512
PIPELINED = 16  # requests of a connection that wait for the one before
READ_AT_ONCE = 2**18  # bytes that the event loop may hand over together
SHUTDOWN_SECONDS = 5


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits on headers, pipelined requests, unread answers and open connections.

    If all connections are taken, the one that has done nothing for longest makes room; a new one is refused
    only if all others have one request under way. Who pipelines, or does not read an answer, makes room too.
    """

    header_seconds = HEADER_SECONDS
    write_seconds = WRITE_SECONDS
    most_connections = CONNECTIONS

    _reading_headers = True
    _counted = 0
    _unfinished = 0
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _since = 0.0
    _unanswered: Sequence[Any] = ()
    _full = False

    @property
    def at_work(self) -> bool:
        """Whether one request is complete and not answered yet, or its body is coming in."""
        stalled = self.flow.write_paused and time.monotonic() - self._since > STALLED_SECONDS
        return not self._reading_headers and not stalled and len(self._waiting()) == 1

    # uvicorn's names, and types, which differ between its releases.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused while anything waits to be read
        self._since = time.monotonic()
        self._start_timer()
        if len(self.connections) > self.most_connections:
            others = [c for c in self.connections if isinstance(c, BoundedProtocol) and c is not self]
            idle = min((c for c in others if not c.at_work), key=lambda c: c._since, default=None)
            if idle is not None:
                idle.transport.abort()
            else:
                self._refuse(b"503 Service Unavailable", b"retry-after: 5\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        for cycle in self._unanswered:  # uvicorn tells only the last of several
            cycle.disconnected = True
            cycle.message_event.set()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._since = time.monotonic()
        self._watch(sys.maxsize)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _watch(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._write_timer = self.loop.call_later(self.write_seconds, self._watch, left)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._full or self.transport.is_closing():
            return
        super().data_received(data)
        if not self._reading_headers or self.transport.is_closing():
            return
        self._unfinished += len(data)
        if self._unfinished > HEADER_BYTES + READ_AT_ONCE:  # a part may belong to the request before
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_headers, self._counted, self._unfinished = True, 0, 0
        if self._timer is None:
            self._start_timer()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._reading_headers = False
        self._stop_timer()
        waiting = self._waiting()
        if len(waiting) > PIPELINED:  # the client sends the rest again, on another connection
            self._full, waiting[-1].keep_alive = True, False
            waiting[-1].scope["headers"].append(
                (b"connection", b"close")
            )  # uvicorn before 0.53 sends it only then
            raise ValueError("too many pipelined requests")  # ends the parser
        super().on_headers_complete()
        self._unanswered = [*waiting, self.cycle]

    def on_response_complete(self) -> None:
        self._since = time.monotonic()
        unread = self.cycle is not None and self.cycle.more_body
        super().on_response_complete()
        if unread and not self.transport.is_closing() and self._timer is None:
            self._start_timer()  # for the rest of a body that nobody reads

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if not self._reading_headers:
            self._stop_timer()

    def send_400_response(self, msg: str) -> None:
        """Also called when a callback of the parser raises."""
        if not self._full and not self.transport.is_closing():
            super().send_400_response(msg)

    def _waiting(self) -> list[Any]:
        return [cycle for cycle in self._unanswered if not cycle.response_complete]

    def _count(self, more: int) -> None:
        self._counted += more
        if self._counted > HEADER_BYTES:
            self._refuse(b"431 Request Header Fields Too Large")
            raise ValueError("headers too large")  # ends the parser

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.header_seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._unfinished:
            self._refuse(b"408 Request Timeout")
        else:
            self.transport.abort()

    def _refuse(self, status: bytes, headers: bytes = b"") -> None:
        if not self.transport.is_closing():
            head = b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n"
            self.transport.write(head + headers + b"\r\n")
            self.transport.close()


def open_port(settings: ServerSettings) -> tuple[socket.socket, ServerSettings]:
    """Open the port before other work starts, so that it cannot fail later.

    Returns the socket for `listen`, on which connections now wait, and the settings with the actual port.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        opened = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        why = (error.strerror or "").partition(" (while")[0]
        text = f"cannot listen at {settings.url} ({why}); --port names another port, 0 any free one"
        raise ConfigError(text) from error
    return opened, replace(settings, port=opened.getsockname()[1])


def listen(app: ASGIApp, port: socket.socket) -> None:
    """Serve an application behind the guard until the process is told to stop."""
    # uvicorn's own access log would have query strings in it; the guard logs instead.
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
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
