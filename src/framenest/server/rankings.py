"""The rankings of a service and the images of their frames."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from cachetools import LRUCache, cachedmethod

from framenest.errors import FramenestError
from framenest.method.ranking import Ranking
from framenest.rank_request import RankRequest
from framenest.records import convert
from framenest.server.guard import Refusal
from framenest.server.jobs import Job, Jobs, Journal
from framenest.server.library import LibraryVideo
from framenest.server.video_worker import VideoWorker

PICTURE_CACHE_BYTES = 64 * 2**20
BATCH_FRAMES = 64  # decoded at once
MAX_WAITING_FRAMES = 1024
CACHED_RANKINGS, CACHED_PREFIXES = 64, 1024
log = logging.getLogger("framenest.server")

Key = tuple[str, int, int]  # video, short side, frame


class FrameImages:
    """JPEGs by (video, frame, short side), each available as soon as it is decoded.

    While one batch is decoded, the next one gathers. Frames of one video decode faster together: each GOP is
    decoded once.
    """

    def __init__(self, worker: VideoWorker) -> None:
        self._worker = worker
        self._cache: LRUCache[Key, bytes] = LRUCache(PICTURE_CACHE_BYTES, getsizeof=len)
        self._wanted: dict[Key, tuple[LibraryVideo, asyncio.Future[bytes]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, video: LibraryVideo, frame: int, short: int) -> bytes:
        """The JPEG of a frame of an indexed video. short: pixels of the short side."""
        key = (video.id, short, frame)
        if key in self._cache:
            return self._cache[key]
        if key not in self._wanted:
            if len(self._wanted) >= MAX_WAITING_FRAMES:
                raise Refusal(429, "too many pictures are waited for; try again later", 2)
            self._wanted[key] = video, asyncio.get_running_loop().create_future()
        _, future = self._wanted[key]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._decode())
        return await asyncio.shield(future)

    async def _decode(self) -> None:
        while self._wanted:
            (id_, short, _), (video, _) = next(iter(self._wanted.items()))
            group = [key for key in self._wanted if key[:2] == (id_, short)][:BATCH_FRAMES]
            left = dict.fromkeys(frame for _, _, frame in group)
            # An index may have been made from another file of the same content, which may be gone.
            info = (video.info or {}) | {"path": str(video.path)}
            arrived = partial(self._arrived, left, id_, short)
            arrives = partial(asyncio.get_running_loop().call_soon_threadsafe, arrived)
            call = partial(self._worker.call, "pictures", info, list(left), short, progress=arrives)
            try:
                await asyncio.to_thread(call)
                error: Exception = Refusal(404, "this frame cannot be decoded")
            except Exception as failure:
                error = failure
            for frame in left:
                _, future = self._wanted.pop((id_, short, frame))
                future.set_exception(error)
                future.exception()  # marks it as retrieved, in case nobody waits any longer

    def _arrived(self, left: dict[int, None], id_: str, short: int, frame: int, picture: bytes) -> None:
        """Give a picture to those who wait for it. left: frames of its batch that are still to come."""
        key = (id_, short, frame)
        del left[frame]
        self._cache[key] = picture
        self._wanted.pop(key)[1].set_result(picture)


class Rankings:
    """Ranking files of a folder by id, with the request of each."""

    def __init__(self, folder: Path, journal: Journal, jobs: Jobs) -> None:
        self._folder = folder
        self._journal = journal
        self._jobs = jobs
        self._loaded: LRUCache[str, Ranking] = LRUCache(CACHED_RANKINGS)
        self._prefixes: LRUCache[Any, bytes] = LRUCache(CACHED_PREFIXES)
        self._lock = threading.Lock()  # of both caches

    def ask(self, id_: str, request: RankRequest) -> Job | None:
        """The job that makes a ranking; None if it is finished."""
        fields = request.to_json()
        with self._journal.lock:
            job = self._jobs.submit("rank", id_, fields) if self._load(id_) is None else None
            self._journal.execute(
                "insert or ignore into rankings values (?, ?, ?, ?)",
                [id_, request.video, json.dumps(fields), time.time()],
            )
            return job

    def path(self, id_: str) -> Path:
        """Where the file of a ranking is or will be."""
        return self._folder / f"{id_}.json"

    def has(self, id_: str) -> bool:
        """Whether a ranking is finished."""
        with self._lock:
            return id_ in self._loaded or self.path(id_).is_file()

    def get(self, id_: str) -> Ranking:
        """A finished ranking; refused with the reason if it is not finished."""
        self.request(id_)  # an unknown id must not become a path
        loaded = self._load(id_)
        if loaded is None:
            job = self._jobs.latest(id_)
            why = "this ranking is being made" if job and job.active else "this ranking was not made"
            detail = f": {job.error}" if job and job.error else f"; see /jobs/{job.id}" if job else ""
            raise Refusal(409, why + detail)
        return loaded

    def _load(self, id_: str) -> Ranking | None:
        """A finished ranking, or None; a damaged file is deleted."""
        with self._lock:
            ranking = self._loaded.get(id_)
        if ranking is not None or not self.path(id_).is_file():
            return ranking
        try:
            loaded = Ranking.load(self.path(id_))
        except FramenestError as error:
            log.warning("%s; it is made again when it is asked for", error)
            with suppress(OSError):
                self.path(id_).unlink()
            return None
        with self._lock:
            self._loaded[id_] = loaded
        return loaded

    def request(self, id_: str) -> RankRequest:
        """The request for a ranking."""
        return _request(self._row(id_))

    def entry(self, id_: str) -> dict[str, Any]:
        """What clients may know of the request for a ranking: its fields and settings by name, flat."""
        return self._entry(self._row(id_))

    def all(self, video: str | None) -> list[dict[str, Any]]:
        """Entries, newest first, of one video or all."""
        statement = "select * from rankings where coalesce(?, video) = video order by created desc limit 1000"
        return [self._entry(row) for row in self._journal.execute(statement, [video])]

    def _row(self, id_: str) -> Any:
        row = self._journal.row("select * from rankings where id = ?", [id_])
        if row is None:
            raise Refusal(404, "no such ranking")
        return row

    def _entry(self, row: Any) -> dict[str, Any]:
        request, id_ = _request(row), row["id"]
        look_for = request.look_for.texts if request.look_for else ()
        fields = request.to_json() | request.config.settings() | {"look_for": look_for}
        return fields | {"id": id_, "created": row["created"], "ready": self.has(id_)}

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

    @cachedmethod(lambda self: self._prefixes, lock=lambda self: self._lock)
    def prefix(self, id_: str, k: int, after: int) -> bytes:
        """PrefixOut of ranks after + 1 … k, in time order, as JSON."""
        if after >= k:
            raise Refusal(422, f"after={after} leaves nothing of k={k}; after must be less than k")
        chosen = self.get(id_).prefix(k)
        assert chosen.ranks is not None
        video = self.request(id_).video
        rows = zip(chosen.frames.tolist(), chosen.seconds.tolist(), chosen.ranks.tolist(), strict=True)
        frames = [
            {"frame": frame, "seconds": seconds, "rank": rank, "image": f"/videos/{video}/frames/{frame}"}
            for frame, seconds, rank in rows
            if rank > after
        ]
        body = {"ranking": id_, "k": k, "after": after, "complete": chosen.complete, "frames": frames}
        return json.dumps(body, separators=(",", ":")).encode()


def _request(row: Any) -> RankRequest:
    return convert(json.loads(row["request"]), RankRequest)
