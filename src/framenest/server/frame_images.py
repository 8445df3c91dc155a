"""FrameImages: JPEGs of frames, decoded in batches behind an LRU cache."""

from __future__ import annotations

import asyncio

from cachetools import LRUCache

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
            try:
                found = await asyncio.to_thread(
                    self._worker.call, "pictures", self._videos[video].info, frames, short
                )
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
