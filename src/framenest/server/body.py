"""Bodies of requests to the gateway: what one may have, and what all of them may take together."""

from __future__ import annotations

import string
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from starlette.requests import ClientDisconnect, Request

from framenest.server.guard import BODY_SECONDS, MAX_BODY_BYTES, Refusal
from framenest.server.server_settings import MIB

MAX_BODIES_BYTES = 768 * MIB  # of all requests; a single one may have 512 MiB
MAX_VALUES = 250_000  # commas and brackets in a conversation; objects take more memory than their JSON
MAX_UNPACKED_BYTES = 64 * MIB  # of a body that is sent as gzip
MAX_TEXT_BYTES = 2 * MIB  # of what base64 does not use in a conversation: enough for 10 MiB of prose
_BASE64 = f"{string.ascii_letters}{string.digits}+/-_=".encode()


class Body:
    """A body in memory. content: all of it, once it has arrived. size: bytes that it takes."""

    def __init__(self) -> None:
        self.content, self.size = b"", 0

    async def slices(self) -> AsyncIterator[bytes]:
        """The content in pieces, so that nobody waits for long."""
        content = self.content
        for place in range(0, len(content), MIB):
            yield content[place : place + MIB]

    def free(self) -> None:
        """Make room for others."""
        self.content, self.size = b"", 0


class Bodies:
    """All bodies in memory. If they are too much, the largest that is still arriving is refused."""

    def __init__(self) -> None:
        self._open = set[Body]()
        self._arriving = dict[Body, anyio.CancelScope]()

    @asynccontextmanager
    async def read(self, request: Request, *, is_json: bool) -> AsyncIterator[Body]:
        """A whole body, unpacked. JSON is refused unless it is small, besides its data."""
        length = int(request.headers.get("content-length", 0))
        body, pieces, values, text = Body(), list[bytes](), 0, 0
        self._open.add(body)
        try:
            with anyio.move_on_after(BODY_SECONDS + length / 2**17) as scope:  # 128 KiB a second
                self._arriving[body] = scope
                async for piece in _unpacked(request):
                    if is_json:
                        values += len(piece) - len(piece.translate(None, b"{[,"))
                        text += len(piece.translate(None, _BASE64))
                    if values <= MAX_VALUES and text <= MAX_TEXT_BYTES:
                        pieces.append(piece)
                        body.size += len(piece)
                        self._make_room()
            del self._arriving[body]
            if scope.cancelled_caught and anyio.current_time() < scope.deadline:
                raise Refusal(429, "too many large requests arrive at once; try again later", 5)
            if scope.cancelled_caught:
                raise Refusal(408, "the request did not arrive in time")
            if values > MAX_VALUES:
                raise Refusal(413, f"a request has at most {MAX_VALUES:,} commas and brackets")
            if text > MAX_TEXT_BYTES:
                raise Refusal(413, f"a request has at most {MAX_TEXT_BYTES:,} characters that base64 has not")
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
