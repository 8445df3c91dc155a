"""Servers for the tests of the gateway: the one behind it, and the gateway itself in this process."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
import uvloop

from framenest.server.app import create_app
from framenest.server.listen import BoundedProtocol
from framenest.server.server_settings import ServerSettings
from framenest.server.service import Service
from processes import PATIENCE
from scripted_server import completion

_numbers = itertools.count(1)


@dataclass
class Exchange:
    """One request, and the ways to answer it."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    receive: Any
    send: Any

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def start(self, status=200, kind="application/json", **headers) -> None:
        named = {"content-type": kind} | {name.replace("_", "-"): value for name, value in headers.items()}
        raw = [(name.encode(), value.encode()) for name, value in named.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def piece(self, data: bytes, *, more: bool = True) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def whole(self, data: Any, status: int = 200, **headers) -> None:
        packed = data if isinstance(data, bytes) else json.dumps(data).encode()
        await self.start(status, content_length=str(len(packed)), **headers)
        await self.piece(packed, more=False)

    async def event(self, delta: Any, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        await self.piece(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    async def says(self, text: str) -> None:
        """An answer in the API that was asked, streamed word by word if that was asked for."""
        if self.path.endswith(("/responses", "/messages")):
            await self._says_in_another_api(text)
            return
        if not self.json.get("stream"):
            await self.whole(completion(text))
            return
        await self.start(kind="text/event-stream")
        for word in text.split(" "):
            await self.event({"content": f"{word} "})
        await self.event({}, "stop")
        await self.piece(b"data: [DONE]\n\n", more=False)

    async def _says_in_another_api(self, text: str) -> None:
        whole, events = (response if self.path.endswith("/responses") else message)(text)
        if not self.json.get("stream"):
            await self.whole(whole)
            return
        await self.start(kind="text/event-stream")
        for event in events:
            named = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            await self.piece(named.encode())
        await self.piece(b"", more=False)

    async def gone(self) -> None:
        """Wait until the other side has closed the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


def response(text: str) -> tuple[Any, list[Any]]:
    """An answer of OpenAI's Responses, and the events of its stream."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
    whole = {
        "id": f"resp_{next(_numbers)}", "object": "response", "created_at": 1, "model": "m",
        "status": "completed", "output": [item],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events: list[Any] = [{"type": "response.created", "response": whole | {"output": []}}]
    events.append({"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}})
    events.append({"type": "response.content_part.added", "part": part | {"text": ""}, **place})
    words = [f"{word} " for word in text.split(" ")]
    events += [
        {"type": "response.output_text.delta", "delta": word, "logprobs": [], **place} for word in words
    ]
    events.append({"type": "response.completed", "response": whole})
    return whole, [event | {"sequence_number": number} for number, event in enumerate(events)]


def message(text: str) -> tuple[Any, list[Any]]:
    """An answer of Anthropic's Messages, and the events of its stream."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    whole |= {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None}
    events: list[Any] = [{"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}]
    events.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for word in text.split(" "):
        delta = {"type": "text_delta", "text": f"{word} "}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events.append({"type": "content_block_stop", "index": 0})
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    events += [{"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}]
    return whole, events


async def canned(exchange: Exchange) -> None:
    """A list of models, or the same answer to everything."""
    if exchange.method == "GET":
        await exchange.whole({"object": "list", "data": [{"id": "m", "object": "model"}]})
    else:
        await exchange.says("a canned answer")


class Upstream:
    """An OpenAI-compatible server that answers with `reply`; `requests` keeps what it was asked."""

    def __init__(self) -> None:
        self.reply: Callable[[Exchange], Any] = canned
        self.requests: list[Exchange] = []
        self.url = ""
        self._open = 0
        self._changed = threading.Condition()

    async def __call__(self, scope, receive, send) -> None:
        body = b""
        while (message := await receive()).get("more_body", False) or message.get("body"):
            body += message["body"]
            if not message["more_body"]:
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path, query = scope["raw_path"].decode(), scope["query_string"].decode()
        exchange = Exchange(scope["method"], path, query, headers, body, receive, send)
        self.requests.append(exchange)
        self._count(1)
        try:
            await self.reply(exchange)
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._changed:
            self._open += more
            self._changed.notify_all()

    def wait_until(self, open_requests: int) -> None:
        """Until so many requests are being answered."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._open == open_requests, PATIENCE), self._open

    @property
    def messages(self) -> list[Any]:
        """Those of the latest request."""
        return self.requests[-1].json["messages"]


@contextmanager
def running(app: Any, **settings: Any) -> Iterator[tuple[int, asyncio.AbstractEventLoop]]:
    """An ASGI application on a free port, in a thread: the port, and the event loop."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        config = uvicorn.Config(app, log_config=None, access_log=False, **settings)
        server, started, loops = uvicorn.Server(config), threading.Event(), []

        async def serve() -> None:
            loops.append(asyncio.get_running_loop())
            started.set()
            await server.serve(sockets=[port])

        def run() -> None:  # as uvicorn itself does
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert started.wait(PATIENCE)
        try:
            yield port.getsockname()[1], loops[0]
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


@contextmanager
def upstream_server() -> Iterator[Upstream]:
    upstream = Upstream()
    with running(upstream, lifespan="off", timeout_graceful_shutdown=1) as (port, _):
        upstream.url = f"http://127.0.0.1:{port}/v1"
        yield upstream


class LocalGateway:
    """`framenest serve --upstream` in this process; knows how many requests have ended."""

    def __init__(self, service: Service, app: Any) -> None:
        self.service, self.app = service, app
        self._ended, self._changed = 0, threading.Condition()
        count = service.metrics.request

        def ended(*told: Any) -> None:
            count(*told)
            with self._changed:
                self._ended += 1
                self._changed.notify_all()

        service.metrics.request = ended  # type: ignore[method-assign]

    def wait_for_ended(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended >= count, PATIENCE), self._ended

    def on_loop(self, work: Any) -> Any:
        """What a coroutine returns that runs where requests are answered."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)


@contextmanager
def local_gateway(settings: ServerSettings) -> Iterator[LocalGateway]:
    service = Service(settings)
    service.start()
    gate = LocalGateway(service, create_app(service))
    with running(gate.app, http=BoundedProtocol, timeout_graceful_shutdown=1) as (port, gate.loop):
        gate.url = f"http://127.0.0.1:{port}/v1"
        yield gate
