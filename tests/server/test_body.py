"""Bodies of requests: small JSON is refused before it becomes objects, and together they have a limit."""

import gc
import json
import socket
import threading
from contextlib import suppress

import httpx
import msgspec
import pytest

from framenest.server import body as body_module
from framenest.server import conversation, gateway
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


def post(gate, content, path="chat/completions"):
    return httpx.post(f"{gate.url}/{path}", content=content, timeout=PATIENCE)


def started(port, length, sent=b""):
    """A connection that has sent a part of a body."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
    connection.sendall(head.encode() + sent)
    return connection


HEAD = b'{"model":"video","messages":[{"role":"user","content":['


@pytest.mark.parametrize(("content", "told"), [
    (b'{"model":"video","messages":[' + b"{}," * 5 * MIB + b"{}]}", "each comma and bracket"),
    (HEAD + b'{"type":"text","text":"' + "é ".encode() * 11 * MIB + b'"}]}]}', "besides base64"),
    (b'{"model":"video","messages":[' + b"{}," * 2 * MIB + b"{}]}", "each comma and bracket"),
    (HEAD + b'"",' * 2 * MIB + b'""]}]}', "each comma and bracket"),
    (HEAD[:-1] + b"[" * 400_000, "each comma and bracket"),
    (b"\n" * 70_000 + HEAD + b"{}," * 2 * MIB + b"{}]}]}", "each comma and bracket"),
    (b'{"model":"video","messages":[' + b"0," * 2000 + b"0]}", "messages"),
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


@pytest.mark.parametrize("content", [
    json.dumps({"input": [[*range(1000)]] * 280}).encode(),  # tokens, as some clients send them
    json.dumps({"input": ["文本" * 400] * 1000}, ensure_ascii=False).encode(),
    b"\xff{" * 40 * MIB,  # not JSON
])  # fmt: skip
def test_large_requests_to_other_apis_pass(gate, behind, content):
    behind.reply = lambda exchange: exchange.whole({"ok": True})
    url, headers = f"{gate.url}/embeddings", {"content-type": "application/json"}
    assert httpx.post(url, content=content, headers=headers, timeout=PATIENCE).status_code == 200
    assert behind.requests[-1].body == content


def test_bodies_become_objects_one_after_the_other(gate, behind, monkeypatch):
    """Several threads that do so would leave the one that answers no time; their objects count, too."""
    at_once, most, both, parse = [], [], threading.Event(), gateway.parse_request

    def counted(*given):
        at_once.append(None)
        most.append(len(at_once))
        both.wait(0.2)  # for others, which must not come
        try:
            return parse(*given)
        finally:
            at_once.pop()

    monkeypatch.setattr(gateway, "parse_request", counted)
    clients = [threading.Thread(target=post, args=(gate, HEAD + b"1]}]}")) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(PATIENCE)
    assert most == [1] * 4
    monkeypatch.setattr(body_module, "MAX_BODIES_BYTES", 20 * MIB)
    assert post(gate, HEAD + b"[]," * 150_000 + b"[]]}]}").status_code == 429
    assert post(gate, HEAD + b"1000," * 150_000 + b"0]}]}").status_code == 200


def test_a_plain_body_does_not_stay_in_memory_as_objects(gate, behind):
    alive = []

    async def reply(exchange):
        alive.extend(one for one in gc.get_objects() if type(one) is conversation.Conversation)
        await exchange.says("well")

    behind.reply = reply
    assert post(gate, HEAD + b"1]}]}").status_code == 200
    assert alive == []


def test_a_conversation_of_a_thousand_turns_lets_others_through(gate, media, monkeypatch):
    """Others are answered while its frames are divided among its turns."""
    dividing, answered = threading.Event(), threading.Event()

    def thinned(*given):
        dividing.set()
        assert answered.wait(PATIENCE)
        return [*conversation_thinned(*given)]

    conversation_thinned = conversation.thinned
    monkeypatch.setattr(conversation, "thinned", thinned)
    address = (media / "clip.mp4").as_uri()
    first = {"role": "user", "content": [{"type": "video_url", "video_url": {"url": address}}]}
    more = [{"role": "assistant", "content": "y"}, {"role": "user", "content": "x"}] * 999
    content, answers = json.dumps({"messages": [first, *more]}), []
    asking = threading.Thread(target=lambda: answers.append(post(gate, content)))
    asking.start()
    assert dividing.wait(PATIENCE)
    other = httpx.get(f"{gate.url.removesuffix('/v1')}/health", timeout=PATIENCE)
    answered.set()
    asking.join(PATIENCE)
    assert (other.status_code, answers[0].status_code) == (200, 200)


@pytest.mark.parametrize("videos", [1, 100])
def test_the_work_of_dividing_frames_grows_with_the_turns(videos):
    """It grew with the cube of their number."""

    class Ranks(list):
        taken = 0

        def __getitem__(self, place):
            Ranks.taken += len(range(*place.indices(len(self))))
            return super().__getitem__(place)

    def work(turns):
        Ranks.taken = 0
        ranked = [(32, [(f"video {n % videos}", Ranks(range(100)))]) for n in range(turns)]
        assert sum(conversation.thinned(ranked, 256, {})) > 0
        return Ranks.taken

    assert work(100) < 4 * work(50)


@pytest.mark.parametrize("size", [3 * MIB, 40 * MIB])
def test_a_body_that_is_here_at_once_is_refused_if_it_is_too_much(gate, behind, monkeypatch, size):
    monkeypatch.setattr(body_module, "MAX_BODIES_BYTES", 2 * MIB)
    content = HEAD + b'"' + b"A" * size + b'"]}]}'
    for path in ("chat/completions", "embeddings", "files"):
        with suppress(httpx.WriteError):  # it is refused before it is all sent
            assert post(gate, content, path).status_code == 429
    assert behind.requests == []
    assert post(gate, HEAD + b"1]}]}").status_code == 200


def test_bodies_that_do_not_end_make_room_for_others(gate, behind, monkeypatch):
    """The largest goes; one that is small enough for any route stays."""
    monkeypatch.setattr(body_module, "MAX_BODIES_BYTES", MIB)
    port = httpx.URL(gate.url).port
    small = started(port, 420_000, b"{" + b" " * 1000)
    half = [started(port, 420_000, b"{" + b" " * size) for size in (400_000, 350_000, 300_000)]
    assert b" 429 " in half[0].recv(1000)
    for connection, size in ((half[1], 350_000), (half[2], 300_000), (small, 1000)):
        connection.sendall(b" " * (420_000 - size - 2) + b"}")
        assert b" 200 " in connection.recv(1000)
    assert post(gate, b'{"x": 1}').status_code == 200
    for connection in (*half, small):
        connection.close()
