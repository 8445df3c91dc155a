"""A server as a user runs it: `framenest serve` in a process of its own, asked over HTTP."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from processes import PATIENCE


@contextmanager
def unanswered_port() -> Iterator[int]:
    """A port on which connections are refused: taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def announced_port(log: Path, process: subprocess.Popen, starts: int = 1) -> int:
    """The port that a server writes into its log when it has chosen one. starts: how often it was started."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = re.findall(r"^Framenest.*? at http://127\.0\.0\.1:(\d+)/", log.read_text(), re.M)
        if len(found) == starts:
            return int(found[-1])
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)
    raise AssertionError(f"the server did not start: {log.read_text()}")


TOLD = 20_000  # characters of its log that are told of a server that is gone


class _Client(httpx.Client):
    """A client of a Server; a request that fails because its process is gone says so."""

    def __init__(self, server: Server, **how) -> None:
        super().__init__(**how)
        self._server = server

    def send(self, request: httpx.Request, **how) -> httpx.Response:
        try:
            return super().send(request, **how)
        except httpx.TransportError:
            with suppress(subprocess.TimeoutExpired):  # its connections end before it does
                self._server.process.wait(1)
            self._server.check_alive()
            raise


class Server:
    """One `framenest serve`; `log` is what it wrote."""

    def __init__(self, folder: Path, *options: str, videos: Path | None = None, env=None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._log = folder / "log.txt"
        command = [sys.executable, "-m", "framenest", "serve", "--port", "0"]
        command += ["--data", str(self.data), "--cache", str(folder / "cache")]
        command += ["--videos", str(videos)] if videos else []
        self._command = [*command, *options]
        here = {
            "PYTHONFAULTHANDLER": "1",
            "FRAMENEST_CACHE": str(folder / "cache"),
            "XDG_CACHE_HOME": str(folder),
        }
        self._env = os.environ | here | (env or {})
        self._starts = 0

    def start(self, token: str | None = None) -> Server:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._env)
        self._starts += 1
        self.port = announced_port(self._log, self.process, self._starts)
        self.url = f"http://127.0.0.1:{self.port}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = _Client(self, base_url=self.url, timeout=PATIENCE, headers=headers)
        self._stopped = False
        assert self.http.get("/health").status_code == 200
        return self

    @property
    def log(self) -> str:
        return self._log.read_text()

    def check_alive(self) -> None:
        """Fail with the exit code and the end of the log if the process is gone and no test stopped it."""
        code = self.process.poll()
        if code is not None and not self._stopped:
            pytest.fail(f"the server is gone: exit code {code}; the end of its log:\n{self.log[-TOLD:]}")

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.http.close()
        self.check_alive()
        self._stopped = True
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def register(self, path: str) -> dict:
        answer = self.http.post("/videos", json={"path": path})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def wait(self, job: dict | None, state: str = "done") -> dict | None:
        """The job when it is over."""
        if job is None:
            return None
        until = time.monotonic() + PATIENCE
        while job["state"] in ("queued", "running") and time.monotonic() < until:
            job = self.http.get(f"/jobs/{job['id']}", params={"wait": 5}).json()
        assert job["state"] == state, job
        return job

    def at_work(self, job: dict | None = None) -> None:
        """Wait until a job, by default the newest, is in the middle of its work."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            listed = [self.http.get(f"/jobs/{job['id']}").json()] if job else self.http.get("/jobs").json()
            if listed and listed[0]["state"] == "running" and listed[0]["stage"]:
                return
            assert job is None or listed[0]["state"] in ("queued", "running"), listed
            time.sleep(0.01)
        raise AssertionError("the job did not begin")

    def indexed(self, path: str) -> str:
        """The id of a video of the folder, once it is indexed."""
        made = self.register(path)
        self.wait(made["job"])
        return made["video"]["id"]

    def ask(self, video: str, question: str | None = "Where is it?", **settings) -> str:
        """The id of a ranking, once it is there."""
        answer = self.http.post("/rankings", json={"video": video, "question": question, **settings})
        assert answer.status_code in (200, 202), answer.text
        self.wait(answer.json()["job"])
        return answer.json()["ranking"]

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.http.get("/metrics").text, re.M)
        return float(found.group(1)) if found else 0.0
