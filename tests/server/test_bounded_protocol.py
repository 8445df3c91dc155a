"""Clients that nobody knows yet: how large and slow their requests may be, and how many there may be."""

import asyncio
import re
import socket
import threading
import time
import weakref
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

import pytest
import uvicorn

from framenest.processes import own_memory
from framenest.server import guard
from framenest.server.guard import Metrics
from framenest.server.listen import BoundedProtocol
from framenest.server.server_settings import ServerSettings
from processes import PATIENCE

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


MIB = 2**20
LARGE = 32 * MIB  # more than the system takes for a client that does not read


class HastyProtocol(BoundedProtocol):
    header_seconds = 1.0
    max_connections = 8
    made: ClassVar = weakref.WeakSet()

    def connection_made(self, transport):
        super().connection_made(transport)
        self.made.add(self)


class ImpatientProtocol(HastyProtocol):
    write_seconds = 0.5


gone = threading.Event()
"""Somebody has left /gone."""


async def app(scope, receive, send):
    """Says hello; at /held, when the body has come; at /large with much more; at /gone to nobody."""
    if scope["type"] != "http":
        return
    while scope["path"] == "/held" and (await receive()).get("more_body"):
        pass
    if scope["path"] == "/gone":
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
    body = b"hello" + bytes(LARGE * (scope["path"] == "/large"))
    length = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def listening(request):
    """(port, protocol class) of a server in a thread; its protocol class is the test's parameter."""
    protocol = getattr(request, "param", HastyProtocol)
    config = uvicorn.Config(
        app, port=0, http=protocol, lifespan="off", log_config=None, timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    sockets = [config.bind_socket()]
    sockets[0].listen()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets)))
    thread.start()
    yield sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()
    sockets[0].close()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def read(connection):
    """All that comes until the server closes."""
    data = b""
    try:
        while more := connection.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


def status(connection):
    """The first line of an answer, all of which is read."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head.partition(b"\r\n")[0]


def test_a_request_is_answered_and_the_connection_kept(listening):
    with closing(connect(listening)) as connection:
        for _ in range(3):
            connection.sendall(REQUEST + b"\r\n")
            assert status(connection) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "header",
    [
        b"X: " + b"x" * MIB,
        b"".join(b"X-%d: y\r\n" % number for number in range(MIB // 8)),
    ],
    ids=["one", "many"],
)
@pytest.mark.parametrize("listening", [BoundedProtocol], indirect=True)
def test_large_headers_are_refused(listening, header):
    with closing(connect(listening)) as connection:
        connection.sendall(REQUEST + header + b"\r\n\r\n")
        assert status(connection) == b"HTTP/1.1 400 Bad Request"


@pytest.mark.parametrize("listening", [BoundedProtocol], indirect=True)
def test_a_long_address_is_refused(listening):
    with closing(connect(listening)) as connection:
        connection.sendall(b"GET /" + b"a" * MIB + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status(connection) == b"HTTP/1.1 400 Bad Request"


@pytest.mark.parametrize("listening", [BoundedProtocol], indirect=True)
def test_a_header_without_end_is_cut_off(listening):
    """Long before 100 MiB of it have come."""
    with closing(connect(listening)) as connection:
        sent = 0
        try:
            connection.sendall(REQUEST + b"X: ")
            while sent < 100 * 2**20:
                connection.sendall(b"x" * 2**16)
                sent += 2**16
        except OSError:
            pass
        assert sent < 32 * 2**20  # what fits into the buffers of the system
    with closing(connect(listening)) as connection:
        connection.sendall(REQUEST + b"\r\n")
        assert status(connection) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("begun", [b"", b"GET / HT", REQUEST], ids=["nothing", "line", "headers"])
def test_headers_must_come_in_time(listening, begun):
    with closing(connect(listening)) as connection:
        connection.sendall(begun)
        assert read(connection) == b""  # ends


def test_a_second_request_on_a_connection_must_come_in_time_too(listening):
    with closing(connect(listening)) as connection:
        connection.sendall(REQUEST + b"\r\n" + b"GET")
        assert read(connection).count(b"HTTP/1.1 ") == 1


def test_the_body_of_an_answered_request_must_come_in_time(listening):
    with closing(connect(listening)) as connection:
        connection.sendall(REQUEST + b"Content-Length: 1000\r\n\r\n0123")
        assert status(connection) == b"HTTP/1.1 200 OK"
        read(connection)  # ends


def test_half_sent_requests_make_room_for_whole_ones(listening):
    slow = [connect(listening) for _ in range(HastyProtocol.max_connections * 2)]
    try:
        for one in slow:
            one.sendall(REQUEST)
        with closing(connect(listening)) as connection:
            connection.sendall(REQUEST + b"\r\n")
            assert status(connection) == b"HTTP/1.1 200 OK"
    finally:
        for one in slow:
            one.close()


def test_beyond_the_max_connections_at_work_a_new_one_is_refused(listening):
    held = [connect(listening) for _ in range(HastyProtocol.max_connections)]
    try:
        for one in held:
            one.sendall(
                b"POST /held HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
            )
        for one in held:
            assert status(one) == b"HTTP/1.1 100 Continue"
        with closing(connect(listening)) as connection:
            answer = read(connection)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 5" in answer
        for one in held:
            one.sendall(b"123456789")
            assert status(one) == b"HTTP/1.1 200 OK"
    finally:
        for one in held:
            one.close()


def test_more_pipelined_requests_are_not_read(listening):
    """Until those before them are answered."""
    with closing(connect(listening)) as connection:
        connection.sendall(99 * (REQUEST + b"\r\n") + REQUEST + b"Connection: close\r\n\r\n")
        assert read(connection).count(b"HTTP/1.1 200 OK") == 100


def test_pipelined_requests_take_little_memory(serve):
    """A request takes 50 bytes of a client, and kilobytes of the server."""
    server = serve()
    asked = b"GET /assets/view.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    before = own_memory(server.process.pid)
    many = [connect(server.port) for _ in range(40)]
    try:
        for one in many:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.sendall(5000 * asked)
        for _ in range(200):  # all have their turn
            assert server.http.get("/health").status_code == 200
        assert own_memory(server.process.pid) - before < 100 * 2**20
    finally:
        for one in many:
            one.close()


def test_clients_that_do_not_read_make_room(listening):
    """So nobody shuts others out by asking for much and reading nothing."""
    unread = [connect(listening) for _ in range(HastyProtocol.max_connections)]
    try:
        for one in unread:
            one.sendall(5 * (b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        until = time.monotonic() + PATIENCE
        answer = b"503"
        while b"503" in answer and time.monotonic() < until:
            time.sleep(0.1)
            with closing(connect(listening)) as connection, suppress(ConnectionError):
                connection.sendall(REQUEST + b"\r\n")
                answer = status(connection)
        assert answer == b"HTTP/1.1 200 OK"
    finally:
        for one in unread:
            one.close()


@pytest.mark.parametrize("listening", [ImpatientProtocol], indirect=True)
def test_an_answer_must_be_read_in_time(listening):
    with closing(connect(listening)) as unread:
        unread.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        until = time.monotonic() + PATIENCE
        held: list[bool] = []  # whether a part of the answer waits
        while held[-2:] != [True, False] and time.monotonic() < until:
            held.append(any(one.transport.get_write_buffer_size() for one in HastyProtocol.made))
            time.sleep(0.005)
        assert len(read(unread)) < LARGE


def test_every_pipelined_request_is_told_that_its_client_is_gone(listening):
    gone.clear()
    with closing(connect(listening)) as connection:
        connection.sendall(b"GET /gone HTTP/1.1\r\nHost: localhost\r\n\r\n" + REQUEST + b"\r\n")
    assert gone.wait(PATIENCE)


def test_a_body_that_is_no_upload_must_come_in_time(monkeypatch):
    """The guard tells the application that the client is gone."""
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.5)
    got = []

    async def body(scope, receive, send):
        while (message := await receive())["type"] == "http.request":
            got.append(message["body"])
        got.append(message["type"])

    async def half_a_body():
        if got:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": b"{", "more_body": True}

    headers = [(b"host", b"localhost"), (b"content-length", b"9")]
    scope = {"type": "http", "method": "POST", "path": "/rankings", "headers": headers}
    one = guard.Guard(body, ServerSettings(Path("data")), Metrics())
    asyncio.run(one(scope, half_a_body, None))
    assert got == [b"{", "http.disconnect"]


def test_the_command_serves_with_these_limits(serve):
    server = serve()
    with closing(connect(server.port)) as connection:
        connection.sendall(REQUEST + b"X: " + b"x" * MIB + b"\r\n\r\n")
        assert status(connection) == b"HTTP/1.1 400 Bad Request"
    assert server.http.get("/health").status_code == 200
