"""Pictures of frames, for many who ask one by one: gathered, decoded together, remembered for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from framenest.server.refusals import Busy, Unknown
from framenest.server.worker import Worker

KEPT_BYTES = 64 * 2**20
TOGETHER = 64  # frames decoded in one go
WAITING = 1024  # frames that may be waited for

Key = tuple[str, int, int]  # video, short side, frame


class FrameImages:
    """JPEGs by (video, frame, short side). While one group is decoded, the next one gathers.

    Frames of one video decode faster together: each stretch between key frames is gone through once.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._kept: OrderedDict[Key, bytes] = OrderedDict()
        self._bytes = 0
        self._wanted: OrderedDict[Key, asyncio.Future[bytes]] = OrderedDict()
        self._infos: dict[str, dict[str, Any]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, video: str, info: dict[str, Any], frame: int, short: int) -> bytes:
        """info: the VideoInfo of the video as JSON."""
        key = (video, short, frame)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._wanted:
            if len(self._wanted) >= WAITING:
                raise Busy("too many pictures are waited for; try again later", 2)
            self._wanted[key] = asyncio.get_running_loop().create_future()
            self._infos[video] = info
        future = self._wanted[key]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._decode())
        return await asyncio.shield(future)

    async def _decode(self) -> None:
        while self._wanted:
            video, short, _ = next(iter(self._wanted))
            group = [key for key in self._wanted if key[:2] == (video, short)][:TOGETHER]
            frames = [frame for _, _, frame in group]
            try:
                found = await asyncio.to_thread(
                    self._worker.call, "pictures", self._infos[video], frames, short
                )
                error: Exception = Unknown("this frame cannot be decoded")
            except Exception as failure:
                found, error = {}, failure
            for key in group:
                future = self._wanted.pop(key)
                if key[2] in found:
                    self._keep(key, found[key[2]])
                    future.set_result(found[key[2]])
                else:
                    future.set_exception(error)
                    future.exception()  # nobody may be waiting any more
        self._infos.clear()

    def _keep(self, key: Key, picture: bytes) -> None:
        self._kept[key] = picture
        self._bytes += len(picture)
        while self._bytes > KEPT_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1])
