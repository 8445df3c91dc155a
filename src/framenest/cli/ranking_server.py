"""RankingServer: a running `framenest serve` on this machine that ranks for the command line, over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from framenest.errors import ConfigError, FramenestError, VideoError
from framenest.method.discovery import LookFor
from framenest.progress import Bars
from framenest.text import one_line
from framenest.video.source import check_file, is_remote

if TYPE_CHECKING:
    from framenest.method.ranking import Ranking

SILENCE = 120.0
"""Seconds until a request counts as lost; the server may take a while to check a new video."""
LOOK = 0.5
"""Seconds between looks at the progress of a job."""
WAITING = "waiting for the server"


class RankingServer:
    """Ranks as `MEC` does, with the scorer that the server has loaded.

    http.client and not urllib: no proxy comes between, and no redirect takes the token elsewhere.

    Args:
        url: where it listens, as http://127.0.0.1:8600.
        token: what it asks clients for, if it does.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._address = parts.hostname or "", parts.port
        except ValueError as error:
            raise ConfigError(f"--server {url}: not an address ({error})") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ConfigError(f"--server {url}: give an address as http://127.0.0.1:8600")
        if token and not (token.isascii() and token.isprintable()):
            raise ConfigError("$FRAMENEST_TOKEN: a token has printable ASCII characters only")
        self.url = url.rstrip("/")
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._below = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def rank(
        self,
        video: str,
        question: str | None,
        *,
        options: Sequence[str],
        look_for: LookFor | None,
        preset: str,
        horizon: int,
        bars: Bars,
    ) -> Ranking:
        """The ranking of a file that the server offers, too; an interrupt cancels the work there."""
        path = str(Path(video).absolute())
        request = {"question": question, "options": list(options), "preset": preset, "horizon": horizon}
        if look_for is not None:
            request |= {"look_for": list(look_for.texts)}
        registered = self._register(video, path)
        jobs = [registered["job"]]
        try:
            asked = self._call("POST", "/rankings", request | {"video": registered["video"]["id"]})
            jobs.insert(0, asked["job"])  # the question before the index, which would let it begin
            # While the server works, what its answer is read with is imported.
            from framenest.method.ranking import RANKING_FORMAT, Ranking
            from framenest.records import read_result

            self._wait(asked["job"], bars)
        except KeyboardInterrupt:
            for job in filter(None, jobs):
                with suppress(FramenestError):  # it is over
                    self._call("DELETE", f"/jobs/{job['id']}")
            raise
        made = self._call("GET", f"/rankings/{asked['ranking']}/file")
        made["video"] = {**made["video"], "path": path}  # the server tells nobody where its files are
        return read_result(made, self.url, "ranking", RANKING_FORMAT, Ranking.from_json)

    def _register(self, video: str, path: str) -> dict[str, Any]:
        if is_remote(video) or Path(video).is_dir():
            raise VideoError(f"{video}: --server ranks files of this machine; leave it out for this one")
        check_file(video)
        try:
            return self._call("POST", "/videos", {"path": path})
        except FramenestError as error:
            if "folder of videos" not in str(error):
                raise
            folder = Path(path).resolve().parent
            raise VideoError(
                f"{video}: {self.url} does not offer this folder; start it with --videos {folder}"
            ) from error

    def _wait(self, job: dict[str, Any] | None, bars: Bars) -> None:
        """Until the job is over; shows its progress, or that of the index it waits for."""
        if job is None:
            return
        while job["state"] in ("queued", "running"):
            shown = self._call("GET", f"/jobs/{job['waits_for']}") if job["waits_for"] else job
            if shown["stage"] is None:
                bars(WAITING, 0, 0)
            else:
                bars.end(WAITING)
                bars(shown["stage"], shown["done"], shown["total"])
            job = self._call("GET", f"/jobs/{job['id']}?wait={LOOK}")
        if job["state"] != "done":
            raise FramenestError(f"{self.url}: {job['error'] or 'the work was cancelled there; ask again'}")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object that a request is answered with; one line where it is refused."""
        sent = None if body is None else json.dumps(body).encode()
        connection = self._connect(*self._address, timeout=SILENCE)
        try:
            connection.request(method, self._below + path, sent, self._headers)
            answer = connection.getresponse()
            data = json.loads(answer.read())
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else one_line(error)
            raise FramenestError(f"{self.url}: no answer from a Framenest server ({why})") from error
        finally:
            connection.close()
        if not isinstance(data, dict) or answer.status >= 300:
            told = data.get("detail") if isinstance(data, dict) else None
            needs = "; set $FRAMENEST_TOKEN to the server's" if answer.status == 401 else ""
            raise FramenestError(f"{self.url}: {one_line(told or f'status {answer.status}')}{needs}")
        return data
