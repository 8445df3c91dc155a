"""Gateway: the API of an OpenAI-compatible server, with frames in place of videos."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import unquote

import anyio
import httpx
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from framenest.errors import FramenestError
from framenest.lmm.client import KEY_VARIABLE, Splitter
from framenest.lmm.prompt import cannot_tell, may_cannot_tell
from framenest.protocols import GUESS
from framenest.records import parse_json
from framenest.server.body import Bodies, Body
from framenest.server.conversation import ChatFrames, ShownTurn, parse_request
from framenest.server.guard import GATEWAY, Refusal, session, status_of
from framenest.server.rankings import Rankings
from framenest.server.server_settings import MIB
from framenest.server.service import Service

ANSWER_SILENT_SECONDS = 600.0  # until an answer begins and between its pieces, as for `framenest ask`
BUFFER_BYTES = MIB  # of an answer that may still be “cannot tell”; 5,000 tokens of reasoning as a stream
_MAY_HAVE_VIDEO = re.compile(rb'"(?:video|file|framenest)')
_HOP = rb"connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade"  # headers of one connection
_NOT_SENT = re.compile(_HOP + rb"|host|content-length|authorization|cookie|accept-encoding|expect")
_FOR_BROWSERS = (
    rb"|set-cookie|clear-site-data|refresh|link|alt-svc|strict-transport-security|service-worker-allowed"
    rb"|access-control-.*|report-to|reporting-endpoints|nel|www-authenticate"
)
_NOT_RELAYED = re.compile(_HOP + rb"|date|server" + _FOR_BROWSERS, re.IGNORECASE)
log = logging.getLogger("framenest.server")


class Gateway:
    """The ASGI application below /v1. All but videos passes through unchanged."""

    def __init__(self, service: Service) -> None:
        self._frames, self._rankings = ChatFrames(service), service.rankings
        self._url = (service.settings.upstream or "").rstrip("/")
        self._name = str(httpx.URL(self._url).copy_with(userinfo=b""))
        key = os.environ.get(KEY_VARIABLE)
        token = service.settings.token
        self._key, self._secrets = f"Bearer {key}" if key else None, (token, session(token)) if token else ()
        self.client = httpx.AsyncClient(
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # one client's are no other's
            timeout=httpx.Timeout(ANSWER_SILENT_SECONDS, connect=10.0, pool=None),
            limits=httpx.Limits(keepalive_expiry=2.0),  # as many as there are clients; servers have 5 seconds
        )
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, until that is done or the client goes away."""
        if not self._url:
            raise Refusal(404, "this server has no gateway to a model; it was started without --upstream")
        request = Request(scope, receive)
        is_chat = (request.method, request.scope["path"]) == ("POST", f"{GATEWAY}chat/completions")
        refusal = None  # also if the client leaves
        async with self._bodies.read(request, is_chat=is_chat) as body, anyio.create_task_group() as group:

            async def end_when_gone() -> None:
                await receive()  # nothing else is to come
                group.cancel_scope.cancel()

            group.start_soon(end_when_gone)
            refusal = await self._answer(request, body, send, is_chat=is_chat)
            group.cancel_scope.cancel()
        if refusal is not None:
            raise refusal

    async def _answer(self, request: Request, body: Body, send: Send, *, is_chat: bool) -> Refusal | None:
        """Returns a refusal, since one that is raised within a task group becomes a group."""
        try:
            if not is_chat or not _MAY_HAVE_VIDEO.search(body.content):
                await self._relay(request, body, send, None)
                return None
            fields, settings = await asyncio.to_thread(parse_request, body)
            async with aclosing(self._frames.requests(fields, settings)) as requests:
                async for body.content, turn, offers in requests:
                    body.size = len(body.content)
                    if await self._relay(request, body, send, turn, offers=offers):
                        break
        except FramenestError as error:
            status, wait = status_of(error), getattr(error, "retry_after", None)
            return Refusal(400 if status in (403, 404, 409, 422) else status, str(error), wait)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            late = isinstance(error, httpx.TimeoutException)
            why = "no answer in time" if late else str(error) or "it broke off"
            return Refusal(504 if late else 502, f"{self._name}: {why}")
        return None

    async def _relay(
        self, request: Request, body: Body, send: Send, turn: ShownTurn | None, *, offers: bool = False
    ) -> bool:
        """Send a request upstream and relay the response, piece by piece, with headers about its last turn.

        offers: return False, and relay nothing, if the model says that it cannot tell.
        """
        path, query = (request.scope[name].decode("latin-1") for name in ("raw_path", "query_string"))
        if ".." in request.scope["path"].split("/") or self._has_secret(path):
            raise Refusal(400, "this path leads out of the API, or has the token of this server")
        query = "&".join(part for part in query.split("&") if not self._has_secret(part))
        query = "" if self._has_secret(query) else query
        key = self._key or (None if self._secrets else request.headers.get("authorization"))
        headers = [pair for pair in request.headers.raw if not _NOT_SENT.fullmatch(pair[0])]
        headers = [pair for pair in headers if not self._has_secret(pair[1].decode("latin-1"))]
        headers += [(b"accept-encoding", b"identity"), *([(b"authorization", key.encode())] if key else [])]
        if body.content:
            headers.append((b"content-length", b"%d" % len(body.content)))
        url = f"{self._url}/{path.removeprefix(GATEWAY)}{query and '?'}{query}"
        content = body.slices() if body.content else b""
        async with self.client.stream(request.method, url, headers=headers, content=content) as response:
            if not offers:
                body.free()
            if is_odd(response):
                raise Refusal(502, f"{self._name}: the answer is not HTTP (status {response.status_code})")
            pieces = _one_by_one(response)
            first = await _until_answer(response, pieces) if offers else b""
            if first is None:
                return False
            headers = [pair for pair in response.headers.raw if not _NOT_RELAYED.fullmatch(pair[0])]
            if turn is not None:
                links = (f"{request.base_url}#{id_}&k={turn.k}" for id_ in turn.rankings)
                added = {"framenest-times": turn.times, "framenest-ranking": ", ".join(links)}
                added |= {"framenest-evidence": turn.evidence} | match_header(self._rankings, turn)
                headers += [(name.encode(), value.encode()) for name, value in added.items()]
                if response.is_success:
                    self._frames.remember(turn)
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            try:
                await send({"type": "http.response.body", "body": bytes(first), "more_body": True})
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            except httpx.HTTPError as error:  # the client finds its connection broken, as it would without us
                log.warning("%s broke off (%s)", self._name, type(error).__name__)
        return True

    def _has_secret(self, text: str) -> bool:
        """Whether a text has what lets clients in, which is for this server alone."""
        return any(secret in one for secret in self._secrets for one in (text, unquote(text)))


def is_odd(response: httpx.Response) -> bool:
    """Whether a response cannot be relayed, as two parts of it contradict each other."""
    status, measured = response.status_code, "content-length" in response.headers
    no_length = status in (204, 304) or "transfer-encoding" in response.headers
    return not 200 <= status < 600 or (measured and no_length)


async def _one_by_one(response: httpx.Response) -> AsyncIterator[bytes]:
    """The pieces of a response; between two of them, others go on."""
    async for piece in response.aiter_raw():
        yield piece
        await asyncio.sleep(0)


def match_header(rankings: Rankings, turn: ShownTurn) -> dict[str, str]:
    """How strongly each ranking of a turn matches, and whether it is a guess, if the scorer says so."""
    matches = [rankings.get(id_).stats.match for id_ in turn.rankings]
    texts = [f"{one.verdict}: {GUESS}" if one.is_guess else one.verdict for one in matches if one]
    return {"framenest-match": "; ".join(texts)} if texts else {}


async def _until_answer(response: httpx.Response, pieces: AsyncIterator[bytes]) -> bytearray | None:
    """What was received until it is clear that the model answers; None if it cannot tell."""
    held, heard = bytearray(), 0
    streams = "event-stream" in response.headers.get("content-type", "")
    splitter, calls = Splitter(lambda *_: None, thinking=False), False
    async for piece in pieces:
        held += piece
        if streams and b"\n" in piece:
            *lines, rest = bytes(held[heard:]).split(b"\n")
            calls = any(_hear(splitter, line) for line in lines)
            heard = len(held) - len(rest)
        answer = splitter.pieces["answer"]
        if cannot_tell(f"{answer}x"):  # whatever follows
            return None
        if response.status_code != 200 or calls or len(held) > BUFFER_BYTES or not may_cannot_tell(answer):
            return held
    _hear(splitter, bytes(held[heard:]))
    return None if cannot_tell(splitter.end()[1]) else held


def _hear(splitter: Splitter, line: bytes) -> bool:
    """Give the text of an event, or a whole answer, to a splitter; whether it calls a tool."""
    with suppress(ValueError, LookupError, TypeError, AttributeError):  # another kind of event
        choice = parse_json(line.removeprefix(b"data:"))["choices"][0]
        message = choice.get("delta") or choice["message"]
        splitter.reasoning(message.get("reasoning_content") or message.get("reasoning") or "")
        splitter.text(message.get("content") or "")
        return bool(message.get("tool_calls"))
    return False
