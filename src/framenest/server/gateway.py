"""Gateway: the API of an OpenAI-compatible server, with frames in place of videos."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, suppress

import anyio
import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from framenest.errors import FramenestError
from framenest.lmm.client import KEY_VARIABLE, Splitter
from framenest.lmm.prompt import cannot_tell, may_cannot_tell
from framenest.protocols import GUESS
from framenest.records import parse_json
from framenest.server.conversation import ChatFrames, ShownTurn, parse_request
from framenest.server.guard import BODY_SECONDS, GATEWAY, ConcurrencyLimit, Refusal, status_of
from framenest.server.rankings import Rankings
from framenest.server.server_settings import MIB
from framenest.server.service import Service

ANSWER_SILENT_SECONDS = 600.0  # until an answer begins and between its pieces, as for `framenest ask`
LARGE_BYTES, LARGE_AT_ONCE = 16 * MIB, 2  # of a large request, and how many of them are in memory
BUFFER_BYTES = MIB  # of an answer that may still be “cannot tell”
_MAY_HAVE_VIDEO = re.compile(rb'"(?:video|file|framenest)')
_HOP = rb"connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade"  # headers of one connection
_NOT_SENT = re.compile(_HOP + rb"|host|content-length|authorization|cookie|accept-encoding|expect")
_NOT_RELAYED = re.compile(_HOP + rb"|set-cookie|date|server|access-control-.*", re.IGNORECASE)
log = logging.getLogger("framenest.server")


class Gateway:
    """The ASGI application below /v1. All but videos passes through unchanged."""

    def __init__(self, service: Service) -> None:
        self._frames, self._rankings = ChatFrames(service), service.rankings
        self._url = (service.settings.upstream or "").rstrip("/")
        self._name = str(httpx.URL(self._url).copy_with(userinfo=b""))
        key = os.environ.get(KEY_VARIABLE)
        self._key, self._passes_key = f"Bearer {key}" if key else None, service.settings.token is None
        self.client = httpx.AsyncClient(
            timeout=httpx.Timeout(ANSWER_SILENT_SECONDS, connect=10.0, pool=None),
            limits=httpx.Limits(keepalive_expiry=2.0),  # as many as there are clients; servers have 5 seconds
        )
        self._large = ConcurrencyLimit(LARGE_AT_ONCE, f"{LARGE_AT_ONCE} large requests are read already", 5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, until that is done or the client goes away."""
        if not self._url:
            raise Refusal(404, "this server has no gateway to a model; it was started without --upstream")
        request = Request(scope, receive)
        with ExitStack() as limits:
            if (length := int(request.headers.get("content-length", 0))) > LARGE_BYTES:
                limits.enter_context(self._large())
            try:
                with anyio.fail_after(BODY_SECONDS + length / 2**17):  # 128 KiB a second
                    body = b"".join([piece async for piece in request.stream()])
            except (ClientDisconnect, TimeoutError) as error:
                raise Refusal(408, "the request did not arrive in time") from error
            refusal, answering = None, self._answer(request, body, limits, send)
            del body
            async with anyio.create_task_group() as group:  # httpcore cleans up if anyio cancels it

                async def end_when_gone() -> None:
                    await receive()  # nothing else is to come
                    group.cancel_scope.cancel()

                group.start_soon(end_when_gone)
                refusal = await answering
                group.cancel_scope.cancel()
        if refusal is not None:
            raise refusal

    async def _answer(self, request: Request, body: bytes, limits: ExitStack, send: Send) -> Refusal | None:
        """Returns a refusal: one that is raised here would keep a whole video in its traceback."""
        try:
            asks = (request.method, request.scope["path"]) == ("POST", f"{GATEWAY}chat/completions")
            if not asks or not _MAY_HAVE_VIDEO.search(body):
                await self._relay(request, body, send, None)
                return None
            fields, settings = parse_request(body)
            del body
            async with aclosing(self._frames.requests(fields, settings)) as requests:
                async for content, turn, offers in requests:
                    limits.close()
                    if await self._relay(request, content, send, turn, offers=offers):
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
        self, request: Request, content: bytes, send: Send, turn: ShownTurn | None, *, offers: bool = False
    ) -> bool:
        """Send a request upstream and relay the response, piece by piece, with headers about its last turn.

        offers: return False, and relay nothing, if the model says that it cannot tell.
        """
        path, query = (request.scope[name].decode("latin-1") for name in ("raw_path", "query_string"))
        if ".." in request.scope["path"].split("/"):
            raise Refusal(400, "this path leads out of the API")
        key = self._key or (request.headers.get("authorization") if self._passes_key else None)
        headers = [pair for pair in request.headers.raw if not _NOT_SENT.fullmatch(pair[0])]
        headers += [(b"accept-encoding", b"identity"), *([(b"authorization", key.encode())] if key else [])]
        url = f"{self._url}/{path.removeprefix(GATEWAY)}{query and '?'}{query}"
        async with self.client.stream(request.method, url, headers=headers, content=content) as response:
            pieces = response.aiter_raw()
            first = await _until_answer(response, pieces) if offers else []
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
                await send({"type": "http.response.body", "body": b"".join(first), "more_body": True})
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            except httpx.HTTPError as error:  # the client finds its connection broken, as it would without us
                log.warning("%s broke off (%s)", self._name, type(error).__name__)
        return True


def match_header(rankings: Rankings, turn: ShownTurn) -> dict[str, str]:
    """How strongly each ranking of a turn matches, and whether it is a guess, if the scorer says so."""
    matches = [rankings.get(id_).stats.match for id_ in turn.rankings]
    texts = [f"{one}: {GUESS}" if one.is_guess else str(one) for one in matches if one]
    return {"framenest-match": "; ".join(texts)} if texts else {}


async def _until_answer(response: httpx.Response, pieces: AsyncIterator[bytes]) -> list[bytes] | None:
    """The pieces received until it is clear that the model answers; None if it cannot tell."""
    buffered: list[bytes] = []
    streams = "event-stream" in response.headers.get("content-type", "")
    splitter, rest, size = Splitter(lambda *_: None, thinking=False), b"", 0
    async for piece in pieces:
        buffered.append(piece)
        *lines, rest = (rest + piece).split(b"\n") if streams else (rest + piece,)
        calls = [_hear(splitter, line) for line in lines]
        answer = splitter.pieces["answer"]
        if cannot_tell(f"{answer}x"):  # whatever follows
            return None
        size += len(piece)
        if response.status_code != 200 or any(calls) or size > BUFFER_BYTES or not may_cannot_tell(answer):
            return buffered
    _hear(splitter, rest)
    return None if cannot_tell(splitter.end()[1]) else buffered


def _hear(splitter: Splitter, line: bytes) -> bool:
    """Give the text of an event, or a whole answer, to a splitter; whether it calls a tool."""
    with suppress(ValueError, LookupError, TypeError, AttributeError):  # another kind of event
        choice = parse_json(line.removeprefix(b"data:"))["choices"][0]
        message = choice.get("delta") or choice["message"]
        splitter.reasoning(message.get("reasoning_content") or message.get("reasoning") or "")
        splitter.text(message.get("content") or "")
        return bool(message.get("tool_calls"))
    return False
