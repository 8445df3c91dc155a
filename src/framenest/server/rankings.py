"""The rankings of a service and the images of their frames."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from framenest.config import MECConfig
from framenest.errors import FramenestError, IndexMismatch
from framenest.method.ranking import Ranking
from framenest.server.jobs import Job, Jobs, Journal
from framenest.server.library import LibraryVideo
from framenest.server.refusals import Refusal
from framenest.server.video_worker import VideoWorker

CACHE_BYTES = 64 * 2**20
BATCH = 64  # frames decoded at once
WAITING = 1024  # frames that may be waited for

Key = tuple[str, int, int]  # video, short side, frame


class FrameImages:
    """JPEGs by (video, frame, short side). While one batch is decoded, the next one gathers.

    Frames of one video decode faster together: each GOP is decoded once.
    """

    def __init__(self, worker: VideoWorker) -> None:
        self._worker = worker
        self._cache: LRUCache[Key, bytes] = LRUCache(CACHE_BYTES, getsizeof=len)
        self._wanted: dict[Key, asyncio.Future[bytes]] = {}
        self._videos: dict[str, LibraryVideo] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, video: LibraryVideo, frame: int, short: int) -> bytes:
        """The JPEG of a frame of an indexed video. short: pixels of the short side."""
        key = (video.id, short, frame)
        if key in self._cache:
            return self._cache[key]
        if key not in self._wanted:
            if len(self._wanted) >= WAITING:
                raise Refusal(429, "too many pictures are waited for; try again later", 2)
            self._wanted[key] = asyncio.get_running_loop().create_future()
            self._videos[video.id] = video
        future = self._wanted[key]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._decode())
        return await asyncio.shield(future)

    async def _decode(self) -> None:
        while self._wanted:
            video, short, _ = next(iter(self._wanted))
            group = [key for key in self._wanted if key[:2] == (video, short)][:BATCH]
            frames = [frame for _, _, frame in group]
            # An index may have been made from another file of the same content, which may be gone.
            info = (self._videos[video].info or {}) | {"path": str(self._videos[video].path)}
            try:
                found = await asyncio.to_thread(self._worker.call, "pictures", info, frames, short)
                error: Exception = Refusal(404, "this frame cannot be decoded")
            except Exception as failure:
                found, error = {}, failure
            for key in group:
                future = self._wanted.pop(key)
                if key[2] in found:
                    self._cache[key] = found[key[2]]
                    future.set_result(found[key[2]])
                else:
                    future.set_exception(error)
                    future.exception()  # nobody may be waiting any more
        self._videos.clear()


log = logging.getLogger("framenest.server")
LOADED, PREFIXES = 64, 1024  # sizes of the LRU caches


class Rankings:
    """Ranking files of a folder by id, with the request of each."""

    def __init__(self, folder: Path, journal: Journal, jobs: Jobs) -> None:
        self._folder = folder
        self._journal = journal
        self._jobs = jobs
        self._loaded: LRUCache[str, Ranking] = LRUCache(LOADED)
        self._prefixes: LRUCache[tuple[str, int, int], bytes] = LRUCache(PREFIXES)
        self._lock = threading.Lock()  # of both caches

    def ask(self, id_: str, request: dict[str, Any]) -> Job | None:
        """The job that makes a ranking; None where it is there."""
        new = self._journal.write(
            "insert or ignore into rankings values (?, ?, ?, ?)",
            [id_, request["video"], json.dumps(request), time.time()],
        )
        if self._load(id_) is not None:
            return None
        try:
            return self._jobs.submit("rank", id_, request)
        except Refusal:
            if new:
                self._journal.write("delete from rankings where id = ?", [id_])
            raise

    def path(self, id_: str) -> Path:
        """Where the file of a ranking is or will be."""
        return self._folder / f"{id_}.json"

    def has(self, id_: str) -> bool:
        """Whether a ranking is made."""
        with self._lock:
            return id_ in self._loaded or self.path(id_).is_file()

    def get(self, id_: str) -> Ranking:
        """A ranking that is there; refused with the reason where it is not."""
        loaded = self._load(id_)
        if loaded is None:
            self.request(id_)
            job = self._jobs.latest(id_)
            why = "this ranking is being made" if job and job.active else "this ranking was not made"
            told = f": {job.error}" if job and job.error else f"; see /jobs/{job.id}" if job else ""
            raise Refusal(409, why + told)
        return loaded

    def _load(self, id_: str) -> Ranking | None:
        """A ranking that is there; a damaged file, or another's, counts as absent and goes."""
        with self._lock:
            known = self._loaded.get(id_)
        if known is not None or not self.path(id_).is_file():
            return known
        try:
            loaded = Ranking.load(self.path(id_))
            self._check(loaded, id_)
        except FramenestError as error:
            log.warning("%s; it is made again when it is asked for", error)
            with suppress(OSError):
                self.path(id_).unlink()
            return None
        with self._lock:
            self._loaded[id_] = loaded
        return loaded

    def _check(self, loaded: Ranking, id_: str) -> None:
        """Refuse a file whose ranking is not the one that was asked for."""
        asked = self.request(id_)
        row = self._journal.row("select info from videos where id = ?", [asked["video"]])
        known = json.loads(row["info"]) if row and row["info"] else loaded.video.to_json()
        look_for = loaded.look_for.to_json() if loaded.look_for else None
        settings = {"horizon": asked["horizon"]}
        if asked["question"] is None:  # nothing is relevant to none
            settings["relevance_weight"] = 0.0
        config = MECConfig.preset(asked["preset"]).with_settings(settings)
        compared = {
            "video": (loaded.video.fingerprint, known["fingerprint"]),
            "question": (loaded.question, asked["question"]),
            "choices": (list(loaded.options), asked["options"]),
            "descriptions": (look_for, asked.get("look_for")),
            "settings": (loaded.config, config),
            # what is said is named after it
            "scorer": (loaded.scorer.startswith(asked["scored_by"]) or asked["question"] is None, True),
        }
        differ = [name for name, (found, wanted) in compared.items() if found != wanted]
        if differ:
            raise IndexMismatch(f"{self.path(id_)}: another ranking lies there (its {differ[0]} differs)")

    def request(self, id_: str) -> dict[str, Any]:
        """What a ranking was asked with."""
        row = self._journal.row("select request from rankings where id = ?", [id_])
        if row is None:
            raise Refusal(404, "no such ranking")
        request: dict[str, Any] = json.loads(row["request"])
        return request

    def all(self, video: str | None) -> list[dict[str, Any]]:
        """Rankings asked for, newest first, of one video or all."""
        statement = "select * from rankings where coalesce(?, video) = video order by created desc limit 1000"
        return [
            {"id": row["id"], "created": row["created"], "ready": self.has(row["id"])}
            | json.loads(row["request"])
            for row in self._journal.rows(statement, [video])
        ]

    def remove(self, id_: str) -> None:
        """Delete a ranking's file."""
        with self._lock:
            self._loaded.pop(id_, None)
            self._prefixes.clear()
        self.path(id_).unlink(missing_ok=True)

    def tidy(self, id_: str) -> None:
        """Delete a file that a cancelled job wrote after its ranking was removed."""
        with self._journal.lock:
            if self._journal.row("select id from rankings where id = ?", [id_]) is None:
                self.path(id_).unlink(missing_ok=True)

    def asked(self) -> dict[str, int]:
        """How many rankings were asked for, by video."""
        rows = self._journal.rows("select video, count(*) as asked from rankings group by video")
        return {row["video"]: row["asked"] for row in rows}

    def cached_prefix(self, id_: str, k: int, after: int) -> bytes | None:
        """A prefix that was asked for lately."""
        with self._lock:
            return self._prefixes.get((id_, k, after))

    def prefix(self, id_: str, k: int, after: int) -> bytes:
        """PrefixOut of ranks after + 1 … k, in time order, as JSON."""
        if after >= k:
            raise Refusal(422, f"after={after} leaves nothing of k={k}; after must be less than k")
        chosen = self.get(id_).prefix(k)
        assert chosen.ranks is not None
        video = self.request(id_)["video"]
        rows = zip(chosen.frames.tolist(), chosen.seconds.tolist(), chosen.ranks.tolist(), strict=True)
        frames = [
            {"frame": frame, "seconds": seconds, "rank": rank, "image": f"/videos/{video}/frames/{frame}"}
            for frame, seconds, rank in rows
            if rank > after
        ]
        body = {"ranking": id_, "k": k, "after": after, "complete": chosen.complete, "frames": frames}
        made = json.dumps(body, separators=(",", ":")).encode()
        with self._lock:
            self._prefixes[id_, k, after] = made
        return made
