"""Listening for requests: one way for the service and for agents."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from dataclasses import replace

import uvicorn
from starlette.types import ASGIApp

from framenest.errors import ConfigError
from framenest.server.bounded_protocol import BoundedProtocol
from framenest.server.server_settings import ServerSettings

SHUTDOWN_SECONDS = 5


def open_port(settings: ServerSettings) -> tuple[socket.socket, ServerSettings]:
    """Take the port before any work is done, so that it cannot fail afterwards.

    Returns:
        What `listen` takes: the socket, on which connections wait from now on, and the settings with the
        port that it has, where any free one was asked for (0).

    Raises:
        ConfigError: The address is in use, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        opened = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        why = (error.strerror or "").partition(" (while")[0]
        raise ConfigError(
            f"cannot listen at {settings.url} ({why}); --port names another port, 0 any free one"
        ) from error
    return opened, replace(settings, port=opened.getsockname()[1])


def listen(app: ASGIApp, port: socket.socket) -> None:
    """Serve an application behind the guard until the process is told to stop."""
    # uvicorn's own access log would have query strings in it; the guard logs instead.
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[port])
    if not server.started:  # it has logged why
        sys.exit(3)
