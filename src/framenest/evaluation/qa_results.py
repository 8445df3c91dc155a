"""The results of `evaluate qa`: JSON lines, append-only, safe to kill at any moment.

A line {"kind": "run", "run", "settings"} tells how a run was made; a line {"kind": "answer", "run", …}
holds one question, selector and budget. One file may hold many runs and benchmarks.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from framenest.cache.hashes import digest
from framenest.errors import ConfigError, StoreError
from framenest.evaluation.benchmarks import BenchmarkQuestion

Record = dict[str, Any]
Key = tuple[str, str, str, int]
"""(run, question, selector, budget)"""
BEGINS = b'{"kind": '
"""A first line that was cut short is told from a foreign file by this."""


class QaResults:
    """A file of results, opened to go on with it.

    >>> results = QaResults("results.jsonl")
    >>> run = results.begin({"dataset": "videomme", "model": "…"})
    >>> results.has(run, "001-1", "mec", 8)
    False
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.runs: dict[str, Record] = {}
        self._answers: dict[Key, Record] = {}
        self._lock = threading.Lock()
        for record in read_lines(self.path):
            self._remember(record)

    @staticmethod
    def name_of(settings: Mapping[str, Any]) -> str:
        """The name of a run with these settings."""
        return digest(dict(settings))[:12]

    def begin(self, settings: Mapping[str, Any]) -> str:
        """The name of a run with these settings; the same settings go on with the same run."""
        run = self.name_of(settings)
        if run not in self.runs:
            self.append({"kind": "run", "run": run, "settings": dict(settings)})
        return run

    def has(self, run: str, question: str, selector: str, budget: int) -> bool:
        """Whether there is an answer; a failed attempt is none."""
        found = self._answers.get((run, question, selector, budget))
        return found is not None and found["error"] is None

    def append(self, record: Record) -> None:
        """Write one line, whole: a line that a kill cut short is dropped when the file is read again."""
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode(errors="surrogatepass")
        with self._lock:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("ab") as file:
                    if file.tell() and not _ends_a_line(self.path):
                        line = b"\n" + line
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise StoreError(f"{self.path}: cannot be written ({error.strerror})") from error
            self._remember(record)

    def answers(self) -> list[Record]:
        """Every answer, the last attempt where there were several."""
        return list(self._answers.values())

    def _remember(self, record: Record) -> None:
        if record["kind"] == "run":
            self.runs[record["run"]] = record["settings"]
        else:
            key = (record["run"], record["id"], record["selector"], record["budget"])
            self._answers[key] = later(self._answers.get(key), record)


def later(before: Record | None, record: Record) -> Record:
    """The later of two attempts at one question, unless only the earlier succeeded."""
    failed_since = before is not None and before["error"] is None and record["error"] is not None
    return before if before is not None and failed_since else record


def read_lines(path: Path) -> Iterator[Record]:
    """The lines of a results file; a line cut short is left out, as is a missing file."""
    foreign = ConfigError(f"{path}: not a results file of `framenest evaluate qa`")
    whole = False
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    for line in text.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:  # empty, or the process stopped in the middle of it
            continue
        if not isinstance(record, dict) or record.get("kind") not in ("run", "answer"):
            raise foreign
        whole = True
        yield record
    if text.strip() and not whole and not text.startswith(BEGINS):
        raise foreign


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def question_of(record: Mapping[str, Any]) -> BenchmarkQuestion:
    """As much of the question as scoring needs, from the line of its answer."""
    known = {name: record[name] for name in ("id", "video", "answer", "category", "group", "structure")}
    return BenchmarkQuestion(question="", asked="", options=(), **known)
