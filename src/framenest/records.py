"""Rows of a table file: CSV, TSV, a JSON list, JSON lines, Parquet, or text with one value per line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from framenest.errors import MissingExtra

SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".txt", ".list")
"""Files that are tables."""


def read_rows(file: Path, *, only: str | None = None) -> list[dict[str, Any]]:
    """Each row as a dict; of a folder, the rows of its tables in the order of their names.

    A line of text, or a bare JSON string, is the value of the column `only`. Raises OSError where reading
    fails and ValueError where parsing does.
    """
    if file.is_dir():
        parts = sorted(part for part in file.iterdir() if part.suffix in SUFFIXES)
        return [row for part in parts for row in read_rows(part, only=only)]
    if file.suffix == ".parquet":
        return _parquet(file)
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix in (".csv", ".tsv"):
        return list(csv.DictReader(io.StringIO(text), delimiter="\t" if file.suffix == ".tsv" else ","))
    rows: list[Any]
    if text.lstrip().startswith("["):
        rows = json.loads(text)
    elif text.lstrip().startswith(("{", '"')):
        rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    else:
        rows = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [row if isinstance(row, dict) else _alone(row, only) for row in rows]


def _alone(value: Any, only: str | None) -> dict[str, Any]:
    if only is None or not isinstance(value, str):
        raise ValueError(f"{value!r} is not a row with named columns")
    return {only: value}


def _parquet(file: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise MissingExtra("parquet", "pyarrow") from error
    try:
        rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    except ArrowException as error:
        raise ValueError(str(error)) from error
    return rows
