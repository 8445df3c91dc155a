"""The results file of `evaluate qa`, and the tables made from it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from framenest.cache.hashes import digest
from framenest.errors import ConfigError, StoreError
from framenest.evaluation.benchmarks import MAIN_TABLE, BenchmarkQuestion
from framenest.evaluation.recall import REGIMES

Record = dict[str, Any]
Key = tuple[str, str, str, int]  # (run, question, selector, budget)
BEGINS = b'{"kind": "run", '  # the first line of a results file is a run


class QaResults:
    """An append-only file of answers, from which a run can be resumed.

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
        """Begin or resume the run with these settings; returns its name."""
        run = self.name_of(settings)
        if run not in self.runs:
            self.append({"kind": "run", "run": run, "settings": dict(settings)})
        return run

    def has(self, run: str, question: str, selector: str, budget: int) -> bool:
        """Whether there is an answer; a failed attempt does not count."""
        found = self._answers.get((run, question, selector, budget))
        return found is not None and found["error"] is None

    def append(self, record: Record) -> None:
        """Append one line and sync it. A line truncated by a kill is dropped when the file is read."""
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode(errors="surrogatepass")
        with self._lock:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a+b") as file:
                    if file.tell():
                        file.seek(-1, os.SEEK_END)
                        if file.read(1) != b"\n":
                            line = b"\n" + line
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise StoreError(f"{self.path}: cannot be written ({error.strerror})") from error
            self._remember(record)

    def answers(self) -> list[Record]:
        """Every answer; of several attempts, the one that counts."""
        return list(self._answers.values())

    def _remember(self, record: Record) -> None:
        if record["kind"] == "run":
            self.runs[record["run"]] = record["settings"]
        else:
            _keep(self._answers, record)


def _keep(answers: dict[Key, Record], record: Record) -> None:
    """Keep the later of two attempts, unless only the earlier one succeeded."""
    key = (record["run"], record["id"], record["selector"], record["budget"])
    before = answers.get(key)
    if before is None or before["error"] is not None or record["error"] is None:
        answers[key] = record


def read_lines(path: Path) -> Iterator[Record]:
    """The lines of a results file without truncated ones; none if the file does not exist."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    if not BEGINS.startswith(text[: len(BEGINS)]):
        raise ConfigError(f"{path}: not a results file of `framenest evaluate qa`")
    for line in text.split(b"\n"):
        with suppress(ValueError):  # empty or truncated
            yield json.loads(line)


Row = dict[str, Any]  # cells by column: numbers, strings, or None for an empty cell


class ScoredAnswers:
    """The answers of some results files, by way of running, selector, budget and benchmark.

    A way of running is the settings of a run without its benchmark. The annotation file is part of it only
    if a benchmark was asked with several, such as MLVU's dev and test sets. An answer in several files
    counts once: the last one, unless it failed.
    """

    def __init__(self, files: Iterable[QaResults]) -> None:
        self.settings: dict[str, Mapping[str, Any]] = {}  # by way of running
        self._answers: dict[tuple[str, str, int, str], list[Record]] = {}
        runs: dict[str, Record] = {}
        answers: dict[Key, Record] = {}
        for file in files:
            runs |= file.runs
            for record in file.answers():
                _keep(answers, record)
        ways = _ways({run: runs[run] for run, *_ in answers})
        for record in answers.values():
            settings = ways[record["run"]]
            way = repr(sorted(settings.items(), key=str))
            self.settings[way] = settings
            key = (way, record["selector"], record["budget"], runs[record["run"]]["dataset"])
            self._answers.setdefault(key, []).append(record)

    @property
    def budgets(self) -> list[int]:
        """Ascending."""
        return sorted({budget for _, _, budget, _ in self._answers})

    def records(
        self,
        way: str | None = None,
        selector: str | None = None,
        budget: int | None = None,
        dataset: str | None = None,
    ) -> list[Record]:
        """The answers of this kind, failed ones included; None means any."""
        wanted = (way, selector, budget, dataset)
        return [
            record
            for key, records in self._answers.items()
            if all(want in (None, have) for want, have in zip(wanted, key, strict=True))
            for record in records
        ]

    def score(self, way: str, selector: str, budget: int, column: str) -> float | None:
        """A score of the main table, in percent; None if nothing was answered."""
        dataset, measure = MAIN_TABLE[column]
        known = ("id", "video", "answer", "category", "group", "structure")
        marks = []
        for record in self.records(way, selector, budget, dataset):
            if record["error"] is None:
                asked = {name: record[name] for name in known}
                question = BenchmarkQuestion(question="", asked="", options=(), **asked)
                marks.append((question, record["correct"]))
        return measure(marks) if marks else None

    def pairs(self, budget: int | None = None, dataset: str | None = None) -> list[tuple[str, str]]:
        """(way, selector) for which there are records."""
        selectors = dict.fromkeys(selector for _, selector, *_ in self._answers)
        every = ((way, selector) for way in self.settings for selector in selectors)
        return [(way, selector) for way, selector in every if self.records(way, selector, budget, dataset)]

    def row(
        self, way: str, selector: str, cells: Row, budget: int | None = None, dataset: str | None = None
    ) -> Row:
        """A table row: the settings that differ between ways of running, the selector, and these cells.

        If any answer of the table failed, a last cell says how many answers of the row count.
        """
        own = {
            name: value
            for name, value in self.settings[way].items()
            if len({repr(other.get(name)) for other in self.settings.values()}) > 1
        }
        made = own | ({} if budget is None else {"K": budget}) | {"Selector": selector} | cells
        if any(r["error"] is not None for r in self.records(dataset=dataset)):
            records = self.records(way, selector, budget, dataset)
            made["Answered"] = f"{sum(r['error'] is None for r in records)} of {len(records)}"
        return made


def _ways(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """The settings of each run that are its way of running."""
    apart = ("dataset", "annotations")
    rests = {run: {k: v for k, v in settings.items() if k not in apart} for run, settings in runs.items()}
    ways = {}
    for run, settings in runs.items():
        alike = [r for r in runs if rests[r] == rests[run] and runs[r]["dataset"] == settings["dataset"]]
        ways[run] = {"annotations": settings.get("annotations") if len(alike) > 1 else "", **rests[run]}
    return ways


def main_table(scored: ScoredAnswers) -> list[Row]:
    """The paper's main table: a row per budget and selector, eight columns."""
    rows = []
    for way in scored.settings:
        for budget in scored.budgets:
            for selector in [selector for w, selector in scored.pairs(budget) if w == way]:
                cells = {column: scored.score(way, selector, budget, column) for column in MAIN_TABLE}
                rows.append(scored.row(way, selector, cells, budget))
    return rows


def regime_table(scored: ScoredAnswers) -> list[Row]:
    """Video-MME Overall averaged over small, medium and large budgets, as in the paper's ablations."""
    groups: dict[str, Sequence[int]] = dict(zip(("Low", "Med.", "High"), REGIMES.values(), strict=True))
    groups["Avg."] = [k for group in REGIMES.values() for k in group]
    rows = []
    for way, selector, by in _by_budget(scored):
        cells = {name: _mean([by.get(k) for k in ks]) for name, ks in groups.items()}
        rows.append(scored.row(way, selector, cells, dataset="videomme"))
    return rows


def budget_table(scored: ScoredAnswers) -> list[Row]:
    """Video-MME Overall over the budgets: a row per selector."""
    return [
        scored.row(way, selector, {str(k): score for k, score in by.items()}, dataset="videomme")
        for way, selector, by in _by_budget(scored)
    ]


def _by_budget(scored: ScoredAnswers) -> Iterator[tuple[str, str, dict[int, float | None]]]:
    """(way, selector, Video-MME Overall at each budget)."""
    for way, selector in scored.pairs(dataset="videomme"):
        yield way, selector, {k: scored.score(way, selector, k, "Overall") for k in scored.budgets}


def cost_table(scored: ScoredAnswers) -> list[Row]:
    """Means per question: candidates, and seconds of selecting, of reading frames, of the model's answer.

    Cached selections cost nothing and are left out of their mean.
    """
    rows = []
    for way, selector in scored.pairs():
        records = [r for r in scored.records(way, selector) if r["error"] is None]
        if not records:
            continue
        once: dict[tuple[str, str], Mapping[str, Any]] = {}
        for record in records:
            question = (record["run"], record["id"])
            if question not in once or once[question]["kept"]:
                once[question] = record["selection"]
        cells = {
            "Candidates": _mean([s["candidates"] for s in once.values()]),
            "Selection s": _mean([s["seconds"] for s in once.values() if not s["kept"]]),
            "Frames s": _mean([r["frames_seconds"] for r in records]),
            "Answer s": _mean([r["said"]["seconds"] for r in records]),
            "Unreadable": sum(r["choice"] is None for r in records),
            "Answers": len(records),
        }
        rows.append(scored.row(way, selector, cells))
    return rows


TABLES = {"main": main_table, "regimes": regime_table, "budgets": budget_table, "cost": cost_table}


def markdown(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table.

    >>> print(markdown([{"K": 8, "Overall": 63.851, "LVB": None}]))
    | K | Overall | LVB |
    |---|---|---|
    | 8 | 63.85 |  |
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """A number with two decimals, as in the paper; empty for None."""
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _mean(values: Sequence[float | None]) -> float | None:
    """None if a value is missing: an average over fewer would be another number."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
