"""Videos, scores and servers for the tests of the service."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("httpx", reason="needs the extra `test`")
pytest.importorskip("fastapi", reason="needs the extra `server`")

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
    path.write_text("frame,score\n" + "".join(f"{n},1.0\n" for n in range(150, 160)))
    return f"table:{path}"


@pytest.fixture
def serve(tmp_path, scores):
    """Starts servers; stops those still running at the end."""
    started = []

    def start(*options: str, token: str | None = None, **how) -> Server:
        folder = tmp_path / f"server{len(started)}"
        folder.mkdir()
        server = Server(folder, "--scorer", scores, *options, **how)
        started.append(server)
        return server.start(token)

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory, media, scores):
    """One server for the tests of a module."""
    one = Server(tmp_path_factory.mktemp("server"), "--scorer", scores, videos=media).start()
    yield one
    one.stop()
