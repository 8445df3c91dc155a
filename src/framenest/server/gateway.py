"""Gateway: the API of a model's server, with frames in place of videos."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import unquote

import anyio
import httpx
import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from framenest.errors import FramenestError
from framenest.lmm.client import KEY_VARIABLE, Splitter
from framenest.lmm.prompt import cannot_tell, may_cannot_tell
from framenest.protocols import GUESS
from framenest.records import parse_json
from framenest.server.body import Bodies, Body
from framenest.server.conversation import ChatFrames, Conversation, ShownTurn, parse_request, refuse_videos
from framenest.server.dialects import CHAT, DIALECTS, GATEWAY, RESPONSES, Dialect, dialect_at
from framenest.server.guard import Refusal, refusal_of, session
from framenest.server.rankings import Rankings
from framenest.server.server_settings import MIB
from framenest.server.service import Service
from framenest.text import one_line

ANSWER_SILENT_SECONDS = 600.0  # until an answer begins and between its pieces, as for `framenest ask`
COMMENT_SECONDS = 3.0  # between comments in a stream whose frames are being chosen
ID_BYTES, WHY_BYTES = 2**12, 2**16  # of an answer: in which its id is; of an error that are looked at
INSTEAD = f"use {GATEWAY}{CHAT.path}, or a proxy between (litellm) that translates to it"
BUFFER_BYTES = MIB  # of an answer that may still be “cannot tell”; 5,000 tokens of reasoning as a stream
_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)+")')
_HOP = rb"connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade"  # headers of one connection
_NOT_SENT = re.compile(
    _HOP + rb"|host|content-length|authorization|cookie|accept-encoding|content-encoding|expect"
)
_FOR_BROWSERS = (
    rb"|set-cookie|clear-site-data|refresh|link|alt-svc|strict-transport-security|service-worker-allowed"
    rb"|access-control-.*|content-security-policy.*|report-to|reporting-endpoints|nel|www-authenticate"
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
        self._key, self._secrets = key.encode() if key else None, (token, session(token)) if token else ()
        self.client = httpx.AsyncClient(
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # one client's are no other's
            timeout=httpx.Timeout(ANSWER_SILENT_SECONDS, connect=10.0, pool=None),
            limits=httpx.Limits(keepalive_expiry=2.0),  # as many as there are clients; servers have 5 seconds
        )
        self._bodies, self._parsing = Bodies(), anyio.CapacityLimiter(1)  # more would leave the loop no time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, until that is done or the client goes away."""
        if not self._url:
            raise Refusal(404, "this server has no gateway to a model; it was started without --upstream")
        request = Request(scope, receive)
        dialect = dialect_at(scope["path"]) if request.method == "POST" else None
        reply = ClientReply(send, dialect or CHAT)
        async with self._bodies.read(request) as body:
            with anyio.CancelScope() as answering:

                async def end_when_gone() -> None:
                    await receive()  # nothing else is to come
                    answering.cancel()

                watching = asyncio.create_task(end_when_gone())
                try:
                    await self._answer(request, body, reply, dialect)
                except (FramenestError, httpx.HTTPError, httpx.InvalidURL) as error:
                    refusal = self._refusal(error)
                    if not reply.began:
                        raise refusal from error
                    await reply.piece(reply.dialect.error_event(refusal.status, str(refusal)), more=False)
                finally:
                    watching.cancel()

    def _refusal(self, error: Exception) -> Refusal:
        if isinstance(error, FramenestError):
            refusal = refusal_of(error)
            refusal.status = 400 if refusal.status in (403, 404, 409, 422) else refusal.status
            return refusal
        late = isinstance(error, httpx.TimeoutException)
        why = "no answer in time" if late else str(error) or "it broke off"
        return Refusal(504 if late else 502, f"{self._name}: {why}")

    async def _answer(
        self, request: Request, body: Body, reply: ClientReply, dialect: Dialect | None
    ) -> None:
        chat = None
        if dialect is not None:
            chat = await to_thread.run_sync(parse_request, body.content, dialect, limiter=self._parsing)
        elif body.is_json:
            await to_thread.run_sync(refuse_videos_in, body.content, limiter=self._parsing)
        if chat is None or chat.is_plain:
            del chat  # its objects take more memory than the body
            await self._relay(request, body, reply)
            return
        body.content = b""  # its size still counts: the fields take as much
        await self._read(chat, reply)
        k: int | None = chat.rungs[0] if chat.rungs else 0
        while k is not None:
            body.content, turn = await self._frames.request(chat, k)
            body.size = len(body.content)
            k = await self._relay(request, body, reply, turn)

    async def _read(self, chat: Conversation, reply: ClientReply) -> None:
        """Read a conversation; a stream gets comments meanwhile, so that no client gives up."""

        async def comment() -> None:
            while chat.fields.get("stream") is True:
                await anyio.sleep(COMMENT_SECONDS)
                await reply.comment("framenest is choosing frames")

        comments = asyncio.create_task(comment())
        try:
            await self._frames.read(chat)
        finally:
            comments.cancel()

    async def _relay(
        self, request: Request, body: Body, reply: ClientReply, turn: ShownTurn | None = None
    ) -> int | None:
        """Send a request upstream and relay the response, piece by piece, with headers about its last turn.

        Relays nothing, and returns the budget to ask with, if the model cannot tell and the turn offers more
        frames, or if the model's server takes fewer images.
        """
        url, headers = self._address(request), self._sent(request)
        if body.content:
            headers.append((b"content-length", b"%d" % len(body.content)))
        content = body.slices() if body.content else b""
        async with self.client.stream(request.method, url, headers=headers, content=content) as response:
            if not (turn and turn.offers):
                body.content, body.size = b"", 0  # room for others
            sized = "content-length" in response.headers
            no_body = response.status_code in (204, 304) or "transfer-encoding" in response.headers
            if not 200 <= response.status_code < 600 or (sized and no_body):
                raise Refusal(502, f"{self._name}: the answer is not HTTP (status {response.status_code})")
            pieces = _one_by_one(response)
            first = await _until_answer(response, pieces) if turn and turn.offers else bytearray()
            if first is None:
                assert turn is not None  # it offers more
                return turn.chat.rungs[turn.chat.rungs.index(turn.turn.k) + 1]
            if turn is not None and await self._takes_fewer(response, first, pieces, turn):
                return turn.turn.k
            remember, told = None, self._told(turn, request) if turn else {}
            if turn is not None and response.is_success:
                self._frames.remember(turn)
                remember = partial(self._frames.remember, turn) if reply.dialect is RESPONSES else None
            if reply.began and not (response.status_code == 200 and _streams(response)):
                why = one_line((bytes(first) + await _head(pieces)).decode(errors="replace"))
                raise Refusal(max(response.status_code, 400), f"{self._name}: {response.status_code} {why}")
            await reply.begin(response, told)
            try:
                await reply.piece(bytes(first))
                async for piece in _named(pieces, remember):
                    await reply.piece(piece)
                await reply.piece(b"", more=False)
            except httpx.HTTPError as error:  # the client finds its connection broken, as it would without us
                log.warning("%s broke off (%s)", self._name, type(error).__name__)
        return None

    def _address(self, request: Request) -> str:
        """Where a request goes."""
        path, query = (request.scope[name].decode("latin-1") for name in ("raw_path", "query_string"))
        if ".." in request.scope["path"].split("/") or self._has_secret(path):
            raise Refusal(400, "this path leads out of the API, or has the token of this server")
        query = "&".join(part for part in query.split("&") if not self._has_secret(part))
        query = "" if self._has_secret(query) else query
        return f"{self._url}/{path.removeprefix(GATEWAY)}{query and '?'}{query}"

    def _sent(self, request: Request) -> list[tuple[bytes, bytes]]:
        """The headers of a request upstream; its key is where the client has put its own."""
        given = request.headers
        headers = [pair for pair in given.raw if not _NOT_SENT.fullmatch(pair[0])]
        headers = [pair for pair in headers if not self._has_secret(pair[1].decode("latin-1"))]
        headers.append((b"accept-encoding", b"identity"))
        if self._key and "x-api-key" in given and "authorization" not in given:
            headers = [*(pair for pair in headers if pair[0] != b"x-api-key"), (b"x-api-key", self._key)]
        elif self._key:
            headers.append((b"authorization", b"Bearer " + self._key))
        elif not self._secrets and "authorization" in given:
            headers.append((b"authorization", given["authorization"].encode("latin-1")))
        return headers

    def _has_secret(self, text: str) -> bool:
        """Whether a text has what lets clients in, which is for this server alone."""
        return any(secret in one for secret in self._secrets for one in (text, unquote(text)))

    def _told(self, turn: ShownTurn, request: Request) -> dict[str, str]:
        """The headers about the last turn of a request."""
        ids, most = turn.turn.rankings, self._frames.most_images(turn.chat)
        told = {"framenest-times": turn.times, "framenest-evidence": turn.evidence}
        told["framenest-ranking"] = ", ".join(f"{request.base_url}#{id_}&k={turn.k}" for id_ in ids)
        told |= {"framenest-images": str(most)} if most else {}
        return told | match_header(self._rankings, ids)

    async def _takes_fewer(
        self, response: httpx.Response, head: bytearray, pieces: AsyncIterator[bytes], turn: ShownTurn
    ) -> bool:
        """Whether an error, read into `head`, says that fewer images are taken. Refused without this API."""
        status = response.status_code
        if not response.is_error or status in (401, 403, 429):
            return False
        head += await _head(pieces)
        asked = map(turn.chat.fields.get, ("model", "previous_response_id"))
        lacks = any(name and str(name).encode() in head for name in asked)  # that is what it does not have
        if status in (404, 405, 501) and turn.chat.dialect is not CHAT and not lacks:
            raise Refusal(501, f"{self._name} has no {GATEWAY}{turn.chat.dialect.path}: {INSTEAD}")
        return await to_thread.run_sync(self._frames.learn, turn, bytes(head))


class ClientReply:
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


async def _one_by_one(response: httpx.Response) -> AsyncIterator[bytes]:
    """The pieces of a response; between two of them, others go on."""
    async for piece in response.aiter_raw():
        yield piece
        await asyncio.sleep(0)


def match_header(rankings: Rankings, ids: Sequence[str]) -> dict[str, str]:
    """How strongly each ranking of a turn matches, and whether it is a guess, if the scorer says so."""
    matches = [rankings.get(id_).stats.match for id_ in ids]
    texts = [f"{one.verdict}: {GUESS}" if one.is_guess else one.verdict for one in matches if one]
    return {"framenest-match": "; ".join(texts)} if texts else {}


def refuse_videos_in(content: bytes) -> None:
    """Refuse a video in a body for another API; what is not JSON may pass."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        known = ", ".join(f"{GATEWAY}{one}" for one in DIALECTS)
        try:
            refuse_videos(msgspec.json.decode(content), f"they are at {known}")
        except RecursionError as error:
            raise Refusal(400, f"this JSON is nested too deeply ({error})") from error


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
                with suppress(msgspec.DecodeError):
                    remember(msgspec.json.decode(named[1], type=str))
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


async def _until_answer(response: httpx.Response, pieces: AsyncIterator[bytes]) -> bytearray | None:
    """What was received until it is clear that the model answers; None if it cannot tell."""
    held, heard = bytearray(), 0
    streams = _streams(response)
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
