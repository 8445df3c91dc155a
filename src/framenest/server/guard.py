"""Who gets in, how requests are refused, and what is counted."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from framenest.errors import (
    BudgetError,
    ConfigError,
    FramenestError,
    IndexMismatch,
    ModelError,
    ScorerError,
    StoreError,
    VideoError,
)
from framenest.server.dialects import CHAT, GATEWAY, api_path, dialect_at
from framenest.server.server_settings import MIB, ServerSettings, is_loopback

COOKIE = "framenest"
UPLOAD_PATH = "/videos/upload"
MAX_BODY_BYTES = 65_536  # bytes of a request that is no upload
BODY_SECONDS = 30.0  # until all of them must have arrived, and of grace for larger bodies
OPEN_PATHS = ("/", "/health", "/session")  # without a token; they reveal nothing
READING_METHODS = ("GET", "HEAD")

HEADERS = Headers({
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; media-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
})  # fmt: skip
GATEWAY_HEADERS = Headers({**HEADERS, "content-security-policy": "sandbox; default-src 'none'"})
log = logging.getLogger("framenest.server")


class Refusal(FramenestError):
    """Like Starlette's HTTPException; a FramenestError, since jobs meet refusals too."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status  # 403 not allowed, 404 unknown, 409 not ready, 413 too large, 422 unusable
        self.retry_after = retry_after  # seconds, if waiting helps


_STATUS = {IndexMismatch: 409, ModelError: 502, StoreError: 507} | dict.fromkeys(
    (BudgetError, ConfigError, ScorerError, VideoError), 422
)


def refusal_of(error: FramenestError, message: str = "") -> Refusal:
    """An error as a refusal. message: in place of its own."""
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    status, wait = (error.status, error.retry_after) if isinstance(error, Refusal) else (status, None)
    return Refusal(status, message or str(error), wait)


def time_for(length: int) -> float:
    """Seconds in which so many bytes must have arrived, at 128 KiB a second."""
    return BODY_SECONDS + length / 2**17


def refusal_response(path: str, error: FramenestError, message: str = "") -> JSONResponse:
    """`refusal_of` for a client: the message as `detail`, or as the API at a path below GATEWAY has it."""
    refusal = refusal_of(error, message)
    status, message, wait = refusal.status, str(refusal), refusal.retry_after
    headers = {} if wait is None else {"retry-after": str(wait)}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    in_gateway = path.startswith(GATEWAY)
    body = (dialect_at(path) or CHAT).error(status, message) if in_gateway else {"detail": message}
    return JSONResponse(body, status, headers)


def first_problem(problems: Sequence[Any], skip: int = 0) -> str:
    """The first of Pydantic's errors in one line, without what was sent. skip: parts of its place."""
    place, message = problems[0]["loc"], problems[0]["msg"].removeprefix("Value error, ")
    return f"{'.'.join(str(part) for part in place[skip:] or place)}: {message}"


class ConcurrencyLimit:
    """A semaphore that refuses with 429 and Retry-After if no place is free within `wait` seconds."""

    def __init__(self, most: int, what: str, retry_after: int, wait: float = 0.0) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._message = f"{what}; try again later"
        self._retry_after, self._wait = retry_after, wait

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if not self._places.acquire(timeout=self._wait):
            raise Refusal(429, self._message, self._retry_after)
        try:
            yield
        finally:
            self._places.release()


class Metrics:
    """Counters for Prometheus, of one server; several servers in one process do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        request, where = ["method", "route", "status"], dict[str, Any](registry=self.registry)
        self._requests = Histogram("framenest_http_seconds", "Seconds to answer.", request, **where)
        self._jobs = Counter("framenest_jobs", "Jobs ended.", ["kind", "state"], **where)
        self._active = Gauge("framenest_jobs_active", "Jobs waiting or running.", ["state"], **where)
        self.shared = Counter("framenest_shared", "Requests for work that was done or under way.", **where)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, str(status)).observe(seconds)

    def job(self, kind: str, state: str) -> None:
        """Count a job that ended."""
        self._jobs.labels(kind, state).inc()

    def text(self, counts: dict[str, int]) -> bytes:
        """The page that Prometheus reads. counts: jobs now active, by state."""
        for state, count in counts.items():
            self._active.labels(state).set(count)
        return generate_latest(self.registry)


def session(token: str) -> str:
    """What a signed-in browser keeps in its cookie: made from the token, not the token itself."""
    return hmac.new(token.encode(), b"framenest session", hashlib.sha256).hexdigest()


class Guard:
    """Refuses foreign hosts, foreign origins and missing tokens; counts and logs requests, no queries."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app = app
        self._token = settings.token
        chat = min(512 * MIB, 4 * settings.max_upload // 3 + MIB)  # it may have a video in base64
        self._max_chat_bytes = chat if settings.upstream else MAX_BODY_BYTES
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        if (path := api_path(scope["path"])) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        began, status = time.perf_counter(), 500

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                ours = GATEWAY_HEADERS if scope["path"].startswith(GATEWAY) else HEADERS
                others = [pair for pair in message.get("headers", ()) if pair[0].decode().lower() not in ours]
                message["headers"] = [*others, *ours.raw]
            await send(message)

        try:
            timely = receive if scope["path"].startswith((UPLOAD_PATH, GATEWAY)) else _in_time(receive)
            answer: ASGIApp = self._app
            try:
                self._check(Request(scope))
            except Refusal as refusal:
                answer = refusal_response(scope["path"], refusal)
            await answer(scope, timely, guarded)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.request(scope["method"], route, status, seconds)
            path = scope["path"].replace(self._token or "\0", "TOKEN").encode("unicode_escape").decode()
            log.info("%s %s %d %.1f ms", scope["method"], path, status, 1000 * seconds)

    def _check(self, request: Request) -> None:
        """Refuse a request that is not let through."""
        headers, method, path = request.headers, request.method, request.scope["path"]
        host = headers.get("host", "")
        name = re.sub(r":\d*$", "", host).lower().removeprefix("[").removesuffix("]")
        # DNS rebinding: a foreign page may point its own name at this machine.
        if self._token is None and not is_loopback(name):
            raise Refusal(403, "this server answers only to its loopback address")
        origin = headers.get("origin")
        if method not in READING_METHODS and origin is not None and origin.partition("://")[2] != host:
            raise Refusal(403, "requests from other sites are refused")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and path != "/":
            raise Refusal(403, "requests from other sites are refused")
        is_open = path in OPEN_PATHS or path.startswith("/assets/")
        if self._token is not None and not is_open and not _allowed(request, self._token):
            raise Refusal(401, "a token is needed: send Authorization: Bearer TOKEN, or sign in on the page")
        if path == UPLOAD_PATH:
            return
        if "transfer-encoding" in headers:
            raise Refusal(411, "give the length of the request")
        length = headers.get("content-length", "0")
        largest = self._max_chat_bytes if path.startswith(GATEWAY) else MAX_BODY_BYTES
        if not length.isdecimal() or int(length) > largest:
            raise Refusal(413, f"a request has at most {largest} bytes")


def _in_time(receive: Receive) -> Receive:
    """Treat a body that does not arrive in time as a disconnect."""
    until = anyio.current_time() + BODY_SECONDS

    async def timely() -> Message:
        nonlocal until
        message: Message = {"type": "http.disconnect"}
        with anyio.CancelScope(deadline=until):
            message = await receive()
        if not message.get("more_body"):
            until = math.inf  # only the end of the connection can follow
        return message

    return timely


def _allowed(request: Request, token: str) -> bool:
    """Whether a request has the token, or the cookie made from it."""
    kind, _, bearer = request.headers.get("authorization", "").partition(" ")
    cookie = request.cookies.get(COOKIE, "")
    key = request.headers.get("x-api-key", "") if request.scope["path"].startswith(GATEWAY) else ""
    bearer = bearer.strip() if kind.lower() == "bearer" else key  # Anthropic's clients send the key alone
    return same(bearer, token) or same(cookie, session(token))


def same(text: str, expected: str) -> bool:
    """Whether texts are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), expected.encode())
