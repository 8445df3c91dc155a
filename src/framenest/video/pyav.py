"""PyAVDecoder, the default decoder of files and URLs."""

from __future__ import annotations

import io
import math
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import av
import numpy as np
from av.stream import Disposition

from framenest.cache.directory import keep, local_directory
from framenest.cache.hashes import buffer_hash, digest
from framenest.errors import ConfigError
from framenest.frames import Array, Floats, Ints, VideoInfo
from framenest.processes import cores, machine_memory, process_memory
from framenest.progress import ShowProgress
from framenest.protocols import Store
from framenest.video.address import find
from framenest.video.decoder import SOUND_RATE, Picture, PictureDecoder, Sizes, SubtitleTrack
from framenest.video.guarded_opening import describe_guarded
from framenest.video.reader import Reader, Run, plan
from framenest.video.scale import Orientation, Scaler
from framenest.video.source import DAMAGE, Source, check_file, fraction, is_remote
from framenest.video.timeline import DESCRIPTION_FORMAT, X264_BUILD, Timeline

RUN_BYTES = 32 * 2**20
"""Bytes of decoded pictures that a run may buffer for the consumer; at least one picture."""
_REFERENCE_BYTES, _REFERENCE_SHARE = 2**30, 1 / 16
"""Bytes of reference frames that all decoders together may hold, or this share of the machine's memory."""
_REFERENCE_FRAMES = 20  # frames that one decoder may hold
DAMAGED_VIDEO = "this video is damaged: some frames are as a player patches them up, or left out"
DAMAGED_SOUND = "some of the sound of this video is damaged"
_TEXT_CODECS = ("subrip", "srt", "text", "webvtt", "ass", "ssa", "mov_text")
_GAP_SAMPLES = SOUND_RATE // 10  # by which sound may be late before silence fills the gap, or early
_SUBSTATION_FIELDS = 8  # before the text of a line


class PyAVDecoder(PictureDecoder):
    """Exact frames of a video file or URL through PyAV. header, arrays: see `timeline.describe`."""

    name = "pyav"
    version = f"{'.'.join(map(str, av.library_versions['libavcodec'][:2]))}-1"

    def __init__(self, source: Source, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        build = X264_BUILD.search(bytes.fromhex(header["x264"]))
        self.source = replace(source, x264_build=build[1].decode() if build else "", strict=header["strict"])
        self._opening = header.get("memory", 0)
        self.timeline = Timeline.from_parts(header, arrays)
        named = {"path": source.path, "fingerprint": source.fingerprint}
        self.info = VideoInfo.from_json({**header["video"], **named})
        self.seconds = self.timeline.seconds
        frames = self.timeline.frame[self.timeline.keys]
        self.key_frames = np.sort(frames[frames >= 0])
        self._turn = Orientation(*header["turn"])
        self._remember: Callable[[VideoInfo], None] = lambda _: None

    @classmethod
    def open(
        cls, path: str, argument: str, *, stream: int | None, store: Store | None, progress: ShowProgress
    ) -> PyAVDecoder:
        """Open a file or URL; see `open_video`. argument: this decoder takes none."""
        if argument:
            raise ConfigError(f"there is no decoder 'pyav:{argument}'; choose from pyav")
        local = local_directory(store)
        if is_remote(path):
            source = find(path, stream, local, progress)
        else:
            check_file(path)
            source = Source.at(path, local.fingerprint(path), stream)
        return cls._of(source, store or local)

    @classmethod
    def of_bytes(cls, data: bytes, name: str, store: Store, stream: int | None = None) -> PyAVDecoder:
        """Open a file in memory; it shares cache entries with the same file on disk. name: for messages."""
        source = Source(name, buffer_hash(memoryview(data)), stream, open_file=lambda: io.BytesIO(data))
        return cls._of(source, store)

    @classmethod
    def _of(cls, source: Source, store: Store) -> PyAVDecoder:
        if source.stream is not None:
            source = replace(source, fingerprint=f"{source.fingerprint}-{source.stream}")
        key = f"timeline/{digest(source.fingerprint, cls.version, DESCRIPTION_FORMAT)}"
        described = store.get(key)
        if not described:
            described = describe_guarded(source)
            keep(store, key, *described)
        header, arrays = described
        decoder = cls(source, header, arrays)
        decoder._remember = lambda info: keep(
            store, key, header | {"video": header["video"] | {"notes": list(info.notes)}}, arrays
        )
        return decoder

    def _note_damage(self, note: str = DAMAGED_VIDEO) -> None:
        """Note in `info`, now and whenever this video is opened again, that it is damaged."""
        if note not in self.info.notes:
            self.info = replace(self.info, notes=(*self.info.notes, note))
            self._remember(self.info)

    def streams(self) -> list[str]:
        """The streams of the file in words, in their order: "video h264", "audio aac (eng)"."""
        descriptions = []
        with closing(self.source.open()) as opened:
            for stream in opened.container.streams:
                codec = getattr(stream.codec_context, "name", None)
                language = stream.metadata.get("language", "und")
                words = [stream.type, codec, f"({language})" if language != "und" else ""]
                descriptions.append(" ".join(filter(None, words)))
        return descriptions

    @property
    def local_file(self) -> str | None:
        """See `HasFile`."""
        return self.source.local

    def clock_start(self) -> float:
        """See `HasFile`. Players count from the start of the file, which may be before its first frame."""
        with closing(self.source.open()) as opened:
            return (opened.container.start_time or 0) / av.time_base - self.info.start

    def subtitle_tracks(self) -> list[SubtitleTrack]:
        """See `HasSubtitles`."""
        with closing(self.source.open()) as opened:
            return [*map(_subtitle_track, opened.container.streams.subtitles)]

    def subtitle_lines(self, track: SubtitleTrack) -> Iterator[tuple[float, float, str]]:
        """See `HasSubtitles`."""
        with closing(self.source.open()) as opened:
            stream = opened.container.streams[track.number]
            base = float(fraction(stream.time_base) or 1)
            with suppress(*DAMAGE):  # a truncated file ends here, as its video does
                for packet in opened.container.demux(stream):
                    if packet.size and packet.pts is not None:
                        start = packet.pts * base - self.info.start
                        end = start + packet.duration * base if packet.duration else math.nan
                        yield start, end, _subtitle_text(bytes(packet), track.codec)

    def sound(self, first: int = 0) -> Iterator[Floats]:
        """See `HasStreams`. The track is FFmpeg's choice, and may change its format."""
        at, end = 0, round(self.info.duration * SOUND_RATE)
        resamplers = defaultdict[Any, Any](lambda: av.AudioResampler("flt", "mono", SOUND_RATE))
        with closing(self.source.open()) as opened:
            best: Any = opened.container.streams.best("audio")
            track: Any = replace(opened, stream=best)
            for frame in chain.from_iterable(
                map(track.decode, chain(track.packets(), [None]) if best else ())
            ):
                due = at if frame.time is None else round((frame.time - self.info.start) * SOUND_RATE)
                gap = min(due, end) - at
                if at >= end or gap < -_GAP_SAMPLES:
                    continue
                resampler = resamplers[frame.format.name, frame.layout.name, frame.sample_rate]
                silence = repeat(np.zeros(_GAP_SAMPLES, np.float32), max(0, gap) // _GAP_SAMPLES)
                for samples in chain(silence, (one.to_ndarray()[0] for one in resampler.resample(frame))):
                    if at + len(samples) > first:
                        yield samples[max(0, first - at) : max(0, end - at)]
                    at += len(samples)
            if track.damaged:
                self._note_damage(DAMAGED_SOUND)

    def scaler(self, sizes: Sizes) -> Scaler:
        """Makes upright pictures of these sizes from frames of this video."""
        return Scaler((self.info.width, self.info.height), self._turn, sizes)

    def pictures(self, ascending: Ints, sizes: Sizes) -> Iterator[Picture]:
        runs = plan(self.timeline, ascending)
        memory = min(max(_REFERENCE_BYTES, int(_REFERENCE_SHARE * machine_memory())), process_memory() // 4)
        held = _REFERENCE_FRAMES * 2 * self.info.width * self.info.height + self._opening
        most = min(cores(), max(1, memory // held), len(runs))
        known = DAMAGED_VIDEO in self.info.notes
        readers = [
            Reader(self.source, self.timeline, self.scaler(sizes), self._note_damage, known)
            for _ in range(most)
        ]
        if len(readers) > 1:
            yield from in_parallel(runs, readers, max(1, RUN_BYTES // self._picture_bytes(sizes)))
            return
        with closing(readers[0]) as reader:
            for run in runs:
                yield from reader.pictures(run)


def _subtitle_track(stream: Any) -> SubtitleTrack:
    context, flags = stream.codec_context, stream.disposition
    codec = "unknown" if context is None else str(context.codec.canonical_name)
    forced, default = bool(flags & Disposition.forced), bool(flags & Disposition.default)
    return SubtitleTrack(stream.index, codec, stream.language, codec in _TEXT_CODECS, forced, default)


def _subtitle_text(data: bytes, codec: str) -> str:
    """The text of a packet, without the fields that its format puts before it."""
    if codec == "mov_text":
        data = data[2 : 2 + int.from_bytes(data[:2], "big")]
    text = data.decode("utf-8", errors="replace")
    return text.split(",", _SUBSTATION_FIELDS)[-1] if codec in ("ass", "ssa") else text


Results = queue.Queue[Picture | BaseException | None]
"""The pictures of one run, then None; or an exception instead of a picture."""
Runs = queue.SimpleQueue[tuple[Run, Results] | None]


def in_parallel(runs: Sequence[Run], readers: Sequence[Reader], depth: int) -> Iterator[Picture]:
    """Decode runs in one thread per reader, and yield their pictures in order; closes the readers.

    An exception in a thread is raised here, at the picture it concerns. `depth` is the number of pictures
    that a run may buffer for the consumer.
    """
    todo, stopped = Runs(), threading.Event()
    # Daemon threads: a program may exit before it has read everything.
    threads = [threading.Thread(target=_work, args=(r, todo, stopped), daemon=True) for r in readers]
    for thread in threads:
        thread.start()
    jobs: list[tuple[Run, Results]] = [(run, queue.Queue(depth)) for run in runs]
    window = 2 * len(readers)  # runs started but not yet consumed
    for job in jobs[:window]:
        todo.put(job)
    following = iter(jobs[window:])
    try:
        for _, results in jobs:
            while (item := results.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
            todo.put(next(following, None))
    finally:
        stopped.set()
        for _ in threads:
            todo.put(None)
        for thread in threads:
            thread.join()


def _work(reader: Reader, todo: Runs, stopped: threading.Event) -> None:
    def put(item: Picture | BaseException | None) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                results.put(item, timeout=0.1)
                return

    with closing(reader):
        while (job := todo.get()) is not None and not stopped.is_set():
            run, results = job
            try:
                for picture in reader.pictures(run):
                    put(picture)
                    if stopped.is_set():
                        return
                put(None)
            except BaseException as error:
                put(error)
