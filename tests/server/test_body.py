"""Bodies of requests: small JSON is refused before it becomes objects, and together they have a limit."""

import json
import socket
import threading

import httpx
import msgspec
import pytest

from framenest.server import body as body_module
from framenest.server.server_settings import MIB, ServerSettings
from processes import PATIENCE
from upstream import local_gateway, upstream_server


@pytest.fixture
def behind():
    with upstream_server() as upstream:
        yield upstream


@pytest.fixture
def gate(tmp_path, media, scores, behind):
    settings = ServerSettings(
        data=tmp_path / "data", cache=str(tmp_path / "cache"), videos=(media,), scorer=scores, port=0,
        upstream=behind.url, budget=(4,),
    )  # fmt: skip
    with local_gateway(settings) as one:
        yield one


def post(gate, content):
    return httpx.post(f"{gate.url}/chat/completions", content=content, timeout=PATIENCE)


def started(gate, length, sent=b""):
    """A connection that has sent a part of a body."""
    connection = socket.create_connection(("127.0.0.1", httpx.URL(gate.url).port), PATIENCE)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
    connection.sendall(head.encode() + sent)
    return connection


HEAD = b'{"model":"video","messages":[{"role":"user","content":['


@pytest.mark.parametrize(("content", "told"), [
    (b'{"model":"video","messages":[' + b"{}," * 5 * MIB + b"{}]}", "commas and brackets"),
    (HEAD + b'{"type":"text","text":"' + b"word " * 4 * MIB + b'"}]}]}', "that base64 has not"),
    (b'{"model":"video","messages":[' + b"{}," * 2 * MIB + b"{}]}", "commas and brackets"),
    (HEAD + b'"",' * 2 * MIB + b'""]}]}', "commas and brackets"),
    (HEAD[:-1] + b"[" * 300_000, "commas and brackets"),
    (b'{"model":"video","messages":[' + b"0," * 20_000 + b"0]}", "messages"),
])  # fmt: skip
def test_small_json_is_refused_before_it_becomes_objects(gate, behind, monkeypatch, content, told):
    """16 MiB of {} would take 380 MB, and stop every client for seconds."""
    decoded, decode = [], msgspec.json.decode
    monkeypatch.setattr(
        msgspec.json, "decode", lambda data, **how: decoded.append(data) or decode(data, **how)
    )
    answer = post(gate, content)
    assert answer.status_code == 413
    assert told in answer.json()["error"]["message"]
    assert behind.requests == []
    assert decoded == [] or told == "messages"


def test_a_conversation_of_thousands_of_turns_lets_others_through(gate, media):
    address = (media / "clip.mp4").as_uri()
    first = {"role": "user", "content": [{"type": "video_url", "video_url": {"url": address}}]}
    content = json.dumps({"messages": [first, *[{"role": "user", "content": "x"}] * 1000]})
    answers = []
    asking = threading.Thread(target=lambda: answers.append(post(gate, content)))
    asking.start()
    count = 0
    with httpx.Client(base_url=gate.url.removesuffix("/v1"), timeout=PATIENCE) as other:
        while not answers:
            assert other.get("/health").status_code == 200
            count += 1
    asking.join(PATIENCE)
    assert answers[0].status_code == 200
    assert count > 20


def test_bodies_that_do_not_end_make_room_for_others(gate, behind, monkeypatch):
    """The largest goes; one that is small enough for any route stays."""
    monkeypatch.setattr(body_module, "MAX_BODIES_BYTES", MIB)
    small = started(gate, 900_000, b"{" + b" " * 1000)
    half = [started(gate, 900_000, b"{" + b" " * size) for size in (500_000, 400_000, 300_000)]
    assert b" 429 " in half[0].recv(1000)
    for connection, size in ((half[1], 400_000), (half[2], 300_000), (small, 1000)):
        connection.sendall(b" " * (900_000 - size - 2) + b"}")
        assert b" 200 " in connection.recv(1000)
    assert post(gate, b'{"x": 1}').status_code == 200
    for connection in (*half, small):
        connection.close()
