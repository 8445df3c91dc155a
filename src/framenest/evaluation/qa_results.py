"""The results of evaluate qa, and their tables."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from framenest.cache.hashes import digest
from framenest.errors import ConfigError, StoreError
from framenest.evaluation.benchmarks import MAIN_TABLE, SCORES, BenchmarkQuestion
from framenest.evaluation.recall import REGIMES

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


Row = dict[str, Any]
"""Cells by column; numbers, texts, or None for an empty cell."""


class ScoredAnswers:
    """The answers of some result files, by how they were made, selector, budget and benchmark.

    An answer that is in several files counts once: the last, unless it failed. Annotations are part of how
    a run was made only where a benchmark was asked with several, as MLVU's dev and test sets.
    """

    def __init__(self, files: Iterable[QaResults]) -> None:
        self.settings: dict[str, Mapping[str, Any]] = {}
        self._answers: dict[tuple[str, str, int, str], list[Record]] = {}
        runs: dict[str, Record] = {}
        answers: dict[Key, Record] = {}
        for file in files:
            runs |= file.runs
            for record in file.answers():
                same = (record["run"], record["id"], record["selector"], record["budget"])
                answers[same] = later(answers.get(same), record)
        hows = _ways({run: runs[run] for run, *_ in answers})
        for record in answers.values():
            how, rest = hows[record["run"]]
            self.settings[how] = rest
            key = (how, record["selector"], record["budget"], runs[record["run"]]["dataset"])
            self._answers.setdefault(key, []).append(record)

    def only(self, how: str) -> ScoredAnswers:
        """The answers that were made this way."""
        part = ScoredAnswers([])
        part.settings = {how: self.settings[how]}
        part._answers = {key: records for key, records in self._answers.items() if key[0] == how}
        return part

    @property
    def selectors(self) -> list[str]:
        """Names, in the order in which they first come."""
        return list(dict.fromkeys(selector for _, selector, *_ in self._answers))

    @property
    def budgets(self) -> list[int]:
        """Ascending."""
        return sorted({budget for _, _, budget, _ in self._answers})

    def scores(self, how: str, selector: str, budget: int, dataset: str) -> Mapping[str, float | None]:
        """All scores of a benchmark; empty where nothing was answered."""
        found = [r for r in self._answers.get((how, selector, budget, dataset), []) if r["error"] is None]
        return SCORES[dataset]([(question_of(r), r["correct"]) for r in found]) if found else {}

    def records(
        self, how: str, selector: str, budget: int | None = None, dataset: str | None = None
    ) -> list[Record]:
        """The answers of a selector, failed ones too, at one budget or all, of one benchmark or all."""
        return [
            record
            for (h, s, k, d), records in self._answers.items()
            if (h, s) == (how, selector) and budget in (None, k) and dataset in (None, d)
            for record in records
        ]

    def pairs(self, dataset: str | None = None) -> list[tuple[str, str]]:
        """(how, selector) of which there are records."""
        every = ((how, selector) for how in self.settings for selector in self.selectors)
        return [(how, selector) for how, selector in every if self.records(how, selector, None, dataset)]

    def row(
        self, how: str, selector: str, cells: Row, budget: int | None = None, dataset: str | None = None
    ) -> Row:
        """Cells after what tells this run's settings from the others', nothing where all are alike.

        Where an answer of the table failed, a last cell says how many records of the row count.
        """
        own = {
            name: value
            for name, value in self.settings[how].items()
            if len({repr(other.get(name)) for other in self.settings.values()}) > 1
        }
        made = own | ({} if budget is None else {"K": budget}) | {"Selector": selector} | cells
        table = [r for key, records in self._answers.items() if dataset in (None, key[3]) for r in records]
        if any(r["error"] is not None for r in table):
            records = self.records(how, selector, budget, dataset)
            made["Answered"] = f"{sum(r['error'] is None for r in records)} of {len(records)}"
        return made


def _ways(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, Row]]:
    """By run: a name for how it was made, and the settings that this is."""
    apart = ("dataset", "annotations")
    rests = {run: {k: v for k, v in settings.items() if k not in apart} for run, settings in runs.items()}
    hows: dict[str, tuple[str, Row]] = {}
    for run, settings in runs.items():
        alike = [r for r in runs if rests[r] == rests[run] and runs[r]["dataset"] == settings["dataset"]]
        rest = {"annotations": settings.get("annotations") if len(alike) > 1 else "", **rests[run]}
        hows[run] = (repr(sorted(rest.items(), key=str)), rest)
    return hows


def main_table(scored: ScoredAnswers) -> list[Row]:
    """The paper's main table: a row per budget and selector, eight columns."""
    rows = []
    for how in scored.settings:
        for budget in scored.budgets:
            for selector in scored.selectors:
                if scored.records(how, selector, budget):
                    cells = {
                        column: scored.scores(how, selector, budget, dataset).get(score)
                        for column, (dataset, score) in MAIN_TABLE.items()
                    }
                    rows.append(scored.row(how, selector, cells, budget))
    return rows


def regime_table(scored: ScoredAnswers, column: str = "Overall") -> list[Row]:
    """One score averaged over small, medium and large budgets, as in the paper's ablations."""
    groups: dict[str, Sequence[int]] = dict(zip(("Low", "Med.", "High"), REGIMES.values(), strict=True))
    groups["Avg."] = [k for group in REGIMES.values() for k in group]
    dataset, _ = MAIN_TABLE[column]
    return [
        scored.row(how, selector, {name: _mean([by.get(k) for k in ks]) for name, ks in groups.items()},
                   dataset=dataset)
        for how, selector, by in _by_budget(scored, column)
    ]  # fmt: skip


def budget_table(scored: ScoredAnswers, column: str = "Overall") -> list[Row]:
    """One score over the budgets: a row per selector."""
    dataset, _ = MAIN_TABLE[column]
    return [
        scored.row(how, selector, {str(k): score for k, score in by.items()}, dataset=dataset)
        for how, selector, by in _by_budget(scored, column)
    ]


def _by_budget(scored: ScoredAnswers, column: str) -> Iterator[tuple[str, str, dict[int, float | None]]]:
    """How, selector, and one score at every budget."""
    dataset, score = MAIN_TABLE[column]
    for how, selector in scored.pairs(dataset):
        yield how, selector, {k: scored.scores(how, selector, k, dataset).get(score) for k in scored.budgets}


def cost_table(scored: ScoredAnswers) -> list[Row]:
    """Means per question: candidates, and seconds of selecting, of reading frames, of the model's answer.

    Selections that were kept from an earlier run cost nothing and are left out of their mean.
    """
    rows = []
    for how, selector in scored.pairs():
        records = [r for r in scored.records(how, selector) if r["error"] is None]
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
        rows.append(scored.row(how, selector, cells))
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
    """A number with two digits as in the paper; an empty cell for None."""
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _mean(values: Sequence[float | None]) -> float | None:
    """None where one is missing: an average over fewer would be another number."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there and len(there) == len(values) else None
