"""What a ranking or selection file must hold, field by field.

Such a file may come from anyone. Types, ranges and finiteness are checked before anything is made of it, and
what is wrong is named: "pool.seconds[3] must be a finite number, not nan".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

_MOST = 2**53
"""Whole numbers up to here are exact in every reader of JSON."""


class BadField(ValueError):
    """A field is missing or holds what it must not. The message names it."""


class Fields:
    """An object of a file; every getter returns a value of the right kind or raises BadField.

    >>> Fields({"frames": [3, -1]}).numbers("frames", whole=True, least=0)
    Traceback (most recent call last):
        ...
    framenest.method.result_fields.BadField: frames[1] must be a whole number, 0 or more, not -1
    """

    def __init__(self, data: Any, where: str = "") -> None:
        if not isinstance(data, Mapping):
            raise BadField(f"{where or 'the file'} must be an object, not {_shown(data)}")
        self._data, self._where = data, where

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def part(self, name: str) -> Fields:
        """An object in this one."""
        return Fields(self._get(name), self._place(name))

    def value(self, name: str) -> Any:
        """Whatever is there, for what may be of several kinds."""
        return self._get(name)

    def text(self, name: str, *, optional: bool = False) -> str | None:
        """A text; None where that is allowed."""
        value = self._get(name)
        if not isinstance(value, str) and not (optional and value is None):
            raise BadField(f"{self._place(name)} must be a text, not {_shown(value)}")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        return self._list(name, _text)

    def flag(self, name: str) -> bool:
        """true or false."""
        return bool(_flag(self._get(name), self._place(name)))

    def number(
        self, name: str, *, whole: bool = False, least: float = -math.inf, most: float = math.inf
    ) -> float:
        """A finite number in a range."""
        return _number(self._get(name), self._place(name), whole, least, most)

    def numbers(
        self, name: str, *, whole: bool = False, least: float = -math.inf, most: float = math.inf
    ) -> list[float]:
        """A list of finite numbers in a range."""
        return self._list(name, lambda value, place: _number(value, place, whole, least, most))

    def flags(self, name: str) -> list[bool]:
        """A list of true and false."""
        return self._list(name, _flag)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        return self._list(name, Fields)

    def by_name(self) -> dict[str, Fields | None]:
        """The names in this object."""
        return dict.fromkeys(self._data)

    def refuse(self, name: str, why: str) -> None:
        """Raise BadField for what only several fields together show."""
        raise BadField(f"{self._place(name)} {why}")

    def _get(self, name: str) -> Any:
        if name not in self._data:
            raise BadField(f"{self._place(name)} is missing")
        return self._data[name]

    def _list(self, name: str, made: Callable[[Any, str], Any]) -> list[Any]:
        values, place = self._get(name), self._place(name)
        if not isinstance(values, list):
            raise BadField(f"{place} must be a list, not {_shown(values)}")
        return [made(value, f"{place}[{i}]") for i, value in enumerate(values)]

    def _place(self, name: str) -> str:
        shown = name if name.isidentifier() else repr(name[:40])
        return f"{self._where}.{shown}" if self._where else shown


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise BadField(f"{place} must be a text, not {_shown(value)}")
    return value


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise BadField(f"{place} must be true or false, not {_shown(value)}")
    return value


def _number(value: Any, place: str, whole: bool, least: float, most: float) -> float:
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or not least <= value <= most or abs(value) > _LARGEST[whole]:
        kind = "whole number" if whole else "finite number"
        low, high = (f", {least:g} or more" if math.isfinite(least) else ""), f", at most {most:g}"
        limits = low + (high if math.isfinite(most) else "")
        raise BadField(f"{place} must be a {kind}{limits}, not {_shown(value)}")
    return value  # type: ignore[no-any-return]  # a number, by the check above


_LARGEST = {True: _MOST, False: 1e15}
"""Far beyond any count, time or score, and within what int64 and float32 hold."""


def check_video(video: Fields) -> tuple[int, float]:
    """The description of a video; its number of frames and its duration."""
    for name in ("path", "fingerprint", "codec"):
        video.text(name)
    for name in ("width", "height"):
        video.number(name, whole=True, least=1)
    video.number("fps", least=0)
    video.number("start")
    if video.text("path") == "":
        video.refuse("path", "is empty")
    if "notes" in video:
        video.texts("notes")
    if "constant_rate" in video:
        video.flag("constant_rate")
    return int(video.number("num_frames", whole=True, least=1)), video.number("duration", least=0)


def check_ranking(data: Mapping[str, Any]) -> None:
    """Every field of a ranking file.

    Raises:
        BadField: names the first one that is wrong.
    """
    fields = Fields(data)
    frames, duration = check_video(fields.part("video"))
    fields.text("question", optional=True)
    fields.texts("options")
    fields.text("scorer")
    fields.part("config")
    _check_stats(fields.part("stats"))
    pool = fields.part("pool")
    candidates = pool.numbers("frames", whole=True, least=0, most=frames - 1)
    if not candidates:
        pool.refuse("frames", "is empty: there is nothing to show")
    if any(a >= b for a, b in pairwise(candidates)):
        pool.refuse("frames", "must ascend")
    columns: dict[str, list[Any]] = {
        "seconds": pool.numbers("seconds", least=0, most=duration + 1e-6),
        "is_zoom": pool.flags("is_zoom"),
        "evidence": pool.numbers("evidence"),
    }
    cues = pool.part("cues")
    for name, column in columns.items():
        _check_length(pool, name, len(column), len(candidates))
    for name in cues.by_name():
        _check_length(cues, name, len(cues.numbers(name)), len(candidates))
    pool.number("num_frames", whole=True, least=1)
    for name in ("active", "anchors"):
        pool.numbers(name, whole=True, least=0, most=frames - 1)
    _check_ranks(fields, set(candidates), duration)


def _check_ranks(fields: Fields, candidates: set[float], duration: float) -> None:
    rows, seen = fields.objects("ranks"), set()
    if not rows:
        fields.refuse("ranks", "is empty: there is nothing to show")
    for place, row in enumerate(rows):
        row.number("rank", whole=True, least=place + 1, most=place + 1)
        frame = row.number("frame", whole=True, least=0)
        if frame not in candidates:
            row.refuse("frame", "is no candidate of the pool")
        if frame in seen:
            row.refuse("frame", "is ranked twice")
        seen.add(frame)
        row.number("seconds", least=0, most=duration + 1e-6)
        for name in row.by_name():
            if name in ("from", "said"):
                row.text(name, optional=name == "said")
            else:
                row.number(name)


def _check_length(fields: Fields, name: str, found: int, wanted: int) -> None:
    if found != wanted:
        fields.refuse(name, f"holds {found} values for {wanted} candidates")


def _check_stats(stats: Fields) -> None:
    for name in ("candidates", "probes", "zoom", "decoded"):
        stats.number(name, whole=True, least=0)
    stats.number("largest_gap_seconds", least=0)
    seconds = stats.part("seconds")
    for name in seconds.by_name():
        seconds.number(name, least=0)
    if "match" in stats:
        match = stats.part("match")
        match.number("value", least=0, most=1)
        if match.text("verdict") not in ("strong", "weak", "none"):
            match.refuse("verdict", "must be strong, weak or none")
    if "read" in stats:
        stats.number("read", whole=True, least=0)


def check_selection(data: Mapping[str, Any]) -> None:
    """Every field of a selection file that is read.

    Raises:
        BadField: names the first one that is wrong.
    """
    fields = Fields(data)
    frames, duration = check_video(fields.part("video"))
    fields.text("question", optional=True)
    fields.text("selector")
    fields.text("scorer")
    fields.part("stats")
    budgets = fields.part("budgets")
    if not budgets.by_name():
        fields.refuse("budgets", "is empty: there is nothing to show")
    for name in budgets.by_name():
        if not name.isascii() or not name.isdecimal() or not 1 <= int(name[:20]) <= _MOST:
            budgets.refuse(name, "is no budget: a whole number, 1 or more")
        chosen = budgets.part(name)
        numbers = chosen.numbers("frames", whole=True, least=0, most=frames - 1)
        if any(a >= b for a, b in pairwise(numbers)):
            chosen.refuse("frames", "must ascend")
        seconds = chosen.numbers("seconds", least=0, most=duration + 1e-6)
        _check_length(chosen, "seconds", len(seconds), len(numbers))
        if data["budgets"][name].get("ranks") is not None:
            _check_length(chosen, "ranks", len(chosen.numbers("ranks", whole=True, least=1)), len(numbers))
        chosen.flag("complete")
