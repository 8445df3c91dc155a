"""A workaround for old x264, which coded 4:4:4 video wrongly; decoders correct it if they know its build.

The build number is in an SEI message of the first packet only. FFmpeg forgets it when a decoder is flushed
by a seek, and then returns green frames without an error. So the message is prepended to the key packet
that decoding starts from.
"""

from __future__ import annotations

from contextlib import closing

import av

from framenest.video.source import Packet, Source

_SEI = 6
_X264_UUID = bytes.fromhex("dc45e9bde6d948b7962cd820d923eeef")


def build_message(source: Source, context: av.VideoCodecContext) -> bytes:
    """The x264 message of a 4:4:4 H.264 stream as it stands in its first packet; else nothing."""
    if context.codec.canonical_name != "h264" or "444" not in (context.pix_fmt or ""):
        return b""
    with closing(source.open()) as opened:
        first = next(opened.packets(), None)
        data, extradata = b"" if first is None else bytes(first), opened.context.extradata or b""
    for start, end in _units(data, extradata):
        if data[start] & 0x1F == _SEI and _X264_UUID in data[start:end]:
            return len(data[start:end]).to_bytes(4, "big") + data[start:end]
    return b""


def _units(data: bytes, extradata: bytes) -> list[tuple[int, int]]:
    """(start, end) of each NAL unit of a length-prefixed packet; empty for other layouts."""
    if len(extradata) < 5 or extradata[0] != 1:
        return []
    size = (extradata[4] & 3) + 1
    if size != 4:
        return []
    units, at = [], 0
    while at + size < len(data):
        length = int.from_bytes(data[at : at + size], "big")
        at += size
        if length == 0 or at + length > len(data):
            return []
        units.append((at, at + length))
        at += length
    return units


def prepend(message: bytes, packet: Packet) -> Packet:
    """The packet with the message in front of it."""
    longer: Packet = av.Packet(message + bytes(packet))  # type: ignore[assignment]  # knows no stream yet
    longer.time_base = packet.time_base
    longer.is_keyframe = packet.is_keyframe
    return longer
