"""The APIs in which clients show videos to models: where the videos are, how frames and errors are written.

Whatever a client calls a part, its first bytes say whether it is a video.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from framenest.errors import VideoError
from framenest.video.source import VIDEO_SUFFIXES

GATEWAY = "/v1/"
VIDEO: Any = object()  # in a message: here are the frames of a video
_CONTENTS = ("content", "output")  # fields with parts: of a message, and of the result of a tool
_CALLS = ("_use", "_call")  # ends of the types of what a model asks a tool
_VIDEO_TYPES = ("video_url", "video", "input_video")
_FILE_TYPES = ("file", "input_file", "document", "image", "image_url", "input_image", "media")
_ADDRESSES = (
    *("url", "uri", "data", "base64", "bytes", "blob", "source", "file_data", "file_url", "file_uri"),
    *("fileUri", "file_id", *_VIDEO_TYPES, *_FILE_TYPES),
)
_MEDIA_TYPES = ("media_type", "mime_type", "mimeType", "mediaType", "format")
_DATA_URL = re.compile(r"\s*data:([^,;]*)[^,]*,", re.IGNORECASE)
MAX_ADDRESS_CHARS = 8192
MAX_DEPTH = 100  # of parts inside parts
_HEAD_CHARS = 512  # of base64; MPEG-TS needs 377 bytes
_USUAL = bytes.maketrans(b"-_", b"+/")  # from the alphabet of addresses
_FILE_NAMES = tuple(VIDEO_SUFFIXES - {".gif", ".ts"})  # those that name nothing else
_VIDEO_BYTES = re.compile(
    rb"....(?:ftyp(?!hei|hev|mif|msf|avif|avis|M4[AB] )|moov|mdat|wide|pnot|styp)"  # MP4; not HEIC, AVIF, M4A
    rb"|\x1aE\xdf\xa3|RIFF....AVI |FLV\x01|OggS.{24,80}theora|0&\xb2u\x8ef\xcf\x11|\x00\x00\x01[\xba\xb3]"
    rb"|\x06\x0e\+4|\.RMF|DKIF|YUV4MPEG2|G.{187}G.{187}G",
    re.DOTALL,
)
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class VideoSource(NamedTuple):
    """A video in a request."""

    address: str  # or its data
    name: str  # as the client calls it
    place: str  # of its part, such as messages[0].content[1]


@dataclass(frozen=True)
class Dialect:
    """How one API writes what the gateway reads and adds."""

    path: str  # below GATEWAY
    messages: str  # the field that has them
    text: str  # type of a part, as image
    image: str
    jpeg: Callable[[str], dict[str, Any]]  # the fields of an image part for a JPEG as data URL

    def part(self, part: dict[str, Any]) -> dict[str, Any]:
        """A text or image part of a chat completion, as this API has it."""
        if part["type"] == "text":
            return {"type": self.text, "text": part["text"]}
        return {"type": self.image, **self.jpeg(part["image_url"]["url"])}

    def role(self, message: Any) -> Any:
        """Whose a message is; what a model and its tools add to Responses has no role."""
        if not isinstance(message, dict):
            return None
        made_by = "tool" if str(message.get("type")).endswith("_output") else "assistant"
        return message.get("role", made_by if self is RESPONSES else None)

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body of an error."""
        server = "api_error" if self is MESSAGES else "server_error"
        kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else server)
        if self is MESSAGES:
            return {"type": "error", "error": {"type": kind, "message": message}}
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def error_event(self, status: int, message: str) -> bytes:
        """The same in a stream that has begun."""
        error = self.error(status, message)
        event = {**error["error"], "type": "error", "sequence_number": 0} if self is RESPONSES else {}
        name = b"" if self is CHAT else b"event: error\n"
        return name + b"data: " + msgspec.json.encode(event | error) + b"\n\n"


_JPEG = {"type": "base64", "media_type": "image/jpeg"}
CHAT = Dialect("chat/completions", "messages", "text", "image_url", lambda jpeg: {"image_url": {"url": jpeg}})
RESPONSES = Dialect(
    "responses", "input", "input_text", "input_image", lambda jpeg: {"image_url": jpeg, "detail": "auto"}
)
MESSAGES = Dialect(
    "messages", "messages", "text", "image", lambda jpeg: {"source": _JPEG | {"data": jpeg.partition(",")[2]}}
)
DIALECTS = {one.path: one for one in (CHAT, RESPONSES, MESSAGES)}
_COUNTING = {"responses/input_tokens": RESPONSES, "messages/count_tokens": MESSAGES}  # the same bodies
_PATHS = "|".join(DIALECTS | _COUNTING).replace("/", "/+")
_KNOWN = re.compile(rf"(?:/+v1(?=/))*/+({_PATHS})/*")


def api_path(path: str) -> str:
    """The path of a request to one of the APIs as its documentation has it; other paths are unchanged."""
    known = _KNOWN.fullmatch(path)
    return GATEWAY + re.sub("/+", "/", known[1]) if known else path


def dialect_at(path: str) -> Dialect | None:
    """The API at a path that `api_path` has returned."""
    return (DIALECTS | _COUNTING).get(path.removeprefix(GATEWAY)) if path.startswith(GATEWAY) else None


def take_videos(message: Any, place: str, taken: list[VideoSource]) -> Any:
    """A message with VIDEO in place of each video, and the same message if it has none.

    place: of the message in the request. taken: gets the videos, in order.
    """
    if isinstance(message, list):
        return [take_videos(part, f"{place}[{n}]", taken) for n, part in enumerate(message)]
    if not isinstance(message, dict):
        return message
    if place.count("[") > MAX_DEPTH:
        raise VideoError(f"{place[:40]}…: parts are nested more than {MAX_DEPTH} deep")
    if not message.get("text") and (source := video_source(message, place)) is not None:
        taken.append(source)
        return VIDEO
    says = message.get("type") in _VIDEO_TYPES or isinstance(message.get("video"), dict)
    if says and not _frames(message):
        raise VideoError(f"{place}: there is no video in this part")
    before, changed = len(taken), dict(message)
    for name in _CONTENTS:
        value = message.get(name)
        parts = [value] if isinstance(value, dict) else value
        if isinstance(parts, list):
            changed[name] = take_videos(parts, f"{place}.{name}", taken)
    return changed if len(taken) > before else message


def put_frames(message: Any, frames: Iterator[list[Any]]) -> Any:
    """A message with the next frames in place of each VIDEO."""
    if isinstance(message, list):
        parts = (next(frames) if part is VIDEO else [put_frames(part, frames)] for part in message)
        return [*chain.from_iterable(parts)]
    if isinstance(message, dict):
        return message | {name: put_frames(message[name], frames) for name in _CONTENTS if name in message}
    return message


def any_video(value: Any, place: str) -> VideoSource | None:
    """The first video anywhere in a value, but for what a model asks a tool."""
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, str) and is_data(value) and _is_video(value, ""):
        return VideoSource(value, "", place)
    if isinstance(value, dict) and not str(value.get("type")).endswith(_CALLS):
        if (source := video_source(value, place)) is not None:
            return source
        inner = ((f".{name}", one) for name, one in value.items() if isinstance(one, dict | list))
    elif isinstance(value, list):
        inner = ((f"[{n}]", one) for n, one in enumerate(value) if isinstance(one, dict | list | str))
    sources = (any_video(one, f"{place}{where}".lstrip(".")) for where, one in inner)
    return next(filter(None, sources), None)


def video_source(part: dict[str, Any], place: str) -> VideoSource | None:
    """The video that a part of a message holds, at most two objects inside; chosen frames are no video."""
    kind = part.get("type")
    if str(kind).endswith(_CALLS):
        return None
    inner = [one for name, one in part.items() if isinstance(one, dict) and name not in _CONTENTS]
    layers = [part, *inner, *(one for layer in inner for one in layer.values() if isinstance(one, dict))]
    every = [pair for layer in layers for pair in layer.items() if isinstance(pair[1], str)]
    said = [part.get(one) for one in _CONTENTS]  # text, whatever is in it
    every = [pair for pair in every if pair[0] != "text" and not any(pair[1] is one for one in said)]
    outer = dict(reversed(every))
    name = outer.get("filename") or outer.get("title") or outer.get("name") or ""
    media_type = next((outer[one] for one in _MEDIA_TYPES if "/" in outer.get(one, "")), "").lower()
    says = kind in _VIDEO_TYPES or "video_url" in part
    fields = [(is_data(text.strip()), field, text.strip()) for field, text in every]
    for whole, field, text in sorted(fields, key=lambda one: not one[0]):  # data before its address
        path = re.split("[?#]", text, maxsplit=1)[0] if "://" in text[:12] else "" if whole else text
        if field in _ADDRESSES:
            names = [one.lower().rstrip("/") for one in (name, path)]
            by_name = kind in _FILE_TYPES and any(one.endswith(_FILE_NAMES) for one in names)
            found = _is_video(text, media_type, says=says, by_name=by_name)
        else:
            found = whole and _is_video(text, "")
        if found:
            return VideoSource(text, name or unquote(path).rpartition("/")[2], place)
    if any(map(_is_local, _frames(part))):
        raise VideoError(f"{place}: frames at file:// addresses are not read here; give the video")
    return None


def _frames(part: dict[str, Any]) -> list[str]:
    """What a part has in place of a video: addresses of images, or vLLM's JPEGs in one data URL."""
    found = list[Any]()
    for one in map(part.get, _VIDEO_TYPES):
        one = one.get("url") if isinstance(one, dict) else one
        found += one if isinstance(one, list) else [one]
    return [frame for frame in found if isinstance(frame, str)]


def is_data(address: str) -> bool:
    """Whether a video is here itself: as a data URL, or in base64 alone."""
    if _DATA_URL.match(address[:_HEAD_CHARS]) or _VIDEO_BYTES.match(_first_bytes(address, 0)):
        return True
    return len(address) > MAX_ADDRESS_CHARS and "://" not in address[:12]


def base64_alone(text: str) -> bytes:
    """Base64 without line breaks and in the usual alphabet, which strict decoders want."""
    return text.encode(errors="replace").translate(_USUAL, b" \t\r\n")


def _is_video(address: str, media_type: str, *, says: bool = False, by_name: bool = False) -> bool:
    """Whether this is a video, or its address. says, by_name: whether its type, or a file name, says so."""
    start = 0
    if url := _DATA_URL.match(address[:_HEAD_CHARS]):
        media_type, start = url[1].lower(), url.end()
    elif re.match(r"\w\w+:", address):
        says = says or media_type.startswith("video/") or (by_name and address[:4].lower() == "http")
        return says or _is_local(address)
    if _VIDEO_BYTES.match(_first_bytes(address, start)):
        return not media_type.startswith("audio/")
    if media_type in ("", "application/octet-stream"):
        return says or by_name
    return (says or media_type.startswith("video/")) and media_type != "video/jpeg"  # vLLM's name for frames


def _is_local(address: str) -> bool:
    return address[:12].lower().startswith(("file:", "framenest:"))


def _first_bytes(base64: str, start: int) -> bytes:
    head = base64_alone(base64[start : start + _HEAD_CHARS])
    with suppress(ValueError):
        return binascii.a2b_base64(head[: len(head) // 4 * 4])
    return b""
