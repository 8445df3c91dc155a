"""RankingServer: ranks on a running `framenest serve` over HTTP, for `rank --server`."""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from framenest.config import FOR_CLIENTS
from framenest.errors import ConfigError, FramenestError, VideoError
from framenest.method.ranking import RANKING_FORMAT, Ranking
from framenest.progress import Bars
from framenest.rank_request import RankRequest
from framenest.records import parse_json, read_result
from framenest.text import is_url, one_line
from framenest.video.source import check_file, is_remote

SERVER_SECONDS = 120.0  # until a request fails; the server may take a while to check a new video
MAX_RESPONSE_BYTES = 2**28
PROGRESS_SECONDS = 0.5  # between progress updates
WAITING_STAGE = "waiting for the server"


class RankingServer:
    """Ranks as `MEC` does, with the server's scorer.

    It uses http.client, not urllib: no proxy is used, and no redirect takes the token elsewhere.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if not is_url(url) or urlsplit(url).query:
            raise ConfigError(f"--server {url}: give a URL such as http://127.0.0.1:8600")
        if token and not (token.isascii() and token.isprintable()):
            raise ConfigError("$FRAMENEST_TOKEN: a token must be printable ASCII")
        self.url = url.rstrip("/")
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers = {"Content-Type": "application/json", **authorization}

    def rank(self, request: RankRequest, bars: Bars) -> Ranking:
        """Rank a file that the server can read too. Ctrl-C cancels the work there."""
        path = str(Path(request.video).absolute())
        registered = self._register(request.video, path)
        settings = request.config.settings()
        body = {name: settings[name] for name in ("horizon", *FOR_CLIENTS)} | {
            "video": registered["video"]["id"],
            "question": request.question,
            "options": request.options,
            "look_for": request.look_for.texts if request.look_for else (),
            "preset": request.preset,
        }
        jobs = [registered["job"]]
        try:
            status = self._call("POST", "/rankings", body)
            jobs.insert(0, status["job"])  # cancelled before the index, which would start it when done
            self._wait(status["job"], bars)
        except KeyboardInterrupt:
            for job in filter(None, jobs):
                with suppress(FramenestError):  # it has ended
                    self._call("DELETE", f"/jobs/{job['id']}")
            raise
        data = self._call("GET", f"/rankings/{status['ranking']}/file")
        data["video"] = {**data["video"], "path": path}  # the server does not reveal its paths
        return read_result(data, self.url, "ranking", RANKING_FORMAT, Ranking.from_json)

    def _register(self, video: str, path: str) -> dict[str, Any]:
        if is_remote(video) or Path(video).is_dir():
            raise VideoError(f"{video}: --server ranks files of this machine only")
        check_file(video)
        try:
            return self._call("POST", "/videos", {"path": path})
        except FramenestError as error:
            if "folder of videos" not in str(error):
                raise
            folder = Path(path).resolve().parent
            raise VideoError(
                f"{video}: {self.url} does not serve this folder; start it with --videos {folder}"
            ) from error

    def _wait(self, job: dict[str, Any] | None, bars: Bars) -> None:
        """Wait for a job, and show its progress or that of the index it waits for."""
        while job and job["state"] in ("queued", "running"):
            current = self._call("GET", f"/jobs/{job['waits_for']}") if job["waits_for"] else job
            if current["stage"] is None:
                bars(WAITING_STAGE, 0, 0)
            else:
                bars.end(WAITING_STAGE)
                bars(current["stage"], current["done"], current["total"])
            job = self._call("GET", f"/jobs/{job['id']}?wait={PROGRESS_SECONDS}")
        if job and job["state"] != "done":
            raise FramenestError(f"{self.url}: {job['error'] or 'the job was cancelled there; ask again'}")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the JSON object of its response."""
        payload, parts = None if body is None else json.dumps(body).encode(), urlsplit(self.url)
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        try:
            with closing(connect(parts.hostname or "", parts.port, timeout=SERVER_SECONDS)) as connection:
                connection.request(method, parts.path + path, payload, self._headers)
                response = connection.getresponse()
                data = parse_json(response.read(MAX_RESPONSE_BYTES))  # a truncated response does not parse
        except (OSError, HTTPException, ValueError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else one_line(error)
            raise FramenestError(f"{self.url}: no response from a Framenest server ({why})") from error
        if not isinstance(data, dict) or response.status >= 300:
            detail = data.get("detail") if isinstance(data, dict) else None
            hint = "; set $FRAMENEST_TOKEN to the server's" if response.status == 401 else ""
            raise FramenestError(f"{self.url}: {one_line(detail or f'status {response.status}')}{hint}")
        return data
