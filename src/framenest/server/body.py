"""Bodies of requests to the gateway: what one may have, and what all of them may take together."""

from __future__ import annotations

import string
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint_if_cancelled
from starlette.requests import ClientDisconnect, Request

from framenest.server.guard import MAX_BODY_BYTES, Refusal, time_for
from framenest.server.server_settings import MIB

MAX_BODIES_BYTES = 768 * MIB  # of all requests; a single one may have 512 MiB
MAX_UNPACKED_BYTES = 64 * MIB  # of a body that is sent as gzip
MAX_JSON_BYTES = 32 * MIB  # of memory for what is not base64 in a body of JSON
VALUE_BYTES = 100  # that each comma and bracket counts for; objects take more memory than their JSON
_BASE64 = f"{string.ascii_letters}{string.digits}+/-_=".encode()


class Body:
    """A body in memory."""

    def __init__(self) -> None:
        self.content = b""  # all of it, once it has arrived
        self.size = 0  # bytes that it and its objects take
        self.is_json = False  # whether it begins like an object or a list

    async def slices(self) -> AsyncIterator[bytes]:
        """The content in pieces, so that nobody waits for long."""
        content = self.content
        for place in range(0, len(content), MIB):
            yield content[place : place + MIB]


class Bodies:
    """All bodies in memory. If they are too much, the largest that is still arriving is refused."""

    def __init__(self) -> None:
        self._open = set[Body]()
        self._arriving = dict[Body, anyio.CancelScope]()

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[Body]:
        """A whole body, unpacked. JSON is refused unless it is small, besides its data."""
        body, pieces, small = Body(), list[bytes](), 0
        self._open.add(body)
        try:
            with anyio.move_on_after(time_for(int(request.headers.get("content-length", 0)))) as scope:
                self._arriving[body] = scope
                async for piece in _unpacked(request):
                    if not pieces:
                        body.is_json = piece.lstrip()[:1] in b"{["
                    taken = len(piece)
                    if body.is_json:
                        taken += VALUE_BYTES * (len(piece) - len(piece.translate(None, b"{[,")))
                        small += taken - len(piece) + len(piece.translate(None, _BASE64))
                    if small <= MAX_JSON_BYTES:
                        pieces.append(piece)
                        body.size += taken
                        self._make_room()
                        await checkpoint_if_cancelled()  # else a body that is here at once cannot be refused
            del self._arriving[body]
            if scope.cancelled_caught and anyio.current_time() < scope.deadline:
                raise Refusal(429, "too many large requests arrive at once; try again later", 5)
            if scope.cancelled_caught:
                raise Refusal(408, "the request did not arrive in time")
            if small > MAX_JSON_BYTES:
                most = f"a request has at most {MAX_JSON_BYTES:,} bytes besides base64"
                raise Refusal(413, f"{most}; each comma and bracket counts for {VALUE_BYTES}")
            body.content = b"".join(pieces)
            pieces.clear()
            yield body
        except ClientDisconnect as error:
            raise Refusal(408, "the request did not arrive") from error
        finally:
            self._arriving.pop(body, None)
            self._open.discard(body)

    def _make_room(self) -> None:
        if sum(body.size for body in self._open) > MAX_BODIES_BYTES:
            largest = max(self._arriving, key=lambda body: body.size)
            if largest.size > MAX_BODY_BYTES:  # as much as other routes take from anyone
                self._arriving[largest].cancel()


async def _unpacked(request: Request) -> AsyncIterator[bytes]:
    """The pieces of a body, without its content encoding."""
    packing, left = request.headers.get("content-encoding", "identity").lower(), MAX_UNPACKED_BYTES
    if packing not in ("identity", "gzip"):
        raise Refusal(415, f"content-encoding {packing} is not read here; send gzip, or none")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    async for piece in request.stream():
        if packing == "identity":
            yield piece
            continue
        while piece:
            try:
                yield (unpacked := unpacker.decompress(piece, MIB))
            except zlib.error as error:
                raise Refusal(400, f"the body is not gzip ({error})") from error
            left -= len(unpacked)
            if left < 0:
                raise Refusal(413, f"a packed request has at most {MAX_UNPACKED_BYTES} bytes when unpacked")
            await anyio.sleep(0)
            piece = unpacker.unconsumed_tail
    if packing == "gzip" and not unpacker.eof:
        raise Refusal(400, "the body is not gzip (it ends too early)")
