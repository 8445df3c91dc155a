"""The routes, by what they are about."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from framenest.server.service import Service
from framenest.server.shapes import Problem


async def _service(request: Request) -> Service:  # async: a plain one would go through a thread
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(_service)]

_MEANINGS = {
    400: "The request cannot be read.",
    401: "A token is needed.",
    403: "Not allowed.",
    404: "There is no such thing.",
    409: "Not in the state for this.",
    411: "A length is needed.",
    413: "Too large.",
    422: "Not a request this understands, or it names something that cannot be used.",
    429: "Too much at once; Retry-After says when to come back.",
    502: "The model endpoint did not answer.",
    507: "The server's disk cannot take it.",
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """What a route may refuse, for the OpenAPI document."""
    always = (400, 401, 403, 422, 507)
    return {code: {"model": Problem, "description": _MEANINGS[code]} for code in sorted({*always, *codes})}
