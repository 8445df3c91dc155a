"""The page, its parts, health, metrics, signing in."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse

import framenest
from framenest.server.docs import docs_page
from framenest.server.guard import COOKIE, session
from framenest.server.page import PAGE, assets
from framenest.server.refusals import Forbidden, Unknown
from framenest.server.routes import Here, problems
from framenest.server.shapes import Health, SignIn

router = APIRouter(tags=["service"])


@router.get("/health", responses=problems())
def health(here: Here) -> Health:
    """Whether the service is up, and what it can do. Needs no token."""
    settings = here.settings
    return Health(
        status="ok",
        version=framenest.__version__,
        scorer=here.scorer,
        answers=settings.answer_url is not None,
        uploads=settings.max_upload,
        folder=settings.videos is not None,
        **here.jobs.counts(),
    )


@router.get("/metrics", response_class=PlainTextResponse, responses=problems())
def metrics(here: Here) -> Response:
    """For Prometheus."""
    text = here.metrics.text(here.jobs.counts())
    return Response(text, media_type="text/plain; version=1.0.0; charset=utf-8")


@router.post("/session", status_code=204, responses=problems(411, 413))
def sign_in(here: Here, body: SignIn, request: Request, response: Response) -> None:
    """Exchange the token for a cookie that only this site can use, for browsers."""
    token = here.settings.token
    if token is None or not hmac.compare_digest(body.token.encode(), token.encode()):
        raise Forbidden("this is not the token" if token else "this server has no token")
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session(token), httponly=True, samesite="strict", secure=secure)


@router.delete("/session", status_code=204, responses=problems())
def sign_out(response: Response) -> None:
    """Take the cookie back."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


@router.get("/", include_in_schema=False)
def page() -> FileResponse:
    return FileResponse(PAGE, headers={"cache-control": "no-cache"})


@router.get("/assets/{name}", include_in_schema=False)
def asset(name: Annotated[str, Path(max_length=64)]) -> Response:
    if name not in assets():
        raise Unknown("no such file")
    text, kind = assets()[name]
    return Response(text, media_type=kind, headers={"cache-control": "no-cache"})


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(docs_page(request.app.openapi()))
