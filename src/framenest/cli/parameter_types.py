"""Values of options as people write them: budgets, selectors, durations, sizes, temperatures."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import rich_click as click

from framenest.text import bytes_of, seconds_of

SERVER = "server"
"""A setting that is left to the server: nothing is sent."""


class Budgets(click.ParamType[list[int]]):
    """8 or 8,16,32."""

    name = "K"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            return [int(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(
                f"{value!r} is not a frame budget; give a whole number, or several with commas", param, ctx
            )


class CommaSeparated(click.ParamType[list[str]]):
    """Names between commas, each once."""

    name = "TEXT"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        found = list(dict.fromkeys(part.strip() for part in str(value).split(",") if part.strip()))
        if not found:
            self.fail("give at least one selector", param, ctx)
        return found


class Part(click.ParamType[tuple[int, int]]):
    """2/8: the second of eight parts."""

    name = "I/N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        found = re.fullmatch(r"(\d+)/(\d+)", str(value))
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            self.fail(f"{value!r} is not a part; write the second of eight as 2/8", param, ctx)
        return int(found[1]), int(found[2])


class SelectorName(click.ParamType[str]):
    """A selector, in the grammar of `load_selector`; refused before the work where there is none."""

    name = "NAME"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        from framenest.selectors import check_selector  # imports all that selects

        check_selector(value)
        return str(value)


class SelectorNames(CommaSeparated):
    """Selectors between commas."""

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        return [SelectorName().convert(name, param, ctx) for name in super().convert(value, param, ctx)]


class Temperature(click.ParamType[float | None]):
    """A number; None of "server"."""

    name = "T|server"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | None:
        try:
            return None if value == SERVER else float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {SERVER!r}", param, ctx)


class Moment(click.ParamType[float]):
    """Seconds, or [HH:]MM:SS."""

    name = "TIME"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            return seconds_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType[float]):
    """Seconds of 90s, 30m, 12h, 7d; a bare number is seconds."""

    name = "DURATION"
    units: ClassVar = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return value
        found = re.fullmatch(r"(\d+\.?\d*)\s*([a-z]*)", str(value).strip().lower())
        if found is None or found[2] not in self.units:
            self.fail(f"{value!r} is not a duration; write it like 90s, 30m, 12h or 7d", param, ctx)
        return float(float(found[1]) * self.units[found[2]])


class Size(click.ParamType[int]):
    """Bytes of 500MB, 2GiB, 1TB; a bare number is bytes."""

    name = "SIZE"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return bytes_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
