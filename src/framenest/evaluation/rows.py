"""Rows of an annotation file: a JSON list, JSON lines, CSV, Parquet, or a folder of such files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from framenest.errors import MissingExtra

Row = dict[str, Any]
KINDS = (".json", ".jsonl", ".csv", ".parquet")


def read_rows(path: str | Path) -> list[Row]:
    """All rows, in the order of the file; of a folder, file by file in the order of their names.

    Raises OSError where the file cannot be read and ValueError where it is something else.
    """
    file = Path(path)
    if file.is_dir():
        parts = sorted(part for part in file.iterdir() if part.suffix in KINDS)
        return [row for part in parts for row in read_rows(part)]
    if file.suffix == ".parquet":
        return _parquet(file)
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix == ".csv":
        return list(csv.DictReader(text.splitlines()))
    if text.lstrip().startswith("["):
        rows: list[Row] = json.loads(text)
        return rows
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _parquet(file: Path) -> list[Row]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("benchmarks", "pyarrow") from error
    rows: list[Row] = parquet.read_table(file).to_pylist()
    return rows
