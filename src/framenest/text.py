"""Times, sizes and messages as text."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from urllib.parse import urlsplit

_CLOCK = re.compile(r"(?:(\d+):(?=[0-5]?\d:))?(\d+):([0-5]?\d(?:\.\d*)?)")


def one_line(value: object, longest: int = 300) -> str:
    """Format a message as one line; an error without a message as its class name.

    >>> one_line(ValueError("no such\\n  stream")), one_line(KeyError())
    ('no such stream', 'KeyError')
    """
    return " ".join(str(value).split())[:longest] or type(value).__name__


_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def harmless(text: str) -> str:
    """Escape control characters, which can move a terminal's cursor, write to its clipboard or reverse text.

    Newlines and tabs stay.

    >>> harmless("a\\x1b]0;title\\x07b")
    'a\\\\x1b]0;title\\\\x07b'
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def harmless_json(text: str) -> str:
    """Escape control characters in JSON; it stays the same JSON.

    >>> harmless_json('"\\x9b"')
    '"\\\\u009b"'
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def slug(text: str, otherwise: str) -> str:
    """Turn text into a part of a file name; `otherwise` if no letter or digit is left.

    >>> slug("What is it?", "question"), slug("…", "question")
    ('what-is-it', 'question')
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-") or otherwise


def clock(seconds: float) -> str:
    """Format seconds as [H:]MM:SS.s, rounded as :.1f rounds, so that it agrees with the times sent to models.

    >>> clock(83.25), clock(83.26), clock(3683.5)
    ('1:23.2', '1:23.3', '1:01:23.5')
    """
    tenths = round(10 * float(f"{seconds:.1f}"))
    minutes, rest = divmod(tenths, 600)
    text = f"{rest // 10:02d}.{rest % 10}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{text}" if hours else f"{minutes}:{text}"


def seconds_of(text: str | float) -> float:
    """Parse a time: seconds, "1:23.5" or "1:01:23.5"; ValueError if it is not one.

    >>> seconds_of("1:23.5"), seconds_of("1:00:00"), seconds_of(12)
    (83.5, 3600.0, 12.0)
    """
    value = math.nan
    if match := _CLOCK.fullmatch(str(text).strip()):
        value = 3600 * float(match[1] or 0) + 60 * float(match[2]) + float(match[3])
    else:
        with suppress(ValueError):
            value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a time; give seconds or [HH:]MM:SS")
    return value


_UNITS = {"": 1, "b": 1} | {
    f"{letter}{tail}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for tail, base in (("", 1024), ("b", 1000), ("ib", 1024))
}


def bytes_of(text: str) -> int:
    """Parse a size: bytes, "500MB", "2GiB" or "1TB"; ValueError if it is not one.

    >>> bytes_of("2GiB"), bytes_of("1.5 kB"), bytes_of("4096")
    (2147483648, 1500, 4096)
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d*)?)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a size; write it like 500MB, 2GiB or 1TB")
    return int(float(match[1]) * _UNITS[match[2]])


def is_url(text: str) -> bool:
    """Whether this is an http(s) URL with a host.

    >>> is_url("http://[::1]:8000/v1"), is_url("http://[::1"), is_url("localhost:8000")
    (True, False, False)
    """
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets, or the port
        return False


def size_text(count: int) -> str:
    """Format a number of bytes.

    >>> size_text(14_246_826)
    '13.6 MiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
