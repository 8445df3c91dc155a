"""The ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

import framenest
from framenest.errors import FramenestError
from framenest.server.guard import Guard
from framenest.server.refusals import status_of
from framenest.server.routes import jobs_routes, problems, rankings_routes, service_routes, videos_routes
from framenest.server.service import Service

ABOUT = """One ranking of a video's frames per question; every frame budget is a prefix of it.

Register or upload a video, ask, wait for the job, take `/rankings/{id}/prefix?k=16`. More frames later?
`?after=16&k=32` gives the 16 that are added. Nothing runs again."""


def create_app(service: Service) -> FastAPI:
    """A started service as an ASGI application, which closes it at its end."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="Framenest",
        version=framenest.__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=problems(400, 401, 403, 422, 507),
    )
    app.state.service = service
    for routes in (videos_routes, rankings_routes, jobs_routes, service_routes):
        app.include_router(routes)
    app.add_exception_handler(FramenestError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(Guard, settings=service.settings, metrics=service.metrics)
    return app


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FramenestError)
    wait = getattr(error, "retry_after", None)
    headers = {} if wait is None else {"retry-after": str(wait)}
    detail = request.app.state.service.without_paths(str(error))
    return JSONResponse({"detail": detail}, status_of(error), headers)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """One line that says what is wrong; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return JSONResponse({"detail": f"{where}: {first['msg']}"}, 422)
