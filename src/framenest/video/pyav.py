"""PyAVDecoder: the default decoder."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import keep
from framenest.cache.hashes import digest
from framenest.errors import VideoError
from framenest.frames import FrameBatch, ImageSpec, Pixels, VideoInfo
from framenest.processes import cores, machine_memory
from framenest.protocols import Store
from framenest.transcript import Transcript
from framenest.video.description import DESCRIPTION_FORMAT, Description
from framenest.video.reader import Reader, Run, plan
from framenest.video.scale import Scaler
from framenest.video.source import DAMAGE, Source, damage_as_video_error
from framenest.video.subtitle_tracks import file_begins, read_track

MAX_FRAMES = 64
MAX_BYTES = 64 * 2**20
"""Bytes of pixels in one batch, unless a single frame has more."""

Sizes = Sequence[ImageSpec | None]
Picture = tuple[int, list[Pixels]]
"""A frame number, and the frame at each size asked for."""


class PictureDecoder(ABC):
    """A Decoder, given `_pictures`: any frames in any order, in batches of bounded memory."""

    info: VideoInfo
    seconds: NDArray[np.float64]
    key_frames: NDArray[np.int64]

    def read(
        self, frames: Sequence[int] | NDArray[np.int64], *, sizes: Sizes = (None,)
    ) -> Iterator[FrameBatch]:
        """Decode frames by number, in the order asked; see `framenest.Decoder`."""
        wanted, last = np.asarray(frames, dtype=np.int64).reshape(-1), self.info.num_frames - 1
        wrong = wanted[(wanted < 0) | (wanted > last)]
        if wrong.size:
            raise VideoError(f"{self.info.path}: no frame {wrong[0]}; its frames are 0 to {last}")
        return self._batches(wanted, sizes)

    @abstractmethod
    def _pictures(self, ascending: NDArray[np.int64], sizes: Sizes) -> Iterator[Picture]:
        """Pictures of ascending frame numbers; frames that will not decode are left out."""

    def _batches(self, wanted: NDArray[np.int64], sizes: Sizes) -> Iterator[FrameBatch]:
        most = self._batch_size(sizes)
        pictures = self._in_order(wanted, sizes, most)
        while rows := list(islice(pictures, most)):
            frames = np.array([number for number, _ in rows], dtype=np.int64)
            columns = zip(*(pixels for _, pixels in rows), strict=True)
            yield FrameBatch(frames, self.seconds[frames], tuple(np.stack(column) for column in columns))

    def _in_order(self, wanted: NDArray[np.int64], sizes: Sizes, most: int) -> Iterator[Picture]:
        """Pictures in the order asked, repeats included."""
        if len(wanted) and (np.diff(wanted) > 0).all():
            yield from self._pictures(wanted, sizes)
            return
        for at in range(0, len(wanted), most):
            some = wanted[at : at + most]
            found = dict(self._pictures(np.unique(some), sizes))
            yield from ((number, found[number]) for number in some.tolist() if number in found)

    def _picture_bytes(self, sizes: Sizes) -> int:
        """Bytes of one frame at all sizes."""
        width, height = self.info.width, self.info.height
        return 3 * sum(int(np.prod(spec.size(width, height))) if spec else width * height for spec in sizes)

    def _batch_size(self, sizes: Sizes) -> int:
        return max(1, min(MAX_FRAMES, MAX_BYTES // max(1, self._picture_bytes(sizes))))


HELD_BYTES = 32 * 2**20
"""Pictures that one run may be ahead of who reads them, at least one."""


class DecodeWorker:
    """Decodes and scales runs, in one thread."""

    def __init__(self, path: str, reader: Reader, scaler: Scaler) -> None:
        self._path = path
        self._reader = reader
        self._scaler = scaler
        self.close = reader.close

    def __call__(self, run: Run) -> Iterator[Picture]:
        for number, frame in self._reader.read(run):
            with damage_as_video_error(self._path):
                try:
                    pictures = self._scaler(frame)
                except DAMAGE:  # no picture comes of it: as if it had not decoded
                    continue
            yield number, pictures


def ordered(runs: Sequence[Run], workers: Sequence[DecodeWorker], *, item_bytes: int) -> Iterator[Picture]:
    """The pictures of all runs, in order; each worker has a thread of its own.

    An exception in a worker is raised here, in the place of the picture that it concerns.
    """
    if len(workers) == 1 or len(runs) <= 1:
        with closing(workers[0]):
            for run in runs:
                yield from workers[0](run)
    else:
        with closing(_Pool(runs, workers, max(1, HELD_BYTES // max(1, item_bytes)))) as pool:
            yield from pool.pictures()


class _Pool:
    """Threads that each take the next run; every run has a bounded queue of its own."""

    def __init__(self, runs: Sequence[Run], workers: Sequence[DecodeWorker], depth: int) -> None:
        self._runs = runs
        self._results: list[queue.Queue[tuple[str, Any]]] = [queue.Queue(depth) for _ in runs]
        self._todo = deque(range(len(runs)))
        self._stopped = threading.Event()
        self._ahead = threading.Semaphore(2 * len(workers))  # runs begun but not read to their end
        self._threads = [threading.Thread(target=self._work, args=(w,), daemon=True) for w in workers]
        for thread in self._threads:
            thread.start()

    def pictures(self) -> Iterator[Picture]:
        for results in self._results:
            kind, value = results.get()
            while kind == "picture":
                yield value
                kind, value = results.get()
            if kind == "error":
                raise value
            self._ahead.release()

    def close(self) -> None:
        self._stopped.set()
        for _ in self._threads:
            self._ahead.release()
        for thread in self._threads:
            thread.join()

    def _work(self, worker: DecodeWorker) -> None:
        with closing(worker):
            while self._ahead.acquire() and not self._stopped.is_set():
                try:
                    place = self._todo.popleft()
                except IndexError:
                    return
                self._decode(worker, place)

    def _decode(self, worker: DecodeWorker, place: int) -> None:
        try:
            for picture in worker(self._runs[place]):
                self._put(place, "picture", picture)
                if self._stopped.is_set():
                    return
            self._put(place, "end", None)
        except BaseException as error:
            self._put(place, "error", error)

    def _put(self, place: int, kind: str, value: Any) -> None:
        while not self._stopped.is_set():
            try:
                self._results[place].put((kind, value), timeout=0.1)
                return
            except queue.Full:
                continue


_MEMORY, _SHARE = 2**30, 1 / 16
"""Bytes, or the share of this machine's memory, that all decoders together may hold in reference frames."""
_REFERENCES = 20
"""Frames that one decoder may hold."""


class PyAVDecoder(PictureDecoder):
    """Exact frames of a video file through PyAV.

    Args:
        source: the file.
        store: where its description is kept.
        describe: returns its description, where somebody else reads it; asked only where none is kept.
    """

    name = "pyav"
    version = f"{'.'.join(map(str, av.library_versions['libavcodec'][:2]))}-1"

    def __init__(
        self, source: Source, *, store: Store | None = None, describe: Callable[[], Description] | None = None
    ) -> None:
        self._source = source
        fingerprint = source.fingerprint + (f"-{source.stream}" if source.stream is not None else "")
        key = f"timeline/{digest(fingerprint, self.version, DESCRIPTION_FORMAT)}"
        kept = store.get(key) if store else None
        if kept:
            described = Description.from_parts(*kept)
        else:
            described = describe() if describe else Description.of(source)
            if store:
                keep(store, key, *described.to_parts())
        self.timeline = described.timeline
        self.info = described.info(source.path, fingerprint)
        self.seconds = self.timeline.seconds
        frames = self.timeline.frame[self.timeline.keys]
        self.key_frames = np.sort(frames[frames >= 0])
        self.stream_index = described.stream_index
        self._turn, self._message = described.turn, described.message

    @property
    def begins(self) -> float:
        """Where the file begins, in seconds from its first frame: 0, or less where sound comes first."""
        return file_begins(self._source) - self.info.start

    def subtitle_track(self) -> Transcript | None:
        """The text track inside the file that suits best; None where there is none."""
        return read_track(self._source, self.info.start, self.info.duration)

    def streams(self) -> list[str]:
        """The streams of the file in words, in their order: "video h264", "audio aac (eng)"."""
        with closing(self._source.open()) as opened:
            return [_in_words(stream) for stream in opened.container.streams]

    def scaler(self, sizes: Sizes) -> Scaler:
        """Makes upright pictures of these sizes from frames of this video."""
        return Scaler(self.info.width, self.info.height, self._turn, tuple(sizes))

    def _pictures(self, ascending: NDArray[np.int64], sizes: Sizes) -> Iterator[Picture]:
        runs = plan(self.timeline, ascending)
        count = min(_most_decoders(self.info), len(runs)) or 1
        readers = [Reader(self._source, self.timeline, self._message) for _ in range(count)]
        workers = [DecodeWorker(self._source.path, reader, self.scaler(sizes)) for reader in readers]
        return ordered(runs, workers, item_bytes=self._picture_bytes(sizes))


def _most_decoders(video: VideoInfo) -> int:
    """As many as there are cores, if memory allows; at least one."""
    memory = max(_MEMORY, int(_SHARE * machine_memory()))
    return max(1, min(cores(), memory // (_REFERENCES * 2 * video.width * video.height)))


def _in_words(stream: Any) -> str:
    codec = getattr(stream.codec_context, "name", None)
    language = stream.metadata.get("language", "und")
    return " ".join(filter(None, [stream.type, codec, f"({language})" if language != "und" else ""]))
