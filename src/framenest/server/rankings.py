"""The rankings of a service and the images of their frames."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from cachetools import LRUCache

from framenest.errors import FramenestError
from framenest.method.ranking import RANKING_FORMAT, Ranking
from framenest.rank_request import RankRequest
from framenest.records import convert, parse_json, read_result
from framenest.server.guard import Refusal
from framenest.server.jobs import Job, Jobs, Journal
from framenest.server.library import LibraryVideo
from framenest.server.video_worker import VideoWorker

PICTURE_CACHE_BYTES = 64 * 2**20
DECODED_AT_ONCE = 64  # decoded at once
MAX_WAITING_FRAMES = 1024
CACHED_RANKINGS = 64
_ROWS = "select id, video, request, created, ranking is not null as ready from rankings"
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
            group = [key for key in self._wanted if key[:2] == (id_, short)][:DECODED_AT_ONCE]
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
    """Rankings by id, and the request of each, in the journal."""

    def __init__(self, journal: Journal, jobs: Jobs) -> None:
        self._journal = journal
        self._jobs = jobs
        self._loaded: LRUCache[str, Ranking] = LRUCache(CACHED_RANKINGS)

    def ask(self, id_: str, request: RankRequest) -> Job | None:
        """The job that makes a ranking; None if it is finished and speech recognition did not fail."""
        fields, scoring = request.to_json(), request.scoring
        with self._journal.lock:
            ranking = self._load(id_)
            heard = ranking is not None and (ranking.transcript is None or ranking.transcript.source)
            finished = ranking is not None and (heard or not (scoring.listen or scoring.listen_url))
            job = None if finished else self._jobs.submit("rank", id_, fields)
            values = [id_, request.video, json.dumps(fields), time.time()]
            self._journal.execute("insert or ignore into rankings values (?, ?, ?, ?, null)", values)
            return job

    def store(self, id_: str, ranking: bytes) -> None:
        """Store a finished ranking as JSON, unless its video was removed."""
        with self._journal.lock:
            self._journal.execute("update rankings set ranking = ? where id = ?", [ranking, id_])
            self._loaded.pop(id_, None)

    def are_of(self, ids: Sequence[str], videos: Sequence[str]) -> bool:
        """Whether these are finished rankings of these videos."""
        rows = [self._journal.row(f"{_ROWS} where id = ?", [id_]) for id_ in ids]
        return [row["video"] for row in rows if row and row["ready"]] == [*videos]

    def get(self, id_: str) -> Ranking:
        """A finished ranking; refused with the reason if it is not finished."""
        self.row(id_)
        ranking = self._load(id_)
        if ranking is None:
            job = self._jobs.latest(id_)
            why = "this ranking is being made" if job and job.active else "this ranking was not made"
            detail = f": {job.error}" if job and job.error else f"; see /jobs/{job.id}" if job else ""
            raise Refusal(409, why + detail)
        return ranking

    def _load(self, id_: str) -> Ranking | None:
        """A finished ranking, or None; a damaged one is deleted."""
        with self._journal.lock:
            row = self._journal.row(f"{_ROWS} where id = ?", [id_])
            if row is None or not row["ready"]:
                return None
            if id_ not in self._loaded:
                ((text,),) = self._journal.execute("select ranking from rankings where id = ?", [id_])
                try:
                    data = parse_json(text)
                    data = data if isinstance(data, dict) else {}
                    ranking = read_result(data, "the journal", "ranking", RANKING_FORMAT, Ranking.from_json)
                except (FramenestError, ValueError) as error:
                    log.warning("ranking %s: %s; it is made again when it is asked for", id_, error)
                    self._journal.execute("update rankings set ranking = null where id = ?", [id_])
                    return None
                self._loaded[id_] = ranking
            return self._loaded[id_]

    def all(self, video: str | None) -> list[dict[str, Any]]:
        """What clients may know of rankings, newest first, of one video or all."""
        statement = f"{_ROWS} where coalesce(?, video) = video order by created desc limit 1000"
        return [entry(row) for row in self._journal.execute(statement, [video])]

    def row(self, id_: str) -> Any:
        """The request for a ranking, as the journal has it."""
        row = self._journal.row(f"{_ROWS} where id = ?", [id_])
        if row is None:
            raise Refusal(404, "no such ranking")
        return row

    def prefix(self, id_: str, k: int, after: int) -> dict[str, Any]:
        """PrefixOut of ranks after + 1 … k, in time order."""
        if after >= k:
            raise Refusal(422, f"after={after} leaves nothing of k={k}; after must be less than k")
        chosen, images = self.get(id_).prefix(k), f"/videos/{self.row(id_)['video']}/frames"
        frames = [
            {"frame": frame, "seconds": seconds, "rank": rank, "image": f"{images}/{frame}"}
            for rank, seconds, frame in chosen
            if rank is not None and rank > after
        ]
        return {"ranking": id_, "k": k, "after": after, "complete": chosen.complete, "frames": frames}


def entry(row: Any) -> dict[str, Any]:
    """What clients may know of the request for a ranking: its fields and settings by name, flat."""
    request = convert(json.loads(row["request"]), RankRequest)
    look_for = request.look_for.texts if request.look_for else ()
    fields = request.to_json() | request.config.settings() | {"look_for": look_for}
    return fields | {"id": row["id"], "created": row["created"], "ready": row["ready"]}
