"""The page and its assets, health, metrics, signing in."""

from __future__ import annotations

import hmac
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse

import framenest
from framenest.report.page import view_script, view_style
from framenest.server.api_docs import docs_page
from framenest.server.api_models import Health, SignIn
from framenest.server.guard import COOKIE, session
from framenest.server.refusals import Refusal
from framenest.server.routes import Here, problems

router = APIRouter(tags=["service"])
PAGE = Path(__file__).parents[1] / "page"
ASSETS = {file.name for file in PAGE.iterdir() if file.suffix in (".js", ".css", ".svg")}
NO_CACHE = {"cache-control": "no-cache"}


@router.get("/health")
def health(here: Here) -> Health:
    """Whether the service is up, and what it can do. Needs no token."""
    settings = here.settings
    return Health(
        status="ok",
        version=framenest.__version__,
        scorer=here.scorer,
        answers=settings.answer_url is not None,
        uploads=settings.max_upload,
        folder=bool(settings.videos),
        token=settings.token is not None,
        **here.jobs.counts(),
    )


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(here: Here) -> Response:
    """For Prometheus."""
    text = here.metrics.text(here.jobs.counts())
    return Response(text, media_type="text/plain; version=1.0.0; charset=utf-8")


@router.post("/session", status_code=204, responses=problems(411, 413))
def sign_in(here: Here, body: SignIn, request: Request, response: Response) -> None:
    """Exchange the token for a cookie that only this site can use, for browsers."""
    token = here.settings.token
    if token is None or not hmac.compare_digest(body.token.encode(), token.encode()):
        raise Refusal(403, "this is not the token" if token else "this server has no token")
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session(token), httponly=True, samesite="strict", secure=secure)


@router.delete("/session", status_code=204)
def sign_out(response: Response) -> None:
    """Take the cookie back."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


@router.get("/", include_in_schema=False)
def page() -> FileResponse:
    """The live page."""
    return FileResponse(PAGE / "index.html", headers=NO_CACHE)


@router.get("/assets/{name}", include_in_schema=False)
def asset(name: str) -> Response:
    """A file of the page; what draws a ranking is the report's view."""
    if name == "view.js":
        return Response(view_script(), media_type="text/javascript", headers=NO_CACHE)
    if name == "view.css":
        return Response(view_style(), media_type="text/css", headers=NO_CACHE)
    if name not in ASSETS:
        raise Refusal(404, "no such file")
    return FileResponse(PAGE / name, headers=NO_CACHE)


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The API, to read."""
    return HTMLResponse(docs_page(request.app.openapi()))
