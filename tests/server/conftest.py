"""Videos, scores and servers for the tests of the service."""

from __future__ import annotations

import http.server
import itertools
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("httpx", reason="needs the extra `test`")
pytest.importorskip("fastapi", reason="needs the extra `server`")

from local_http import local_http
from media import numbered_video
from served import Server


@pytest.fixture(scope="session")
def media(tmp_path_factory) -> Path:
    """A folder with videos of 300 and 120 numbered frames, one in a folder below, and a text."""
    folder = tmp_path_factory.mktemp("media")
    numbered_video(folder / "clip.mp4", 300, options={"g": "50", "bf": "3"})
    (folder / "more").mkdir()
    numbered_video(folder / "more" / "short.mp4", 120)
    (folder / "notes.txt").write_text("not a video")
    return folder


@pytest.fixture(scope="session")
def scores(tmp_path_factory) -> str:
    """A scorer that finds frames 150 to 159 relevant, whatever the question."""
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    path.write_text("frame,score\n0,0\n149,0\n150,1\n159,1\n160,0\n299,0\n")
    return f"table:{path}"


@pytest.fixture
def serve(tmp_path, scores):
    """Starts servers; stops those still running at the end."""
    count = itertools.count()
    with ExitStack() as running:

        def start(*options: str, token: str | None = None, **how) -> Server:
            folder = tmp_path / f"server{next(count)}"
            folder.mkdir()
            server = Server(folder, "--scorer", scores, *options, **how).start(token)
            running.callback(server.stop)
            return server

        yield start


@pytest.fixture(scope="module")
def server(tmp_path_factory, media, scores):
    """One server for the tests of a module."""
    one = Server(tmp_path_factory.mktemp("server"), "--scorer", scores, videos=media).start()
    yield one
    one.stop()


class Endpoint:
    """An OpenAI-compatible endpoint that `says` the same to everybody; `asked` holds what it was sent."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.keys: list[str] = []
        self.says = "a canned answer"
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                endpoint.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                endpoint.keys.append(self.headers["Authorization"])
                message = {"role": "assistant", "content": endpoint.says}
                choice = {"index": 0, "finish_reason": "stop", "message": message}
                reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "canned"}
                data = json.dumps(reply | {"choices": [choice]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.handler = Handler
        self.url = ""


@pytest.fixture
def endpoint():
    one = Endpoint()
    with local_http(one.handler) as port:
        one.url = f"http://127.0.0.1:{port}/v1"
        yield one
