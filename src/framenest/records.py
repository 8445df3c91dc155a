"""Files of data: tables (CSV, TSV, JSON, JSON lines, Parquet, text) and JSON objects with typed fields."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from framenest.errors import ConfigError, IndexMismatch, StoreError, needs_extra
from framenest.text import one_line

csv.field_size_limit(2**31 - 1)  # a cell may be long: the text is in memory already
Made = TypeVar("Made")

Whole = Annotated[int, Meta(ge=0, le=2**53)]
"""0 or more. Up to 2**53, integers are exact in every JSON reader."""
Count = Annotated[int, Meta(ge=1, le=2**53)]
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""Finite: far beyond any time or score, and within what float32 and int64 hold."""
Amount = Annotated[float, Meta(ge=0, le=1e15)]
Name = Annotated[str, Meta(min_length=1)]


_converting = threading.Lock()  # msgspec crashes if two threads convert to a new type at once


class BadField(ValueError):
    """A field is missing or has a wrong value. The message names the field."""


def convert(data: Any, kind: type[Made], where: str = "") -> Made:
    """Convert parsed JSON to a typed value: a dataclass, a msgspec.Struct, a list[Whole], …

    Constraints such as Annotated[int, Meta(ge=1)] are checked; fields that `kind` does not have are ignored.
    BadField names the first wrong field. where: the field that holds the data, for the message.

    >>> convert([3, -1], list[Whole], "pool.frames")
    Traceback (most recent call last):
        ...
    framenest.records.BadField: pool.frames[1] must be a whole number, 0 or more
    """
    try:
        with _converting:
            return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadField(_plain_sentence(str(error), where)) from error


_JSON_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def _plain_sentence(message: str, where: str) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.frames[1]`" for people."""
    what, _, path = message.replace(" at `key` in", " at").partition(" - at `$")
    place = (where + path.rstrip("`").replace("[...]", ".*")).lstrip(".")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{place}.{missing[1]} is missing".lstrip(".")
    if " of length >= 1" in what:
        return f"{place} is empty"
    what = what.replace(" | ", "` or `")
    what = re.sub(r"`([^`]*)`", lambda kind: _JSON_KINDS.get(kind[1], kind[1]), what)
    what = re.sub(r" >= (\S+)", lambda bound: f", {float(bound[1]):g} or more", what)
    what = re.sub(r" <= (\S+)", lambda bound: f", at most {float(bound[1]):g}", what)
    for theirs, ours in (("Expected", "must be"), (", got", ", not"), ("Invalid enum value", "cannot be")):
        what = what.replace(theirs, ours)
    return one_line(f"{place or 'the file'} {what}")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON from elsewhere; ValueError if it is malformed or too deep.

    Whole numbers beyond 64 bits become floats, as in other readers, and may be infinite.

    >>> parse_json("[1, 1e400]"), parse_json("1" + 400 * "0")
    ([1, inf], inf)
    """
    try:
        return json.loads(text, parse_int=lambda digits: (int if len(digits) < 20 else float)(digits))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def load_file(path: str | Path, kind: str, version: int, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """Read a JSON file that Framenest wrote and pass its content to `make`; errors as for `read_result`."""
    return read_result(read_object(path), path, kind, version, make)


def read_result(
    data: Mapping[str, Any],
    path: str | Path,
    kind: str,
    version: int,
    make: Callable[[Mapping[str, Any]], Made],
) -> Made:
    """Pass the content of a ranking, selection or message file to `make`.

    StoreError names `path`, and the field if the file is damaged; IndexMismatch: another format.
    """
    if data.get("kind") != kind:
        raise StoreError(f"{path}: not a {kind} file")
    if data.get("format") != version:
        raise IndexMismatch(
            f"{path}: this {kind} has format {data.get('format')}, "
            f"this version of Framenest reads format {version}"
        )
    try:
        return make(data)
    except (BadField, ConfigError) as error:
        raise StoreError(f"{path}: damaged {kind} file: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StoreError(f"{path}: damaged {kind} file ({one_line(repr(error))})") from error


def read_object(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file holds another JSON value."""
    try:
        data = parse_json(Path(path).read_text(encoding="utf-8", errors="surrogatepass"))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise StoreError(f"{path}: not a ranking file ({error})") from error
    return data if isinstance(data, dict) else {}


SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".txt", ".list")
"""Files that are tables."""


def read_rows(file: Path, *, only: str | None = None) -> list[dict[str, Any]]:
    """Each row as a dict; of a folder, the rows of its tables in the order of their names.

    A line of text, or a bare JSON string, is the value of the column `only`. Raises OSError if reading
    fails and ValueError if parsing does.
    """
    if file.is_dir():
        parts = sorted(part for part in file.iterdir() if part.suffix in SUFFIXES)
        return [row for part in parts for row in read_rows(part, only=only)]
    if file.suffix == ".parquet":
        with needs_extra("parquet", "pyarrow"):
            from pyarrow import ArrowException, parquet
        try:
            return list(parquet.read_table(file).to_pylist())
        except ArrowException as error:
            raise ValueError(str(error)) from error
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix in (".csv", ".tsv"):
        return list(csv.DictReader(io.StringIO(text), delimiter="\t" if file.suffix == ".tsv" else ","))
    rows: list[Any]
    if text.lstrip().startswith("["):
        rows = parse_json(text)
    elif text.lstrip().startswith(("{", '"')):
        rows = [parse_json(line) for line in text.split("\n") if line.strip()]
    else:
        rows = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if only is not None:
        rows = [{only: row} if isinstance(row, str) else row for row in rows]
    for row in rows:
        if not isinstance(row, dict):
            raise ValueError(f"{row!r} is not a row with named columns")
    return rows
