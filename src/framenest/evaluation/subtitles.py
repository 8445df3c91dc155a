"""Subtitles in the formats of the benchmarks: SubRip, JSON and JSON lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

from framenest.errors import ConfigError, StoreError

SUBTITLES = (".srt", ".json", ".jsonl")
_TIMES = re.compile(r"^\d+\s*$|-->")
_TAG = re.compile(r"<[^>]+>")


def subtitle_text(path: str | Path) -> str:
    """All that is said, in order, without times.

    Reads SubRip (Video-MME), JSON lines of {"text"} (Video-MME-v2), and a JSON list of {"text"} or
    {"line"} (LongVideoBench).
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
        if file.suffix == ".srt":
            lines = [_TAG.sub("", line).strip() for line in text.splitlines() if not _TIMES.search(line)]
            return "\n".join(line for line in lines if line)
        cues = json.loads(text) if file.suffix == ".json" else map(json.loads, filter(None, text.split("\n")))
        said = [str(cue["text"] if "text" in cue else cue["line"]).strip() for cue in cues]
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: not a subtitle file ({error!r})") from error
    return (" " if file.suffix == ".jsonl" else "\n").join(said)


def with_subtitles(prompt: str, text: str) -> str:
    """The prompt after what is said in the video."""
    return f"This video's subtitles are listed below:\n{text}\n{prompt}"
