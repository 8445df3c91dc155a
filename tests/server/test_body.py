"""Bodies of requests: data is kept apart from JSON, nothing is changed, and together they have a limit."""

import asyncio
import base64
import json
import random
import re
import socket
import threading

import httpx
import msgspec
import pytest

from framenest.server import body as body_module
from framenest.server.body import BLOCK_BYTES, Body, sliced, with_data, without_data
from framenest.server.server_settings import MIB, ServerSettings
from processes import PATIENCE
from upstream import local_gateway, upstream_server

B64 = base64.b64encode(random.Random(0).randbytes(60_000)).decode()


def body_of(whole: bytes, chance=None, *, is_chat=True) -> Body:
    """A body that arrived in pieces."""
    body, place = Body(is_chat=is_chat), 0
    while place < len(whole):
        size = chance.randint(1, 20_000) if chance else 65_536
        body.add(whole[place : place + size])
        place += size
    body.end()
    return body


def together(parts) -> bytes:
    async def gather():
        return b"".join([piece async for piece in sliced(parts)])

    return asyncio.run(gather())


@pytest.mark.parametrize("seed", range(20))
def test_a_body_is_what_arrived_whatever_its_pieces(seed):
    chance = random.Random(seed)
    tricky = ["é", "\\", '"', "/", "\n", "🔥", B64[:BLOCK_BYTES], B64, "plain text ", ","]
    texts = ["".join(chance.choices(tricky, k=chance.randint(0, 30))) for _ in range(10)]
    whole = json.dumps({"texts": texts, "number": 1.50}, ensure_ascii=chance.random() < 0.5)
    if chance.random() < 0.5:
        whole = whole.replace("/", r"\/")  # as PHP writes it
    body = body_of(whole.encode(), chance)
    assert together(body.parts()) == whole.encode()
    fields = msgspec.json.decode(body.text)  # it is still JSON, and stands for the same
    again = together(with_data(msgspec.json.encode(fields)))
    assert msgspec.json.decode(again) == json.loads(whole)
    assert len(body.text) < len(whole) or B64[:BLOCK_BYTES] not in "".join(texts)


@pytest.mark.parametrize("place", range(BLOCK_BYTES - 40, BLOCK_BYTES))
def test_data_begins_after_a_character_not_within_it(place):
    for escaped in (r"\u00e9", r"\\", r"\n", r"\/", r"\\\/"):
        whole = f'{{"a":"{" " * (place - 6)}{escaped}{B64}"}}'.encode()
        body = body_of(whole)
        assert together(body.parts()) == whole
        text = msgspec.json.decode(body.text)["a"]
        assert json.loads(together(with_data(msgspec.json.encode(text)))) == json.loads(whole)["a"]
        assert len(body.text) < 4 * BLOCK_BYTES
        assert set(without_data(text)) <= set(json.loads(whole)["a"])


def test_what_is_no_chat_is_kept_as_it_is():
    whole = f'{{"input": "{B64}"}}'.encode()
    assert bytes(body_of(whole, is_chat=False).text) == whole


def test_a_client_cannot_name_the_data_of_another():
    """Marks are told to nobody, and those that are gone mean nothing."""
    body = body_of(f'["{B64}"]'.encode())
    mark = re.search(rb"[0-9a-f]{48}", body.text)[0]
    copied = b'["' + mark + b'"]'
    body.clear()
    assert together(with_data(copied)) == copied
    other = body_of(f'["{B64}"]'.encode())
    assert re.search(rb"[0-9a-f]{48}", other.text)[0][:16] == mark[:16]
    assert mark not in other.text


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
    (b'{"model":"video","messages":[' + b"{}," * 5 * MIB + b"{}]}", "besides data in base64"),
    (HEAD + b'{"type":"text","text":"' + b"word " * 2 * MIB + b'"}]}]}', "besides data in base64"),
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
