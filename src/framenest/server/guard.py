"""Guard: who may ask, and what browsers are told. Stands before every route."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from framenest.server.metrics import Metrics
from framenest.server.settings import Settings, is_loopback

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "framenest"
UPLOAD = "/videos/upload"
LARGEST_BODY = 65_536  # bytes of a request that is no upload
OPEN = ("/", "/health", "/session")  # without a token; they tell nothing
READING = ("GET", "HEAD")

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; media-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
log = logging.getLogger("framenest.server")


def session(token: str) -> str:
    """What a signed-in browser keeps in its cookie: made from the token, not the token itself."""
    return hmac.new(token.encode(), b"framenest session", hashlib.sha256).hexdigest()


class Guard:
    """Refuses foreign hosts, foreign origins and missing tokens; counts and logs what was asked.

    The log has the method, the path and the status: no query, no header, no body.
    """

    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._token = settings.token
        self._metrics = metrics
        self._headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        try:
            refused = self._refusal(scope)
            if refused is None:
                await self._app(scope, receive, guarded)
            else:
                await _answer(guarded, *refused)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.request(scope["method"], route, status, seconds)
            path = scope["path"].encode("unicode_escape").decode()
            log.info("%s %s %d %.1f ms", scope["method"], path, status, 1000 * seconds)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason where a request is not let through."""
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        method, path = scope["method"], scope["path"]
        host = headers.get("host", "")
        # A page elsewhere may point its own name at this machine; only our own names are answered to.
        if self._token is None and not is_loopback(_name(host)):
            return 403, "this server answers only to its loopback address"
        origin = headers.get("origin")
        if method not in READING and origin is not None and origin.partition("://")[2] != host:
            return 403, "requests from other sites are refused"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and path != "/":
            return 403, "requests from other sites are refused"
        if self._token is not None and not _is_open(path) and not self._allowed(headers):
            return 401, "a token is needed: send Authorization: Bearer TOKEN, or sign in on the page"
        return None if path == UPLOAD or method in READING else _too_much(headers)

    def _allowed(self, headers: dict[str, str]) -> bool:
        assert self._token is not None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(given.strip(), self._token):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and _same(cookie.value, session(self._token))


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/assets/")


def _name(host: str) -> str:
    """
    >>> _name("localhost:8600"), _name("[::1]:8600"), _name("::1")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def _too_much(headers: dict[str, str]) -> tuple[int, str] | None:
    if "transfer-encoding" in headers:
        return 411, "give the length of the request"
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > LARGEST_BODY:
        return 413, f"a request has at most {LARGEST_BODY} bytes"
    return None


async def _answer(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
