"""Text tracks inside a video file: read from their packets, on the clock of the video's frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import av
from av.stream import Disposition

from framenest.transcript import Line, Transcript, plain_text
from framenest.video.source import DAMAGE, Source, fraction

_TEXT = ("subrip", "srt", "text", "webvtt", "ass", "ssa", "mov_text")
_SUBSTATION_FIELDS = 8  # before the words


def file_begins(source: Source) -> float:
    """Seconds at which a player begins to count, on the file's own clock."""
    with closing(source.open()) as opened:
        start = opened.container.start_time
        return 0.0 if start is None else start / av.time_base


def read_track(source: Source, first: float, duration: float) -> Transcript | None:
    """The text track that suits best: not only forced lines, English, the file's default, the first.

    Args:
        source: the file.
        first: presentation time of the first frame on the file's own clock, in seconds.
        duration: of the video, in seconds.

    Returns:
        The transcript, without lines where all tracks are pictures; None where there is no track.
    """
    with closing(source.open()) as opened:
        tracks = opened.container.streams.subtitles
        if not tracks:
            return None
        texts = [track for track in tracks if _codec(track) in _TEXT]
        if not texts:
            kinds = ", ".join(sorted({_codec(track) for track in tracks}))
            note = f"its subtitles are pictures ({kinds}), not text; a transcript can be given as a file"
            return Transcript("", (), (note,))
        best = min(texts, key=_order)
        lines = [*_lines(opened.container, best, first)]
        about = ", ".join(filter(None, [_codec(best), best.language]))
        return Transcript.of(f"track {best.index} ({about})", lines, duration)


def _codec(track: Any) -> str:
    context = track.codec_context
    return "unknown" if context is None else str(context.codec.canonical_name)


def _order(track: Any) -> tuple[bool, bool, bool, int]:
    english = (track.language or "").lower().startswith("en")
    flags = track.disposition
    return (bool(flags & Disposition.forced), not english, not flags & Disposition.default, track.index)


def _lines(container: av.container.InputContainer, track: Any, first: float) -> Iterator[Line]:
    codec, base = _codec(track), float(fraction(track.time_base) or 1)
    try:
        for packet in container.demux(track):
            if packet.size and packet.pts is not None:
                start = packet.pts * base - first
                end = start + packet.duration * base if packet.duration else math.nan
                yield Line(start, end, plain_text(_words(bytes(packet), codec)))
    except DAMAGE:  # a truncated file ends here, as its video does
        return


def _words(data: bytes, codec: str) -> str:
    if codec == "mov_text":
        data = data[2 : 2 + int.from_bytes(data[:2], "big")]
    text = data.decode("utf-8", errors="replace")
    if codec in ("ass", "ssa"):
        text = text.split(",", _SUBSTATION_FIELDS)[-1]
    return text
