"""The routes, by subject; what they share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from framenest.server.api_models import ErrorBody, JobOut
from framenest.server.jobs import Job
from framenest.server.service import Service


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
    429: "Too many requests at once; Retry-After says when to try again.",
    502: "The model endpoint did not answer.",
    507: "The server's disk cannot take it.",
}


def told(here: Service, job: Job) -> JobOut:
    """A job as clients see it."""
    seen = JobOut.model_validate(job)
    return seen.model_copy(update={"waits_for": here.jobs.waits_for(job)})


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Refusals of a route, for the OpenAPI document."""
    return {code: {"model": ErrorBody, "description": _MEANINGS[code]} for code in codes}
