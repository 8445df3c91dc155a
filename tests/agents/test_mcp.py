"""`framenest mcp` as agents meet it: the SDK's own client over stdio and over HTTP."""

import asyncio
import base64
import http.server
import io
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("mcp", reason="needs the extra `mcp`")

import httpx
import uvicorn
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver.exceptions import ToolError

from colour_scorer import coloured_video, install_colour_scorer
from framenest import Ranking
from framenest.processes import Cancelled
from framenest.protocols import MatchStrength
from framenest.server import agents
from framenest.server.agents import VideoTools, http_app, mcp_server, short_side
from framenest.server.server_settings import ServerSettings
from framenest.server.service import Service
from local_http import local_http
from media import number_in, numbered_video
from processes import PATIENCE
from served import announced_port

TRANSPORTS = ("stdio", "http")
SUBTITLES = (
    "1\n00:00:02,000 --> 00:00:04,000\nNow we fire the kiln.\n\n2\n00:00:08,000 --> 00:00:09,000\nBye.\n"
)


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    """clip.mp4 of 300 numbered frames at 25 fps with subtitles beside it, and a file that is no video."""
    folder = tmp_path_factory.mktemp("media")
    numbered_video(folder / "clip.mp4", 300, options={"g": "50", "bf": "3"})
    numbered_video(folder / "large.mp4", 300, 480, 320)
    (folder / "clip.srt").write_text(SUBTITLES)
    (folder / "broken.mp4").write_bytes(b"\0" * 4096)
    return folder


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    return numbered_video(tmp_path_factory.mktemp("secret") / "secret.mp4", 30)


@pytest.fixture(scope="module")
def command(media, tmp_path_factory, tags_weights):
    scores = tmp_path_factory.mktemp("scores") / "scores.csv"
    scores.write_text("frame,score\n0,0\n149,0\n150,1\n159,1\n160,0\n299,0\n")
    cache = tmp_path_factory.mktemp("cache")
    (cache / "models").symlink_to(tags_weights, target_is_directory=True)  # reads sentences
    return ["-m", "framenest", "mcp", str(media), "--scorer", f"table:{scores}", "--cache", str(cache)]


@pytest.fixture(scope="module")
def address(command, tmp_path_factory):
    """A server over HTTP."""
    log = tmp_path_factory.mktemp("mcp") / "log.txt"
    with log.open("wb") as errors:
        server = subprocess.Popen([sys.executable, *command, "--http", "--port", "0"], stderr=errors)
    with server:
        yield f"http://127.0.0.1:{announced_port(log, server)}/mcp"
        server.terminate()


def connect(transport, command, address):
    if transport == "http":
        return Client(streamable_http_client(address))
    return Client(
        stdio_client(StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ)))
    )


@pytest.fixture
def service(media, command, tmp_path):
    """Started, with a cache of its own, to see what becomes of its jobs."""
    made = Service(ServerSettings(tmp_path, (media,), str(tmp_path / "cache"), scorer=command[5]))
    made.start()
    yield made
    made.close()


@contextmanager
def over_http(service):
    """The address of a server in this process."""
    port = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(http_app(service), log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [port]})
    thread.start()
    try:
        until = time.monotonic() + PATIENCE
        while not server.started and time.monotonic() < until:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(params=TRANSPORTS)
def ask(request, command):
    """ask(scenario): run it with a connected client."""
    address = request.getfixturevalue("address") if request.param == "http" else None

    def run(scenario):
        async def inside():
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    async with connect(request.param, command, address) as client:
                        return await scenario(client)
                except (ConnectionError, OSError, ExceptionGroup) as error:
                    if "connect" not in repr(error).lower() or time.monotonic() > until:
                        raise
                    await asyncio.sleep(0.2)  # still starting

        return asyncio.run(inside())

    return run


def text(result):
    return "\n".join(part.text for part in result.content if part.type == "text")


def pictures(result):
    found = [part for part in result.content if part.type == "image"]
    return [Image.open(io.BytesIO(base64.b64decode(part.data))).convert("RGB") for part in found]


def test_the_tools_and_what_they_take(ask):
    tools = {tool.name: tool for tool in ask(lambda client: client.list_tools()).tools}
    assert list(tools) == ["what_is", "find", "look", "more", "frames_at", "said"]
    assert tools["look"].input_schema["required"] == ["video", "question"]
    assert set(tools["look"].input_schema["properties"]) == {
        "video",
        "question",
        "k",
        "look_for",
        "start",
        "end",
        "max_tokens",
        "image_first",
    }
    assert [name for name, tool in tools.items() if tool.output_schema] == ["what_is", "said"]
    assert all(tool.description and tool.annotations.read_only_hint for tool in tools.values())


def test_look_then_more_gives_only_the_new_frames(ask):
    async def scenario(client):
        first = await client.call_tool("look", {"video": "clip.mp4", "question": "What is fired?", "k": 4})
        look_id = re.search(r"look_id: (\S+)", text(first))[1]
        return first, await client.call_tool("more", {"look_id": look_id, "k": 7})

    first, more = ask(scenario)
    assert not first.is_error, text(first)
    assert "match with" not in text(first)  # a table of scores cannot tell
    times = [
        re.findall(r"^([\d.]+) s, rank (\d+), (?:evidence|context): .+$", text(result), re.M)
        for result in (first, more)
    ]
    assert sorted(int(rank) for _, rank in times[0]) == [1, 2, 3, 4]
    assert sorted(int(rank) for _, rank in times[1]) == [5, 6, 7]
    for told, result in zip(times, (first, more), strict=True):
        shown = [number_in(np.asarray(picture)) for picture in pictures(result)]
        assert [f"{number / 25:.1f}" for number in shown] == [time for time, _ in told]
    best = next(float(time) for time, rank in times[0] if rank == "1")
    assert 6.0 <= best <= 6.4


def test_what_was_seen_in_a_frame_is_its_reason(service, monkeypatch):
    monkeypatch.setattr(Ranking, "roles", ("evidence", "context", *["context"] * 254))
    monkeypatch.setattr(Ranking, "reasons", ("coffee mug 0.81", "the end", *[""] * 254))
    look = {"video": "clip.mp4", "question": "What is fired?", "k": 2}
    told = text(asyncio.run(mcp_server(service).call_tool("look", look)))
    assert "s, rank 1, evidence: coffee mug 0.81\n" in f"{told}\n"
    assert "s, rank 2, context: the end" in told
    assert "1 of 2 frames matches the question, 1 adds context" in told


def test_why_there_is_no_transcript_is_said(service, monkeypatch):
    monkeypatch.setattr(Ranking, "notes", ("no transcript of the sound: no server answers",))
    look = {"video": "clip.mp4", "question": "What is fired?", "k": 2}
    head = text(asyncio.run(mcp_server(service).call_tool("look", look))).splitlines()[0]
    assert "; no transcript of the sound: no server answers; " in head


def test_a_guess_says_so_and_what_helps(service, monkeypatch):
    get = service.rankings.get

    def unknown(id_):
        ranking = get(id_)
        object.__setattr__(ranking.stats, "match", MatchStrength(0.3, "cannot tell", (), ("fired",)))
        object.__setattr__(ranking.pool, "scorer", "tags 2")
        return ranking

    monkeypatch.setattr(service.rankings, "get", unknown)
    look = {"video": "clip.mp4", "question": "What is fired?", "k": 2}
    head = text(asyncio.run(mcp_server(service).call_tool("look", look))).splitlines()[0]
    assert "match with the question: cannot tell; does not know: fired; " in head
    assert "; the scorer knows no word" in head
    assert "framenest models fetch" in head


def test_look_at_as_many_as_fit(ask):
    """480 × 320 is 204.8 tokens, and less than 256² pixels cost as much, 87.4: 4 × 204.8 + 2 × 87.4 = 994."""

    async def scenario(client):
        wanted = {"video": "large.mp4", "question": "What is fired?", "k": None, "max_tokens": 1000}
        return await client.call_tool("look", wanted)

    result = ask(scenario)
    assert not result.is_error, text(result)
    ranks = [int(rank) for rank in re.findall(r", rank (\d+), ", text(result))]
    assert sorted(ranks) == [1, 2, 3, 4, 5, 6]
    assert [image.size for image in pictures(result)] == [
        (480, 320) if rank <= 4 else (314, 209) for rank in ranks
    ]
    assert re.search(r"look_id: \S+-6", text(result))


def test_many_frames_of_a_small_video_are_not_tiny(ask):
    wanted = {"video": "clip.mp4", "question": "What is fired?", "k": None, "max_tokens": 2000}
    sizes = [image.size for image in pictures(ask(lambda client: client.call_tool("look", wanted)))]
    assert sizes == [(96, 64)] * 22


def test_look_at_a_part(ask):
    part = {"video": "clip.mp4", "question": "What is fired?", "k": 4, "start": "0:02", "end": 4.5}
    result = ask(lambda client: client.call_tool("look", part))
    assert text(result).startswith("clip.mp4, 0:02.0 to 0:04.5 of 0:12.0: 4 frames in time order")
    assert all(50 <= number_in(np.asarray(picture)) <= 112 for picture in pictures(result))


def test_what_a_video_is_and_which_there_are(ask):
    async def scenario(client):
        return await client.call_tool("what_is", {}), await client.call_tool("what_is", {"video": "clip.mp4"})

    every, one = map(text, ask(scenario))
    assert every.splitlines() == ["broken.mp4", "clip.mp4", "large.mp4"]
    assert "0:12.0 (12.0 s), 300 frames" in one
    assert "video h264" in one
    assert "transcript: clip.srt" in one


def test_links_that_lead_outside_are_told(service, media, secret):
    link = media / "away.mp4"
    link.symlink_to(secret)
    try:
        found = asyncio.run(mcp_server(service).call_tool("what_is", {}))
    finally:
        link.unlink()
    assert text(found).splitlines()[-2:] == [
        "large.mp4",
        "links that lead outside and cannot be read: away.mp4",
    ]


def test_frames_at_times(ask):
    times = {"video": "clip.mp4", "times": [1.0, "0:08", 0]}
    result = ask(lambda client: client.call_tool("frames_at", times))
    assert [number_in(np.asarray(picture)) for picture in pictures(result)] == [0, 25, 200]
    assert text(result).splitlines() == ["0.0 s (frame 0)", "1.0 s (frame 25)", "8.0 s (frame 200)"]


def test_pictures_keep_to_the_budget(ask):
    async def scenario(client):
        wanted = {"video": "large.mp4", "times": [0, 5]}
        small = await client.call_tool("frames_at", wanted | {"max_tokens": 64})
        return small, await client.call_tool(
            "frames_at", wanted | {"times": list(range(12)), "max_tokens": 64}
        )

    small, refused = ask(scenario)
    sizes = [picture.size for picture in pictures(small)]
    assert sum(width * height for width, height in sizes) <= 64 * 750
    assert sizes == [(189, 126)] * 2
    assert refused.is_error
    assert "12 frames need max_tokens of" in text(refused)


def test_only_tools_are_offered(ask):
    async def scenario(client):
        return client.server_capabilities

    offered = ask(scenario)
    assert offered.tools is not None
    assert (offered.resources, offered.prompts) == (None, None)


def test_texts_are_structured_and_images_are_not(ask, media):
    """Agents that find structured output show their model nothing else."""

    async def scenario(client):
        one = {"video": "FILE:" + str(media / "clip.mp4")}
        return await client.call_tool("what_is", one), await client.call_tool(
            "frames_at", one | {"times": [8]}
        )

    known, shown = ask(scenario)
    assert known.structured_content == {"result": text(known)}
    assert "300 frames" in text(known)
    assert shown.structured_content is None
    assert number_in(np.asarray(pictures(shown)[0])) == 200


def test_images_come_first_if_asked_for(ask):
    async def scenario(client):
        first = {"video": "clip.mp4", "image_first": True}
        return await client.call_tool("frames_at", first | {"times": [8, 1]}), await client.call_tool(
            "look", first | {"question": "What is fired?", "k": 2}
        )

    at, looked = ask(scenario)
    assert [part.type for part in at.content] == ["image", "image", "text", "text"]
    assert [number_in(np.asarray(picture)) for picture in pictures(at)] == [25, 200]
    assert [part.type for part in looked.content] == ["image", "image", "text", "text", "text"]


def test_bad_requests_are_told_in_a_line(ask, secret, media):
    calls = {
        "outside": ("look", {"video": str(secret), "question": "?"}),
        "no such video": ("look", {"video": "a/Clips.mp4", "question": "?"}),
        "not a video": ("look", {"video": "broken.mp4", "question": "?"}),
        "runs from 0 to": ("frames_at", {"video": "clip.mp4", "times": [99]}),
        "frames_at: times.0: give seconds": ("frames_at", {"video": "clip.mp4", "times": ["soon"]}),
        "end = 3.0 is not": ("look", {"video": "clip.mp4", "question": "?", "start": 4, "end": 3}),
        "look: question: Field required": ("look", {"video": "clip.mp4"}),
        "no look_id": ("more", {"look_id": "x"}),
        "no look_id;": ("more", {"look_id": f"a-{'9' * 5000}"}),
        "no such ranking": ("more", {"look_id": "nothing-4"}),
        "look: there is no argument 'budget'; use 'k'": (
            "look",
            {"video": "clip.mp4", "question": "?", "budget": 4},
        ),
        "find: there is no argument 'question'; use 'query'": ("find", {"question": "?"}),
        "find: there is no argument 'max_results'; use 'n'": ("find", {"query": "?", "max_results": 3}),
        "there is no argument 'colour'; use video, times, max_tokens, image_first": (
            "frames_at",
            {"video": "clip.mp4", "times": [1], "colour": "red"},
        ),
        "outside the folder": ("look", {"video": secret.as_uri(), "question": "?"}),
        "look: question: String should have at most 4000 characters": (
            "look",
            {"video": "clip.mp4", "question": "x" * 4001},
        ),
        "look: look_for.0: String should have at least 1": (
            "look",
            {"video": "clip.mp4", "question": "?", "look_for": [" "]},
        ),
        "said: question: String should have at most 4000": ("said", {"video": "a", "question": "x" * 4001}),
        "less than or equal to 256": ("look", {"video": "clip.mp4", "question": "?", "k": 1000}),
    }

    async def scenario(client):
        return {told: await client.call_tool(*call) for told, call in calls.items()}

    for told, result in ask(scenario).items():
        assert result.is_error, told
        assert told in text(result)
        assert "\n" not in text(result)
        assert "--videos" not in text(result)
        assert str(media) not in text(result)


def test_a_made_up_look_id_reaches_no_file(service, tmp_path):
    file = tmp_path / "notes.json"  # beside the folder of rankings
    file.write_text("{}")

    async def scenario():
        async with Client(mcp_server(service), mode="legacy") as client:
            return await client.call_tool("more", {"look_id": "../notes-4"})

    assert "no such ranking" in text(asyncio.run(scenario()))
    assert file.exists()


def test_a_page_of_an_allowed_host_is_a_video(service, media):
    pytest.importorskip("yt_dlp", reason="needs the extra `web`")
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            page = self.path == "/watch"
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if page else "video/mp4")
            self.end_headers()
            video = b"<title>x</title><video src='/clip.mp4'></video>"
            self.wfile.write(video if page else (media / "clip.mp4").read_bytes())

    with local_http(Handler) as port:
        times = {"video": f"http://127.0.0.1:{port}/watch", "times": [8]}

        async def scenario():
            async with Client(mcp_server(service), mode="legacy") as client:
                return await client.call_tool("frames_at", times)

        assert "only from hosts that it was told to allow" in text(asyncio.run(scenario()))
        assert asked == []
        service.library._hosts.add(f"127.0.0.1:{port}")
        for _ in range(2):
            shown = asyncio.run(scenario())
            assert [number_in(np.asarray(picture)) for picture in pictures(shown)] == [200]
    assert asked.count("/clip.mp4") == 1


def test_a_page_that_stands_still_keeps_no_other_waiting(service, media):
    pytest.importorskip("yt_dlp", reason="needs the extra `web`")
    reached, go_on = threading.Event(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            page = self.path.endswith("/watch")
            if self.path == "/slow.mp4":
                reached.set()
                go_on.wait(PATIENCE)
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if page else "video/mp4")
            self.end_headers()
            video = f"<title>x</title><video src='/{self.path.split('/')[1]}.mp4'></video>".encode()
            self.wfile.write(video if page else (media / "clip.mp4").read_bytes())

    with local_http(Handler) as port:
        service.library._hosts.add(f"127.0.0.1:{port}")
        address = f"http://127.0.0.1:{port}"
        slow = threading.Thread(target=service.library.fetch, args=[f"{address}/slow/watch"])
        slow.start()
        assert reached.wait(PATIENCE)
        assert service.library.fetch(f"{address}/quick/watch").origin == "url"
        assert slow.is_alive()
        go_on.set()
        slow.join(PATIENCE)


def test_who_cancels_leaves_the_others_their_download(service, media):
    asked, reached, go_on = [], threading.Event(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            reached.set()
            go_on.wait(PATIENCE)
            self.send_response(200)
            self.end_headers()
            self.wfile.write((media / "clip.mp4").read_bytes())

    async def scenario(tools, times):
        first, second = (asyncio.create_task(tools.call_tool("frames_at", times)) for _ in range(2))
        assert await asyncio.to_thread(reached.wait, PATIENCE)
        first.cancel()
        await asyncio.wait([first])
        go_on.set()
        return first.cancelled(), await second

    with local_http(Handler) as port:
        service.library._hosts.add(f"127.0.0.1:{port}")
        times = {"video": f"http://127.0.0.1:{port}/clip.mp4", "times": [8]}
        cancelled, shown = asyncio.run(scenario(mcp_server(service), times))
    assert cancelled
    assert len(shown.content) == 2
    assert asked == ["/clip.mp4"]


@pytest.mark.parametrize("transport", ["json-rpc", "http"])
def test_progress_is_told_and_a_cancelled_look_ends_its_job(service, transport):
    async def scenario(client):
        told = asyncio.Event()
        steps = []

        async def progress(step, total, message):
            steps.append((step, total, message))
            told.set()

        look = {"video": "clip.mp4", "question": "What is fired?"}
        waiting = asyncio.create_task(client.call_tool("look", look, progress_callback=progress))
        await asyncio.wait_for(told.wait(), PATIENCE)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        until = time.monotonic() + PATIENCE
        while service.jobs.recent(1)[0].active and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return steps, service.jobs.recent(1)[0].state

    async def connected():
        with ExitStack() as stack:
            where = (
                mcp_server(service) if transport == "json-rpc" else stack.enter_context(over_http(service))
            )
            mode = {"mode": "legacy"} if transport == "json-rpc" else {}
            async with Client(where, **mode) as client:
                return await scenario(client)

    service.workers[0].call = held_in_the_middle(service.workers[0].call)
    steps, state = asyncio.run(connected())
    assert steps[0] == (1, 2, "probes: 1 of 2")
    assert state == "cancelled"


def test_progress_goes_on_from_stage_to_stage(service):
    """Of a total that grows with each stage, since clients expect progress never to go back."""
    stages = iter([(None, 0, 0), ("probes", 1, 3), ("probes", 3, 3), ("zoom", 0, 2), ("zoom", 2, 2)])
    steps = []

    class Work:
        id, state = "one", "done"

        @property
        def active(self):
            """Whether there is a next step, at which it then is."""
            self.stage, self.done, self.total = next(stages, ("over", 0, 0))
            return self.stage != "over"

    class Client:
        async def report_progress(self, *told):
            steps.append(told)

    asyncio.run(VideoTools(service)._finished(Work(), Client(), {}, math.inf))
    assert steps == [(1, 3, "probes: 1 of 3"), (3, 3, "probes: 3 of 3"), (5, 5, "zoom: 2 of 2")]


def test_who_cancels_leaves_the_others_their_answer(service):
    """And who is the last one to leave ends the job."""
    held = threading.Event()
    call = service.workers[0].call

    def waits(*given, progress, cancelled):
        progress("probes", 1, 2)
        held.wait(PATIENCE)
        return call(*given, progress=progress, cancelled=cancelled)

    async def scenario():
        async with Client(mcp_server(service), mode="legacy") as client:
            began = asyncio.Event()

            async def progress(*_):
                began.set()

            look = {"video": "clip.mp4", "question": "What is fired?", "k": 2}
            first = asyncio.create_task(client.call_tool("look", look, progress_callback=progress))
            await asyncio.wait_for(began.wait(), PATIENCE)
            began.clear()
            second = asyncio.create_task(client.call_tool("look", look, progress_callback=progress))
            await asyncio.wait_for(began.wait(), PATIENCE)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            job = service.jobs.recent(1)[0]
            until = time.monotonic() + PATIENCE
            while job.wanted > 1 and time.monotonic() < until:
                await asyncio.sleep(0.05)
            assert (job.wanted, job.active) == (1, True)
            held.set()
            return await second

    service.workers[0].call = waits
    answer = asyncio.run(scenario())
    assert len(pictures(answer)) == 2, text(answer)


def test_a_long_look_says_that_it_goes_on(service, monkeypatch):
    monkeypatch.setattr("framenest.server.agents.REPLY_SECONDS", 0.0)
    tools, call = mcp_server(service), service.workers[0].call
    ended = threading.Event()

    def waits(*given, progress, cancelled):
        progress("probes", 1, 2)
        ended.wait(PATIENCE)
        return call(*given, progress=progress, cancelled=cancelled)

    service.workers[0].call = waits
    look = {"video": "clip.mp4", "question": "What is fired?"}
    told = text(asyncio.run(tools.call_tool("look", look)))
    assert re.fullmatch(r"clip.mp4: still indexing(| \(probes: 1 of 2\)); it goes on, ask again", told)
    job = service.jobs.recent(1)[0]
    ended.set()
    job.over.result(PATIENCE)
    assert len(pictures(asyncio.run(tools.call_tool("look", look)))) == 8


@pytest.mark.parametrize(("tool", "given"), [
    ("what_is", {}), ("frames_at", {"times": [1]}), ("said", {"question": "?"}),
])  # fmt: skip
def test_no_reply_takes_longer_than_clients_wait(service, monkeypatch, tool, given):
    monkeypatch.setattr(agents, "CALL_SECONDS", 0.1)
    go_on = threading.Event()
    service.picture_worker.call = lambda *_: go_on.wait(PATIENCE)
    with pytest.raises(ToolError, match=f"{tool}: this takes longer .* ask again"):
        asyncio.run(call_and_go_on(mcp_server(service), tool, {"video": "clip.mp4"} | given, go_on))


async def call_and_go_on(server, tool, given, go_on):
    """What a tool replies; then threads that wait may go on."""
    try:
        return await server.call_tool(tool, given)
    finally:
        go_on.set()


@pytest.mark.parametrize(("transport", "how"), [
    ("stdio", signal.SIGINT), ("stdio", signal.SIGTERM), ("stdio", signal.SIGHUP), ("stdio", signal.SIGKILL),
    ("http", signal.SIGINT), ("http", signal.SIGTERM), ("http", signal.SIGHUP), ("stdio", None),
])  # fmt: skip
def test_nothing_is_left_when_it_ends(command, tmp_path, transport, how):
    """Its folder has the questions. A killed one leaves it to the next one."""
    others = tmp_path / f"framenest-mcp-{os.getpid()}-other"  # of a process that is alive
    others.mkdir()
    options = ["--http", "--port", "0"] if transport == "http" else []

    def started():
        server = subprocess.Popen(
            [sys.executable, *command, *options], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(tmp_path)},
        )  # fmt: skip
        until = time.monotonic() + PATIENCE
        while not [*tmp_path.glob(f"framenest-mcp-{server.pid}-*/journal.sqlite")]:
            assert server.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        return server

    with started() as server:
        if how is not None:
            server.send_signal(how)
            server.wait(PATIENCE)
    if how == signal.SIGKILL:
        assert len([*tmp_path.iterdir()]) == 2
        with started():
            pass
    assert [*tmp_path.iterdir()] == [others]


def held_in_the_middle(call):
    """A worker's call that tells progress, then does nothing until it is cancelled."""

    def held(*_, progress, cancelled):
        progress("probes", 1, 2)
        until = time.monotonic() + PATIENCE
        while not cancelled() and time.monotonic() < until:
            time.sleep(0.01)
        raise Cancelled

    return held


def test_what_is_said(ask):
    result = ask(
        lambda client: client.call_tool("said", {"video": "clip.mp4", "question": "When is it fired?"})
    )
    assert text(result).splitlines()[0] == "2.0 to 4.0 s: Now we fire the kiln."
    silent = ask(
        lambda client: client.call_tool("said", {"video": "large.mp4", "question": "When is it fired?"})
    )
    assert "has no transcript" in text(silent)


def test_the_size_of_pictures_within_a_budget():
    assert short_side({"width": 1920, "height": 1080}, 8, 8000) == 649
    assert short_side({"width": 320, "height": 240}, 8, 8000) == 240  # nothing is enlarged


def test_abandoned_sessions_make_room(service, monkeypatch):
    """Those that were idle for long end; one that is connected stays."""
    monkeypatch.setattr(agents, "MAX_SESSIONS", 4)
    monkeypatch.setattr(agents, "SESSION_SECONDS", 0.5)
    start = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}
        },
    }  # fmt: skip

    async def scenario(address):
        accepted = {"accept": "application/json, text/event-stream"}
        async with Client(streamable_http_client(address)) as stays:
            await stays.list_tools()
            async with httpx.AsyncClient(headers=accepted, timeout=PATIENCE) as others:
                answers = [await others.post(address, json=start)]
                until = time.monotonic() + PATIENCE
                while answers.count(200) < 20 and time.monotonic() < until:
                    answers.append((await others.post(address, json=start)).status_code)
                first = answers[0].headers["mcp-session-id"]
                gone = await others.post(address, json={}, headers={"mcp-session-id": first})
            return answers[1:], gone.status_code, await stays.list_tools()

    with over_http(service) as address:
        statuses, gone, tools = asyncio.run(scenario(address))
    assert (statuses.count(200), {*statuses}, gone) == (20, {200, 503}, 404)
    assert len(tools.tools) == 6


@pytest.fixture
def coloured(tmp_path):
    """How to start a server for a folder of videos that a scorer without a model can search."""
    folder = tmp_path / "colours"
    folder.mkdir()
    coloured_video(folder / "sunset.mp4", ("grey", 4), ("red", 3), ("grey", 3), size=(480, 320))
    coloured_video(folder / "meadow.mp4", ("grey", 6), ("green", 2))
    (folder / "letter.mp4").write_text("Dear server,")
    command = ["-m", "framenest", "mcp", str(folder), "--scorer", "colour"]
    env = dict(os.environ) | install_colour_scorer(tmp_path / "site")
    return StdioServerParameters(command=sys.executable, args=command, env=env)


def test_find_needs_no_video(coloured):
    steps = []

    async def progress(step, total, message):
        steps.append(step)

    async def scenario():
        async with Client(stdio_client(coloured)) as client:
            one = {"query": "something red", "n": 1}
            first = await client.call_tool("find", one, progress_callback=progress)
            several = await client.call_tool("find", {"query": "something green", "n": 3, "max_tokens": 300})
            wrong = await client.call_tool("find", {"query": "?!"})
            return first, several, wrong

    first, several, wrong = asyncio.run(scenario())
    head, refused, found = text(first).splitlines()
    assert head == "moments, best first: 1; videos searched: 2; left out: 1"
    assert re.fullmatch("letter.mp4: not accepted: .*not a video.*", refused)
    times = re.fullmatch(r"sunset.mp4, ([\d.]+) to ([\d.]+) s, best at ([\d.]+) s: seen: red 0.\d+", found)
    start, end, best = map(float, times.groups())
    assert 3.5 <= start <= 4 <= best < 7 <= end <= 7.5
    red, green, blue = np.asarray(pictures(first)[0]).mean(axis=(0, 1))
    assert red > 200 > 60 > max(green, blue)
    assert steps == sorted(set(steps))  # over several jobs, it never goes back
    assert text(several).splitlines()[2].startswith("meadow.mp4, ")
    assert sum(width * height for width, height in (p.size for p in pictures(several))) <= 300 * 750
    assert wrong.is_error
    assert text(wrong) == "find: the query '?!' has no words; say what to look for"


def test_find_says_what_it_had_no_time_to_index(service, monkeypatch):
    monkeypatch.setattr("framenest.server.agents.INDEX_SECONDS", 0.0)
    tools = mcp_server(service)
    with pytest.raises(ToolError, match="no video is indexed yet"):
        asyncio.run(tools.call_tool("find", {"query": "red"}))
    look = {"video": "clip.mp4", "question": "What is fired?"}
    asyncio.run(tools.call_tool("look", look))
    service.workers[0].call = lambda *_, **__: {}
    told = text(asyncio.run(tools.call_tool("find", {"query": "red"})))
    assert told.splitlines() == [
        "moments, best first: 0; videos searched: 1; left out: 2; nothing clearly matches",
        "broken.mp4: not indexed yet",
        "large.mp4: not indexed yet",
    ]
