"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import rich_click as click


class _Scaled(click.ParamType[float]):
    """A number with a unit."""

    units: ClassVar[dict[str, float]]
    example: str

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return value
        found = re.fullmatch(r"(\d+\.?\d*)\s*([a-z]*)", str(value).strip().lower())
        if found is None or found[2] not in self.units:
            self.fail(f"{value!r} is not a {self.name.lower()}; write it like {self.example}", param, ctx)
        return float(found[1]) * self.units[found[2]]


class Duration(_Scaled):
    """Seconds of 90s, 30m, 12h, 7d; a bare number is seconds."""

    name = "DURATION"
    units: ClassVar = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
    example = "90s, 30m, 12h or 7d"


class Size(_Scaled):
    """Bytes of 500MB, 2GiB, 1TB; a bare number is bytes."""

    name = "SIZE"
    units: ClassVar = {"": 1, "b": 1} | {
        f"{letter}{tail}": base**power
        for power, letter in enumerate("kmgt", start=1)
        for tail, base in (("", 1024), ("b", 1000), ("ib", 1024))
    }
    example = "500MB, 2GiB or 1TB"
