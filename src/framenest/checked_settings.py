"""CheckedSettings: configs whose fields know their help and what they may be, checked on construction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, get_args

from framenest.errors import BadSetting

Allowed = tuple[str, Callable[[Any], bool]]
"""What a setting may be, in words and as a check."""


def setting(
    default: Any,
    help: str,  # noqa: A002 - click's word
    allowed: Allowed,
    whose: str = "paper",
    *,
    moment: bool = False,
) -> Any:
    """A config field with its one-line explanation, which becomes the option's help, and its range.

    moment: a time in the video, which people may write as [HH:]MM:SS.
    """
    return field(
        default=default, metadata={"help": help, "allowed": allowed, "whose": whose, "moment": moment}
    )


def finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def whole(least: int, unit: str = "") -> Allowed:
    words = f"a whole number{unit and f' of {unit}'}, {least} or more"
    return words, lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def one_of(kind: Any) -> Allowed:
    return "one of " + ", ".join(get_args(kind)), lambda value: value in get_args(kind)


ANY: Allowed = "anything", lambda _: True  # checked against another setting
SWITCH: Allowed = "True or False", lambda value: isinstance(value, bool)
POSITIVE: Allowed = "more than 0", lambda value: finite(value) and value > 0
NOT_NEGATIVE: Allowed = "a number, 0 or more", lambda value: finite(value) and value >= 0
SECONDS: Allowed = "seconds, 0 or more", NOT_NEGATIVE[1]
UNIT: Allowed = "between 0 and 1", lambda value: finite(value) and 0 <= value <= 1
SHARE: Allowed = "more than 0, at most 1", lambda value: finite(value) and 0 < value <= 1
ODD: Allowed = "an odd whole number, 1 or more", lambda value: whole(1)[1](value) and value % 2 == 1
SUBTITLES: Allowed = (
    "auto, none, a file or a folder",
    lambda value: value is None or (isinstance(value, str) and bool(value.strip())),
)
DEVICES: Allowed = (
    "a name such as cpu or cuda:0, or several with commas",
    lambda value: isinstance(value, str) and all(part.strip() for part in value.split(",")),
)


class CheckedSettings:
    """A config whose settings are checked on construction."""

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            words, ok = one.metadata["allowed"]
            self._require(ok(getattr(self, one.name)), one.name, words)

    def _require(self, ok: bool, name: str, allowed: str) -> None:
        if not ok:
            raise BadSetting(name, getattr(self, name), allowed)
