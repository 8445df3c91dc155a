"""The default decoder: exact frames through PyAV, several small decoders at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import keep
from framenest.cache.hashes import digest
from framenest.frames import VideoInfo
from framenest.processes import cores, machine_memory
from framenest.protocols import Store
from framenest.transcript.transcript import Transcript
from framenest.video.description import DESCRIPTION_FORMAT, Description
from framenest.video.parallel import DecodeWorker, ordered
from framenest.video.picture_decoder import Picture, PictureDecoder, Sizes
from framenest.video.reader import Reader, plan
from framenest.video.scale import Scaler
from framenest.video.source import Source
from framenest.video.subtitle_tracks import file_begins, read_track

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
