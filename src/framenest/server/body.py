"""Bodies of requests: long data stays out of the JSON that is decoded, and all of them share one limit."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import anyio
from starlette.requests import ClientDisconnect, Request

from framenest.server.guard import BODY_SECONDS, MAX_BODY_BYTES, Refusal
from framenest.server.server_settings import MIB

MAX_TEXT_BYTES = 8 * MIB  # of a chat completion, besides its data
MAX_BODIES_BYTES = 768 * MIB  # of all requests; a single one may have 512 MiB
BLOCK_BYTES = 4096
_BASE64 = f"{string.ascii_letters}{string.digits}+/-_=".encode()
_MARK, _MARK_BYTES = secrets.token_bytes(8).hex().encode(), 32


class Base64(bytearray):
    """Base64 out of a JSON string, as it was sent."""


_DATA = WeakValueDictionary[bytes, Base64]()


def with_data(text: bytes | bytearray) -> list[bytes | bytearray]:
    """A text, or a part of one, with its data: what was sent, in parts."""
    first, *others = text.split(_MARK)
    parts = [first]
    for other in others:
        data = _DATA.get(bytes(other[:_MARK_BYTES]))
        parts += [_MARK, other] if data is None else [data, other[_MARK_BYTES:]]
    return parts


def without_data(text: str) -> str:
    """A text without its marks."""
    return re.sub(f"{_MARK.decode()}.{{{_MARK_BYTES}}}", "", text)


async def sliced(parts: Iterable[bytes | bytearray]) -> AsyncIterator[bytes]:
    """Parts in pieces of at most a MiB, so that nobody has to wait for long."""
    for part in parts:
        for place in range(0, len(part), MIB):
            yield bytes(part[place : place + MIB])


class Body:
    """What has arrived of a body. In place of each `Base64`, `text` has a mark that nobody else can know."""

    def __init__(self, *, is_chat: bool) -> None:
        self.text: bytes | bytearray = bytearray()
        self._is_chat, self._rest = is_chat, bytearray()
        self._data, self._in_data = list[Base64](), False

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return len(self.text) + len(self._rest) + sum(map(len, self._data))

    @property
    def is_too_large(self) -> bool:
        """Whether a chat completion has too much besides its data; what follows is not kept."""
        return self._is_chat and len(self.text) > MAX_TEXT_BYTES

    def add(self, piece: bytes) -> None:
        """Take what arrives next; of a chat completion, blocks of base64 are data."""
        if not self._is_chat:
            self.text += piece
        if not self._is_chat or self.is_too_large:
            return
        self._rest += piece
        start = 0
        while (end := start + BLOCK_BYTES) < len(self._rest):
            end += self._rest[end - 1] == ord("\\")  # some clients write \/
            block, start = self._rest[start:end], end
            is_data = not block.replace(rb"\/", b"/").translate(None, _BASE64)
            if is_data and not self._in_data and b"\\" not in self.text[-6:]:  # not within \u00e9
                id_ = secrets.token_hex(_MARK_BYTES // 2).encode()
                self._data.append(Base64())
                _DATA[id_] = self._data[-1]
                self.text += _MARK + id_
                self._in_data = True
            self._in_data = self._in_data and is_data
            if self._in_data:
                self._data[-1] += block
            else:
                self.text += block
        del self._rest[:start]

    def end(self) -> None:
        """Nothing else arrives."""
        self.text += self._rest
        self._rest.clear()

    def parts(self) -> list[bytes | bytearray]:
        """The text with its data."""
        return with_data(self.text) if self._data else [self.text]

    def clear(self) -> None:
        """Free the memory."""
        self.text, self._rest, self._data = bytearray(), bytearray(), []


class Bodies:
    """All bodies in memory. If they are too much, the largest that is still arriving is refused."""

    def __init__(self) -> None:
        self._open = set[Body]()
        self._arriving = dict[Body, anyio.CancelScope]()

    @asynccontextmanager
    async def read(self, request: Request, *, is_chat: bool) -> AsyncIterator[Body]:
        """A whole body, until it is cleared."""
        length = int(request.headers.get("content-length", 0))
        body = Body(is_chat=is_chat)
        self._open.add(body)
        try:
            with anyio.move_on_after(BODY_SECONDS + length / 2**17) as scope:  # 128 KiB a second
                self._arriving[body] = scope
                async for piece in request.stream():
                    body.add(piece)
                    self._make_room()
                body.end()
            del self._arriving[body]
            if scope.cancelled_caught and anyio.current_time() < scope.deadline:
                raise Refusal(429, "too many large requests arrive at once; try again later", 5)
            if scope.cancelled_caught:
                raise Refusal(408, "the request did not arrive in time")
            if body.is_too_large:
                raise Refusal(413, f"a request has at most {MAX_TEXT_BYTES} bytes besides data in base64")
            yield body
        except ClientDisconnect as error:
            raise Refusal(408, "the request did not arrive") from error
        finally:
            self._arriving.pop(body, None)
            self._open.discard(body)
            body.clear()

    def _make_room(self) -> None:
        if sum(body.size for body in self._open) > MAX_BODIES_BYTES:
            largest = max(self._arriving, key=lambda body: body.size)
            if largest.size > MAX_BODY_BYTES:  # as much as other routes take from anyone
                self._arriving[largest].cancel()
