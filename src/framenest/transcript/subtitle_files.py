"""Subtitle files: SubRip, WebVTT and SubStation through pysubs2; JSON of whisper and its kin; JSON lines."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from framenest.errors import ConfigError, StoreError
from framenest.text import one_line, size_text
from framenest.transcript.transcript import Line

SUBTITLE_SUFFIXES = (".srt", ".vtt", ".ass", ".ssa", ".json", ".jsonl")
"""In the order in which they are looked for beside a video."""
LARGEST = 64 * 2**20
_LISTS = ("segments", "chunks", "transcription", "lines")
"""Where whisper (faster-whisper, WhisperX, OpenAI's API), transformers and whisper.cpp have their lines."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")


def read_lines(path: str | Path) -> tuple[list[Line], list[str]]:
    """The lines of a subtitle file as they stand in it, and what was odd about the file.

    Args:
        path: .srt, .vtt, .ass, .ssa; .json of whisper, faster-whisper, WhisperX, whisper.cpp, OpenAI's
            API, transformers, or a list of {"start", "end", "text"}; .jsonl of such objects.

    Returns:
        The lines, times in seconds on the file's own clock (NaN where there is none), and notes.

    Raises:
        StoreError: the file cannot be read.
        ConfigError: it is no subtitle file.

    >>> _ = Path("kiln.srt").write_text("1\\n00:00:07,000 --> 00:00:08,500\\nNow we <i>fire</i> it.\\n")
    >>> read_lines("kiln.srt")
    ([Line(start=7.0, end=8.5, text='Now we fire it.')], [])
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > LARGEST:
            raise ConfigError(f"{file}: {size_text(size)} is too much for a subtitle file")
        text, notes = _decoded(file.read_bytes(), file.name)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    try:
        lines = [*(_json_lines(file, text) if file.suffix.lower() in (".json", ".jsonl") else _cues(text))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
        raise ConfigError(f"{file}: not a subtitle file ({one_line(error, 120)})") from error
    return [Line(a, b, _CONTROL.sub("", t)) for a, b, t in lines], notes


def plain_text(markup: str) -> str:
    """The words of a line without the tags of SubRip, WebVTT and SubStation.

    >>> plain_text("{\\\\an8}Now we <c.yellow>fire</c> it.\\\\NSlowly.")
    'Now we fire it.\\nSlowly.'
    """
    import pysubs2

    text: str = pysubs2.SSAEvent(text=re.sub(r"</?[a-zA-Z0-9][^<>]*>", "", markup)).plaintext
    return text


def _decoded(data: bytes, name: str) -> tuple[str, list[str]]:
    """The text of a file, whatever wrote it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace"), []
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace"), [f"{name}: not UTF-8; read as Windows-1252"]


def _cues(text: str) -> Iterator[Line]:
    import pysubs2

    try:
        found = pysubs2.SSAFile.from_string(text.replace("\r\n", "\n").replace("\r", "\n"))
    except pysubs2.exceptions.Pysubs2Error as error:
        raise ValueError("neither SubRip, WebVTT nor SubStation") from error
    for event in found:
        if not event.is_comment:
            said = plain_text(event.text)
            # In WebVTT a blank row ends a cue; what follows names the next one, or is a remark.
            said = said.partition("\n\n")[0] if found.format == "vtt" else said
            yield Line(event.start / 1000, event.end / 1000, said)


def _json_lines(file: Path, text: str) -> Iterator[Line]:
    if file.suffix.lower() == ".jsonl":
        rows: Any = [json.loads(row) for row in text.splitlines() if row.strip()]
    else:
        rows = json.loads(text)
    if isinstance(rows, dict):
        rows = next((rows[name] for name in _LISTS if isinstance(rows.get(name), list)), None)
    if not isinstance(rows, list):
        raise TypeError(f"no list of lines; looked for {', '.join(_LISTS)}")
    for row in rows:
        said = row["text"] if "text" in row else row["line"]
        start, end = row.get("start"), row.get("end")
        if "timestamp" in row:
            start, end = row["timestamp"]
        elif isinstance(row.get("offsets"), dict):  # whisper.cpp, milliseconds
            start, end = (_seconds(row["offsets"].get(name)) / 1000 for name in ("from", "to"))
        yield Line(_seconds(start), _seconds(end), str(said))


def _seconds(value: object) -> float:
    """A number of seconds, or 1:02:03.5; NaN for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        parts = [float(part) for part in str(value).replace(",", ".").split(":")]
    except ValueError:
        return math.nan
    return math.fsum(part * 60**power for power, part in enumerate(reversed(parts)))
