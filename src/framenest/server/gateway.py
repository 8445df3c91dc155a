"""Gateway: the API of a model's server, with frames in place of videos."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import httpx
import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from framenest.errors import FramenestError
from framenest.lmm.client import KEY_VARIABLE, Splitter
from framenest.lmm.prompt import cannot_tell, may_cannot_tell
from framenest.protocols import GUESS
from framenest.records import parse_json
from framenest.server.body import Bodies, Body
from framenest.server.conversation import ChatFrames, Conversation, ParsedRequest, ShownTurn, parse_request
from framenest.server.dialects import CHAT, DIALECTS, GATEWAY, RESPONSES, Dialect, any_video, dialect_at
from framenest.server.guard import Refusal, status_of
from framenest.server.rankings import Rankings
from framenest.server.server_settings import MIB
from framenest.server.service import Service
from framenest.text import one_line

ANSWER_SILENT_SECONDS = 600.0  # until an answer begins and between its pieces, as for `framenest ask`
COMMENT_SECONDS = 3.0  # between comments in a stream whose frames are being chosen
ID_BYTES, WHY_BYTES = 2**12, 2**16  # of an answer: in which its id is; of an error that are looked at
INSTEAD = f"use {GATEWAY}{CHAT.path}, or a proxy between (litellm) that translates to it"
BUFFER_BYTES = MIB  # of an answer that may still be “cannot tell”
_KEYS = (b"authorization", b"x-api-key", b"api-key")
_ID = re.compile(rb'"id"\s*:\s*"([^"\\]+)"')
_HOP = rb"connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade"  # headers of one connection
_NOT_SENT = re.compile(
    _HOP
    + rb"|host|content-length|authorization|x-api-key|api-key|cookie|accept-encoding|content-encoding|expect"
)
_NOT_RELAYED = re.compile(_HOP + rb"|set-cookie|date|server|access-control-.*", re.IGNORECASE)
log = logging.getLogger("framenest.server")


class Gateway:
    """The ASGI application below /v1. All but videos passes through unchanged."""

    def __init__(self, service: Service) -> None:
        self._frames, self._rankings = ChatFrames(service), service.rankings
        self._url = (service.settings.upstream or "").rstrip("/")
        self._name = str(httpx.URL(self._url).copy_with(userinfo=b""))
        key = os.environ.get(KEY_VARIABLE)
        self._key, self._passes_key = key.encode() if key else None, service.settings.token is None
        self.client = httpx.AsyncClient(
            timeout=httpx.Timeout(ANSWER_SILENT_SECONDS, connect=10.0, pool=None),
            limits=httpx.Limits(keepalive_expiry=2.0),  # as many as there are clients; servers have 5 seconds
        )
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, until that is done or the client goes away."""
        if not self._url:
            raise Refusal(404, "this server has no gateway to a model; it was started without --upstream")
        request, path = Request(scope, receive), scope["path"]
        posts = request.method == "POST"
        is_chat = posts and dialect_at(path) is not None
        is_json = is_chat or (posts and "json" in request.headers.get("content-type", ""))
        async with self._bodies.read(request, is_json=is_json) as body, anyio.create_task_group() as group:

            async def end_when_gone() -> None:
                await receive()  # nothing else is to come
                group.cancel_scope.cancel()

            group.start_soon(end_when_gone)
            reply = Reply(send, dialect_at(path) or CHAT)
            answer = self._chat if is_chat else self._pass_json if is_json else self._relay
            refusal = await self._refusal(answer(request, body, reply), reply)
            group.cancel_scope.cancel()
        if refusal is not None:
            raise refusal

    async def _refusal(self, answering: Awaitable[Any], reply: Reply) -> Refusal | None:
        """Returns a refusal, since one that is raised within a task group becomes a group."""
        try:
            await answering
            return None
        except FramenestError as error:
            status, wait = status_of(error), getattr(error, "retry_after", None)
            refusal = Refusal(400 if status in (403, 404, 409, 422) else status, str(error), wait)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            late = isinstance(error, httpx.TimeoutException)
            why = "no answer in time" if late else str(error) or "it broke off"
            refusal = Refusal(504 if late else 502, f"{self._name}: {why}")
        if not reply.began:
            return refusal
        await reply.piece(reply.dialect.error_event(refusal.status, str(refusal)), more=False)
        return None

    async def _pass_json(self, request: Request, body: Body, reply: Reply) -> None:
        await asyncio.to_thread(refuse_videos, body, request.scope["path"])
        await self._relay(request, body, reply)

    async def _chat(self, request: Request, body: Body, reply: Reply) -> None:
        parsed = await asyncio.to_thread(parse_request, body, reply.dialect)
        if parsed.is_plain:
            await self._relay(request, body, reply)
            return
        body.content = b""  # its size still counts: the fields take as much
        chat = await self._read(parsed, reply)
        for k in chat.rungs or [0]:
            body.content, turn = await self._frames.request(chat, k)
            body.size = len(body.content)
            if await self._relay(request, body, reply, turn):
                break

    async def _read(self, parsed: ParsedRequest, reply: Reply) -> Conversation:
        """A conversation with its rankings; a stream gets comments meanwhile, so that no client gives up."""

        async def comment() -> None:
            while True:
                await anyio.sleep(COMMENT_SECONDS)
                await reply.comment("framenest is choosing frames")

        async with anyio.create_task_group() as group:
            if parsed.fields.get("stream") is True:
                group.start_soon(comment)
            chat: Conversation | FramenestError
            try:
                chat = await self._frames.read(parsed)
            except FramenestError as error:
                chat = error
            group.cancel_scope.cancel()
        if isinstance(chat, FramenestError):
            raise chat
        return chat

    async def _relay(self, request: Request, body: Body, reply: Reply, turn: ShownTurn | None = None) -> bool:
        """Send a request upstream and relay the response, piece by piece, with headers about its last turn.

        Returns False, and relays nothing, if the model cannot tell and the turn offers more frames.
        """
        path, query = (request.scope[name].decode("latin-1") for name in ("raw_path", "query_string"))
        if ".." in request.scope["path"].split("/"):
            raise Refusal(400, "this path leads out of the API")
        url, headers = f"{self._url}/{path.removeprefix(GATEWAY)}{query and '?'}{query}", self._sent(request)
        if body.content:
            headers.append((b"content-length", b"%d" % len(body.content)))
        content = body.slices() if body.content else b""
        async with self.client.stream(request.method, url, headers=headers, content=content) as response:
            if not (turn and turn.offers):
                body.free()
            pieces = response.aiter_raw()
            first = await _until_answer(response, pieces) if turn and turn.offers else []
            if first is None:
                return False
            remember, told = None, dict[str, str]()
            if turn is not None:
                first += await self._check_api(response, pieces, turn, path)
                links = (f"{request.base_url}#{id_}&k={turn.k}" for id_ in turn.turn.rankings)
                told = {"framenest-times": turn.times, "framenest-ranking": ", ".join(links)}
                told |= {"framenest-evidence": turn.evidence} | match_header(self._rankings, turn)
                if response.is_success:
                    self._frames.remember(turn)
                    remember = partial(self._frames.remember, turn) if reply.dialect is RESPONSES else None
            if reply.began and not (response.status_code == 200 and _streams(response)):
                why = one_line(b"".join([*first, await _head(pieces)]).decode(errors="replace"))
                raise Refusal(max(response.status_code, 400), f"{self._name}: {response.status_code} {why}")
            await reply.begin(response, told)
            try:
                await reply.piece(b"".join(first))
                async for piece in _named(pieces, remember):
                    await reply.piece(piece)
                await reply.piece(b"", more=False)
            except httpx.HTTPError as error:  # the client finds its connection broken, as it would without us
                log.warning("%s broke off (%s)", self._name, type(error).__name__)
        return True

    def _sent(self, request: Request) -> list[tuple[bytes, bytes]]:
        """The headers of a request upstream; its key is where the client has put its own."""
        own = request.headers
        headers = [pair for pair in own.raw if not _NOT_SENT.fullmatch(pair[0])]
        if self._key and "x-api-key" in own and "authorization" not in own:
            headers.append((b"x-api-key", self._key))
        elif self._key:
            headers.append((b"authorization", b"Bearer " + self._key))
        elif self._passes_key:
            headers += [pair for pair in own.raw if pair[0] in _KEYS]
        return [*headers, (b"accept-encoding", b"identity")]

    async def _check_api(
        self, response: httpx.Response, pieces: AsyncIterator[bytes], turn: ShownTurn, path: str
    ) -> list[bytes]:
        """Refuse a request to an API that the model's server does not have; else what was read to know."""
        if response.status_code not in (404, 405, 501) or turn.chat.dialect is CHAT:
            return []
        head = await _head(pieces)
        asked = map(turn.chat.fields.get, ("model", "previous_response_id"))
        if any(name and str(name).encode() in head for name in asked):  # that is what it does not have
            return [head]
        raise Refusal(501, f"{self._name} has no {path}: {INSTEAD}")


class Reply:
    """What a client gets; a stream may begin with comments, before the model's server is asked."""

    def __init__(self, send: Send, dialect: Dialect) -> None:
        self._send, self.dialect, self.began = send, dialect, False

    async def begin(self, response: httpx.Response, told: dict[str, str]) -> None:
        """Send the status and the headers of a response, with what is told of its frames."""
        if self.began:
            await self.comment(*(f"{name}: {value}" for name, value in told.items()))
            return
        headers = [pair for pair in response.headers.raw if not _NOT_RELAYED.fullmatch(pair[0])]
        await self._start(response.status_code, headers + [(n.encode(), v.encode()) for n, v in told.items()])

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.began = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def piece(self, data: bytes, *, more: bool = True) -> None:
        """Send a piece of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def comment(self, *lines: str) -> None:
        """Send lines that clients of a stream skip."""
        if not self.began:
            kind = (b"content-type", b"text/event-stream; charset=utf-8")
            await self._start(200, [kind, (b"cache-control", b"no-cache")])
        await self.piece("".join(f": {line}\n" for line in lines).encode() + b"\n")


def match_header(rankings: Rankings, turn: ShownTurn) -> dict[str, str]:
    """How strongly each ranking of a turn matches, and whether it is a guess, if the scorer says so."""
    matches = [rankings.get(id_).stats.match for id_ in turn.turn.rankings]
    texts = [f"{one}: {GUESS}" if one.is_guess else str(one) for one in matches if one]
    return {"framenest-match": "; ".join(texts)} if texts else {}


def refuse_videos(body: Body, path: str) -> None:
    """Refuse a video where no frames are chosen."""
    try:
        source = any_video(msgspec.json.decode(body.content), "") if body.content else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"the request is not JSON ({error})") from error
    if source is not None:
        known = ", ".join(f"{GATEWAY}{one}" for one in DIALECTS)
        raise Refusal(400, f"{source.place}: {path} takes no videos here; frames are chosen at {known}")


def _streams(response: httpx.Response) -> bool:
    return "event-stream" in response.headers.get("content-type", "")


async def _named(
    pieces: AsyncIterator[bytes], remember: Callable[[str], None] | None
) -> AsyncIterator[bytes]:
    """The pieces of an answer. remember: gets its id, before the client does."""
    head = b""
    async for piece in pieces:
        if remember is not None and len(head) < ID_BYTES:
            head += piece[:ID_BYTES]
            if (named := _ID.search(head)) is not None:
                remember(named[1].decode(errors="replace"))
                remember = None
        yield piece


async def _head(pieces: AsyncIterator[bytes]) -> bytes:
    """The beginning of an answer."""
    head = b""
    async for piece in pieces:
        head += piece
        if len(head) > WHY_BYTES:
            break
    return head


async def _until_answer(response: httpx.Response, pieces: AsyncIterator[bytes]) -> list[bytes] | None:
    """The pieces received until it is clear that the model answers; None if it cannot tell."""
    buffered: list[bytes] = []
    streams = _streams(response)
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
