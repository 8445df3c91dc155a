"""Which files are videos, and what may be opened."""

from __future__ import annotations

import os
import re
from pathlib import Path

from framenest.errors import VideoError

FORMATS = {
    "mov,mp4,m4a,3gp,3g2,mj2": ".mp4",
    "matroska,webm": ".mkv",
    "avi": ".avi",
    "mpegts": ".ts",
    "mpeg": ".mpg",
    "flv": ".flv",
    "asf": ".wmv",
    "ogg": ".ogv",
    "mxf": ".mxf",
    "gif": ".gif",
    "rm": ".rm",
    "ivf": ".ivf",
    "yuv4mpegpipe": ".y4m",
    "h264": ".h264",
    "hevc": ".h265",
    "mpegvideo": ".m2v",
    "m4v": ".m4v",
    "obu": ".obu",
    "dv": ".dv",
}
"""Containers and raw streams that hold their own pictures, by FFmpeg's names, and the suffix of a file."""


VIDEO_SUFFIXES = frozenset((
    ".3gp", ".asf", ".avi", ".divx", ".dv", ".f4v", ".flv", ".gif", ".h264", ".h265", ".hevc", ".ivf",
    ".m2ts", ".m2v", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".obu", ".ogm", ".ogv",
    ".qt", ".rm", ".rmvb", ".ts", ".vob", ".webm", ".wmv", ".y4m",
))  # fmt: skip
"""Files of a folder that count as videos."""


PLAYLISTS = frozenset(("hls", "concat", "dash"))
"""Formats that name other files or addresses."""


_FILE, _HTTP = ("file",), ("http", "https", "tcp", "tls", "httpproxy")


def is_remote(path: str) -> bool:
    """Whether a video is at an address, not a path.

    >>> is_remote("https://host/a.mp4"), is_remote("C:/a.mp4"), is_remote("a.mp4")
    (True, False, False)
    """
    return re.match(r"[a-z][a-z0-9+.-]+://", path, re.IGNORECASE) is not None


def is_playlist(name: str) -> bool:
    """Whether a format by FFmpeg's name is a playlist."""
    return name in PLAYLISTS


def begins_a_playlist(head: bytes) -> bool:
    """Whether a file that begins so is a playlist.

    >>> begins_a_playlist(b"#EXTM3U\\n#EXT-X-VERSION:3"), begins_a_playlist(b"\\x00\\x00\\x00\\x20ftypisom")
    (True, False)
    """
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text.startswith((b"#EXTM3U", b"ffconcat")) or b"<MPD" in text


def open_options(address: str | None, *, playlists: bool = False) -> dict[str, str]:
    """FFmpeg's options for opening a video, with the whitelists of formats and protocols.

    Args:
        address: A path or an http(s) address; None where FFmpeg reads through a Python file, and so opens
            nothing by itself.
        playlists: Also open playlists. One in a file may name files and http(s) addresses, one at an address
            only http(s) addresses.

    >>> open_options("/videos/kiln.mp4")["protocol_whitelist"]
    'file'
    >>> "hls" in open_options("/videos/kiln.m3u8", playlists=True)["format_whitelist"].split(",")
    True
    """
    formats = [*FORMATS]
    protocols: tuple[str, ...] = ("none",)
    if address is not None:
        remote = address.lower().startswith(("http://", "https://"))
        protocols = _HTTP if remote else _FILE
        if playlists:
            formats += sorted(PLAYLISTS)
            protocols = (*protocols, *(() if remote else _HTTP), "crypto", "data")
    return {"format_whitelist": ",".join(formats), "protocol_whitelist": ",".join(protocols)}


def check_file(path: str) -> None:
    """Refuse what cannot be a video file."""
    file = Path(path)
    if not file.exists():
        raise VideoError(f"{path}: no such file")
    if not file.is_file():
        raise VideoError(f"{path}: not a file")
    if file.stat().st_size == 0:
        raise VideoError(f"{path}: the file is empty")
    if not os.access(path, os.R_OK):
        raise VideoError(f"{path}: no permission to read this file")
