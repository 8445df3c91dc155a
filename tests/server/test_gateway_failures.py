"""The gateway where something goes wrong: upstreams that fail, clients that leave, many at once."""

import asyncio
import base64
import json
import random
import re
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import httpx
import pytest

from framenest.server import gateway
from framenest.server.server_settings import ServerSettings
from media import numbered_video
from processes import PATIENCE
from served import unanswered_port
from upstream import local_gateway, upstream_server

openai = pytest.importorskip("openai", reason="needs the extra `ask`")

CLIENTS, CUT = 50, 200


@pytest.fixture
def behind():
    with upstream_server() as upstream:
        yield upstream


@pytest.fixture
def settings(tmp_path, media, scores, behind):
    return ServerSettings(
        data=tmp_path / "data", cache=str(tmp_path / "cache"), videos=(media,), scorer=scores, port=0,
        upstream=behind.url, budget=(4,), queue=256,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def no_comments(monkeypatch):
    """Streams do not begin before their frames are chosen, however slow that is."""
    monkeypatch.setattr(gateway, "COMMENT_SECONDS", PATIENCE)


@pytest.fixture
def gate(settings):
    with local_gateway(settings) as one:
        yield one


def body(media, text="Where is it?", **fields):
    video = {"type": "video_url", "video_url": {"url": (media / "clip.mp4").as_uri()}}
    return {
        "model": "m",
        "messages": [{"role": "user", "content": [video, {"type": "text", "text": text}]}],
        **fields,
    }


def as_data(file):
    return "data:video/mp4;base64," + base64.b64encode(file.read_bytes()).decode()


def post(gate, sent):
    return httpx.post(f"{gate.url}/chat/completions", json=sent, timeout=PATIENCE)


def nothing_is_left(gate, behind):
    """No job, no request upstream, no task; connections of the pool are idle."""
    behind.wait_until(open_requests=0)
    assert gate.service.jobs.counts() == {"queued": 0, "running": 0}

    async def left():
        if (decoding := gate.service.pictures._task) is not None:  # for those who have left, to its end
            await asyncio.wait([decoding])
        for _ in range(10):  # those that end with the last request
            await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return [task for task in others if "run_asgi" in repr(task) or "gateway" in repr(task)]

    assert gate.on_loop(left()) == []
    route = next(route for route in gate.app.router.routes if getattr(route, "path", "").startswith("/v1"))
    pool = route.app.client._transport._pool
    assert pool._requests == []
    assert all(connection.is_idle() or connection.is_closed() for connection in pool.connections)


def test_a_turn_shows_rankings_of_its_own_videos_whatever_is_remembered(gate, behind, media):
    other = body(media, "Another?")
    other["messages"][0]["content"][0]["video_url"]["url"] = (media / "more" / "short.mp4").as_uri()
    for sent in (other, body(media)):
        assert post(gate, sent).status_code == 200
    before = behind.messages[0]
    rankings = {entry["question"]: entry["id"] for entry in gate.service.rankings.all(None)}
    wrong = rankings["Another?"]
    for row in gate.service.journal.execute("select key, value from remembered"):
        changed = row["value"].replace(rankings["Where is it?"], wrong)
        gate.service.journal.execute("update remembered set value = ? where key = ?", [changed, row["key"]])
    further = body(media)
    further["messages"] += [{"role": "assistant", "content": "Here."}, {"role": "user", "content": "And?"}]
    assert post(gate, further).status_code == 200
    assert behind.messages[0] == before


# Upstreams


def test_an_upstream_that_is_down_is_a_502(serve, media):
    with unanswered_port() as port:
        server = serve("--upstream", f"http://127.0.0.1:{port}/v1", videos=media)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
            for sent in (body(media), body(media, stream=True), {"model": "m", "messages": []}):
                with pytest.raises(openai.InternalServerError) as failed:
                    client.chat.completions.create(**sent)
                assert failed.value.status_code == 502
                assert failed.value.body["message"].startswith(f"http://127.0.0.1:{port}/v1: ")
                assert "\n" not in failed.value.body["message"]
        assert "Traceback" not in server.log


def test_an_upstream_that_fails_is_passed_on(gate, behind, media):
    async def reply(exchange):
        await exchange.whole({"error": {"message": "out of memory"}}, 500, x_request_id="7")

    behind.reply = reply
    answer = post(gate, body(media))
    assert (answer.status_code, answer.json()) == (500, {"error": {"message": "out of memory"}})
    assert answer.headers["x-request-id"] == "7"


@pytest.mark.parametrize("stream", [True, False])
def test_an_upstream_that_breaks_off_breaks_the_clients_connection(gate, behind, media, stream):
    async def reply(exchange):
        length = {} if stream else {"content_length": "1000"}
        await exchange.start(kind="text/event-stream" if stream else "application/json", **length)
        await exchange.event({"content": "A ki"})  # and then nothing: uvicorn closes the connection

    behind.reply = reply
    with httpx.stream("POST", f"{gate.url}/chat/completions", json=body(media), timeout=PATIENCE) as answer:
        pieces = answer.iter_raw()
        assert b"A ki" in next(pieces)
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    nothing_is_left(gate, behind)


def test_an_upstream_that_breaks_off_before_an_answer_on_a_ladder_is_a_502(gate, behind, media):
    async def reply(exchange):
        await exchange.start(kind="text/event-stream")
        await exchange.event({"content": "Cannot"})

    behind.reply = reply
    answer = post(gate, body(media, stream=True, framenest={"k": [2, 4]}))
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "server_error"


def test_an_upstream_that_never_answers_is_a_504(settings, behind, media, monkeypatch):
    monkeypatch.setattr(gateway, "ANSWER_SILENT_SECONDS", 0.2)
    behind.reply = lambda exchange: exchange.gone()
    with local_gateway(settings) as gate:
        answer = post(gate, body(media))
        assert answer.status_code == 504
        assert "no answer in time" in answer.json()["error"]["message"]
        nothing_is_left(gate, behind)


@pytest.mark.parametrize("head", [
    "600 Odd\r\ncontent-length: 2", "103 Early\r\n\r\nHTTP/1.1 999 Odd\r\ncontent-length: 2",
    "101 Other\r\nconnection: upgrade\r\nupgrade: x", "204 Nothing\r\ncontent-length: 2",
    "304 Same\r\ncontent-length: 2", "200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked",
    "200 OK\r\ncontent-length: 2\r\ncontent-length: 3", "200 OK\r\ncontent-length: -2", "20 OK", "hello",
])  # fmt: skip
def test_an_odd_answer_of_the_upstream_is_a_502(settings, media, head):
    def answer(port):
        with suppress(OSError):  # the test is over
            while True:
                connection, _ = port.accept()
                with connection:
                    data = b""
                    while b"\r\n\r\n" not in data:
                        data += connection.recv(65_536)
                    left = int(re.search(rb"content-length: (\d+)", data)[1]) - len(
                        data.partition(b"\r\n\r\n")[2]
                    )
                    while left > 0:
                        left -= len(connection.recv(65_536))
                    connection.sendall(f"HTTP/1.1 {head}\r\n\r\n".encode() + b"2\r\n{}\r\n0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as port:
        threading.Thread(target=answer, args=(port,), daemon=True).start()
        upstream = f"http://127.0.0.1:{port.getsockname()[1]}/v1"
        with local_gateway(replace(settings, upstream=upstream)) as gate:
            for sent in (body(media), body(media, framenest={"k": [2, 4]}), {"messages": []}):
                answered = post(gate, sent)
                assert answered.status_code == 502
                assert answered.json()["error"]["message"].startswith(upstream)
        port.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_answer_in_single_bytes_lets_others_through(kind):
    """Also while it may be “cannot tell”, and however much of it has arrived."""
    count, others = 30_000, 0

    class Answer:
        status_code, headers = 200, {"content-type": kind}

        async def aiter_raw(self):
            for _ in range(count):
                yield b" "

    async def scenario():
        nonlocal others

        async def another():
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(another())
        held = await gateway._until_answer(Answer(), gateway._one_by_one(Answer()))
        task.cancel()
        return held

    assert asyncio.run(scenario()) == b" " * count
    assert others >= count // 2


# Clients


def leave(connection):
    """Close a connection without a farewell."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def connected(gate, sent):
    """A connection, and the bytes of a request to send over it."""
    port = httpx.URL(gate.url).port
    packed = json.dumps(sent).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(packed)}\r\n\r\n"
    return socket.create_connection(("127.0.0.1", port), PATIENCE), head.encode(), packed


def test_a_client_that_leaves_ends_the_request_upstream(gate, behind, media):
    seen = threading.Event()

    async def reply(exchange):
        await exchange.start(kind="text/event-stream")
        await exchange.event({"content": "A"})
        await exchange.gone()
        seen.set()

    behind.reply = reply
    connection, head, packed = connected(gate, body(media, stream=True))
    connection.sendall(head + packed)
    assert b"200 OK" in connection.recv(100)
    leave(connection)
    assert seen.wait(PATIENCE)
    gate.wait_for_ended(1)
    nothing_is_left(gate, behind)


@pytest.fixture
def at_work(gate, monkeypatch):
    """Rankings that begin, and then wait for `go_on` or until they are cancelled: (begun, go_on)."""
    begun, go_on = threading.Semaphore(0), threading.Event()
    do = gate.service._do

    def wait(worker, job):
        begun.release()
        while not go_on.wait(0.01) and not job.cancelled.is_set():
            pass
        do(worker, job)

    monkeypatch.setattr(gate.service, "_do", wait)
    return begun, go_on


def test_a_client_that_leaves_ends_its_ranking(gate, behind, media, at_work):
    begun, _ = at_work
    connection, head, packed = connected(gate, body(media))
    connection.sendall(head + packed)
    assert begun.acquire(timeout=PATIENCE)
    (job,) = gate.service.jobs.waiting_or_running()
    leave(connection)
    job.over.result(PATIENCE)
    assert job.state == "cancelled"
    assert behind.requests == []


@pytest.mark.parametrize("other", ["a client", "the page"])
def test_a_ranking_goes_on_while_someone_else_waits_for_it(gate, behind, media, at_work, other):
    begun, go_on = at_work
    connection, head, packed = connected(gate, body(media))
    connection.sendall(head + packed)
    assert begun.acquire(timeout=PATIENCE)
    (job,) = gate.service.jobs.waiting_or_running()
    with ThreadPoolExecutor(1) as pool:
        if other == "a client":
            second = pool.submit(post, gate, body(media))
        else:
            asked = {"video": job.video, "question": "Where is it?"}
            second = pool.submit(httpx.post, f"{gate.url[:-3]}/rankings", json=asked)
        while job.wanted < 2:
            assert not second.done() or second.result().status_code == 202
        leave(connection)
        gate.wait_for_ended(1)
        assert job.active
        go_on.set()
        assert second.result(PATIENCE).status_code in (200, 202)
    job.over.result(PATIENCE)
    assert job.state == "done"


def test_fifty_clients_at_once(gate, behind, media, tmp_path):
    """Some ask the same, most do not; all about a video that is new."""

    async def reply(exchange):
        await exchange.says(exchange.json["messages"][0]["content"][-1]["text"])

    behind.reply = reply
    address = as_data(numbered_video(tmp_path / "new.mp4", 90))

    async def one(client, n):
        sent = body(media, f"Question {n % 40}?")
        sent["messages"][0]["content"][0]["video_url"]["url"] = address
        stream = await client.chat.completions.create(**sent, stream=True)
        return "".join([event.choices[0].delta.content or "" async for event in stream]).strip()

    async def everyone():
        async with openai.AsyncOpenAI(base_url=gate.url, api_key="k", max_retries=0) as client:
            return await asyncio.gather(*(one(client, n) for n in range(CLIENTS)))

    assert asyncio.run(everyone()) == [f"Question {n % 40}?" for n in range(CLIENTS)]
    assert len(list((tmp_path / "data" / "uploads").iterdir())) == 1
    assert len(gate.service.rankings.all(None)) == 40
    gate.wait_for_ended(CLIENTS)
    nothing_is_left(gate, behind)


def test_requests_cut_off_anywhere_leave_nothing_running(gate, behind, media):
    chance = random.Random(0)

    async def reply(exchange):
        with suppress(asyncio.CancelledError):
            await exchange.says("word " * 200)

    behind.reply = reply
    address = as_data(media / "more" / "short.mp4")
    plans = [
        (
            n % 25,
            chance.choice(["body", "at once", "answer", "whole"]),
            chance.random(),
            chance.random() < 0.5,
        )
        for n in range(CUT)
    ]

    def cut(plan):
        question, where, how_far, abrupt = plan
        rungs = {"k": [2, 4]} if question % 5 == 0 else {}
        sent = body(media, f"Question {question}?", stream=True, framenest=rungs)
        if question % 3 == 0:
            sent["messages"][0]["content"][0]["video_url"]["url"] = address
        connection, head, packed = connected(gate, sent)
        with connection:
            connection.sendall(head + packed[: int(how_far * len(packed)) if where == "body" else None])
            wanted = {"answer": int(how_far * 40_000), "whole": 10**9}.get(where, 0)
            while wanted > 0 and (got := connection.recv(4096)):
                wanted -= len(got) if not got.endswith(b"0\r\n\r\n") else wanted
            if abrupt:
                leave(connection)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(cut, plans))
    gate.wait_for_ended(CUT)
    nothing_is_left(gate, behind)
    behind.reply = lambda exchange: exchange.says("well")
    assert post(gate, body(media)).json()["choices"][0]["message"]["content"] == "well"
