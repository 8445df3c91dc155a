"""Listening for requests: one way for the service and for agents."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp

from framenest.server.bounded_protocol import BoundedProtocol
from framenest.server.server_settings import ServerSettings

SHUTDOWN_SECONDS = 5


def listen(app: ASGIApp, settings: ServerSettings) -> None:
    """Serve an application behind the guard until the process is told to stop."""
    # uvicorn's own access log would have query strings in it; the guard logs instead.
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        http=BoundedProtocol,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
