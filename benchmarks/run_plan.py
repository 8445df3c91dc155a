"""What `reproduce.py --run plan.toml` does: commands in bash, a journal, servers, and GPU hours beforehand.

A plan's steps are commands, or answers of a model to benchmarks with frames of selectors, at budgets. What is
done once, for one table, counts for all. Everything below the plan's folder:

journal.jsonl  what is done, with its seconds. A second start goes on after it.
logs/          what each command printed.
answers/       lmms-eval's cache: a command that was interrupted goes on after its last stored answers.
results/       lmms-eval's results.
probes/        the same of the probes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lmms_eval_results import QUESTIONS, RESULT_FILES

from framenest.errors import ConfigError
from framenest.evaluation.lmms_eval.tasks import NATIVE, SELECTORS, TASKS, task_name
from framenest.selectors import mec_config, needs_scorer

PROBES = 20
PROBED = "videomme_long"
"""The task of the probes: an hour's video costs most, so estimates are upper bounds."""
SERVER_PATIENCE_SECONDS = 3600
NEEDED = {"folder", "gpus", "scorer", "launch", "steps"}
KEYS = NEEDED | {"options", "models", "servers", "include_path", "prefix"}
NEEDED_IN = {
    "models": {"name", "arguments", "budget"},
    "servers": {"command", "ready"},
    "steps": {"table", "model", "benchmarks", "selectors", "budgets"},
}
"""Or a step has a command."""
COUNTS = re.compile(r"framenest: (\d+) of \d+ answers are new, ([\d.]+) s of the model")
Model = Mapping[str, Any]
Planned = set[tuple[str, int, str, str]]
"""(model, budget, benchmark, selector)"""


class StepFailed(SystemExit):
    """A command of the plan failed."""


@dataclass(frozen=True)
class Run:
    """Answers of a model with K frames: to these tasks, in one command. tasks: (benchmark, selector)."""

    table: str
    model: str
    budget: int
    tasks: tuple[tuple[str, str], ...]


class Plan:
    """A plan's file. `only`: the tables wanted; all if empty."""

    def __init__(self, file: str, only: Sequence[str] = (), dry: bool = False) -> None:
        try:
            self._data = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}: cannot be read ({error})") from error
        self._data = {"models": {}, "servers": {}, **self._data}
        check(file, self._data)
        self.steps = [step for step in self._data["steps"] if not only or step["table"] in only]
        missing = set(only) - {step["table"] for step in self.steps}
        if missing:
            raise ConfigError(f"{file}: no step for the table {sorted(missing)[0]!r}")
        self.folder = Path(self._data["folder"])
        self.dry = dry
        self._journal: dict[str, dict[str, Any]] = {}
        with suppress(FileNotFoundError):
            lines = (self.folder / "journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
            entries = (json.loads(line) for line in lines if line.endswith("\n"))  # a crash may cut the last
            self._journal = {entry["what"]: entry for entry in entries}

    # What there is to do.

    def model(self, name: str) -> Model:
        found: Model = self._data["models"][name]
        return found

    def runs(self, step: Mapping[str, Any], planned: Planned) -> Iterator[Run]:
        """The runs of a step without what is done or planned, which is added to."""
        for model in names_in(step, "model"):
            for budget in step["budgets"]:
                tasks = []
                for benchmark in step["benchmarks"]:
                    for selector in step["selectors"]:
                        one = (model, budget, benchmark, selector)
                        if one not in planned and self._serves(selector, budget) and not self.is_done(*one):
                            planned.add(one)
                            tasks.append((benchmark, selector))
                if tasks:
                    yield Run(step["table"], model, budget, tuple(tasks))

    def results(self) -> list[str]:
        """The folder of lmms-eval's results, if it has any."""
        return [str(self.folder / "results")] if self._result_files() else []

    @staticmethod
    def _serves(selector: str, budget: int) -> bool:
        name, _, settings = selector.partition(":")
        return name != "mec" or budget <= mec_config(settings).ranking.horizon

    def is_done(self, model: str, budget: int, benchmark: str, selector: str) -> bool:
        return any(
            [benchmark, selector] in entry.get("tasks", []) and entry["done_as"] == [model, budget]
            for entry in self._journal.values()
            if "done_as" in entry
        )

    def _task(self, benchmark: str, selector: str) -> str:
        task = next(task for task in TASKS if task.name == benchmark)
        return self._data.get("prefix", "") + task_name(task, selector)

    # Commands.

    def prepare_command(self, tasks: Sequence[tuple[str, str]], budgets: Sequence[int], *more: str) -> str:
        """Select frames, one process a GPU; every process must succeed.

        One process alone comes first, since several would download a benchmark at the same time.
        """
        chosen = [task for task in tasks if task[1] != NATIVE and needs_scorer(task[1])]
        if not chosen:
            return ""
        names = " ".join(self._task(*task) for task in chosen)
        base = f"framenest lmms-eval prepare {names} {self._source([s for _, s in chosen])}"
        base += f" --budgets {','.join(map(str, sorted(set(budgets))))}{''.join(f' {word}' for word in more)}"
        gpus = self._data["gpus"]
        if more or gpus == 1:
            return base
        return (
            f"{base} --limit 1 || exit 1; pids=; for i in $(seq {gpus}); do "
            f"CUDA_VISIBLE_DEVICES=$((i - 1)) {base} --part $i/{gpus} & "
            'pids="$pids $!"; done; for pid in $pids; do wait $pid || exit 1; done'
        )

    def _source(self, selectors: Sequence[str]) -> str:
        if "include_path" in self._data:
            return f"--include-path {shlex.quote(self._data['include_path'])}"
        others = set(selectors) - set(SELECTORS)
        listed = f" --selectors {shlex.quote(','.join(dict.fromkeys(selectors)))}" if others else ""
        return f"--scorer {self._data['scorer']}{listed}"

    def answer_command(self, run: Run, *more: str, place: str = "") -> str:
        """lmms-eval, with tasks of which it stores the answers."""
        model = self.model(run.model)
        include = shlex.quote(self._data.get("include_path", ""))
        if not self._data.get("include_path"):
            sent = f" --frames-as {model['frames_as']} -k {run.budget}" if "frames_as" in model else ""
            include = f'"$(framenest lmms-eval tasks {self._source([s for _, s in run.tasks])}{sent})"'
        launch = self._data["launch"] if "server" not in model else "python -m lmms_eval"
        words = [
            model.get("launch", launch), "--model", model["name"], "--model_args",
            shlex.quote(f"{model['arguments']},{model['budget']}={run.budget}"), "--tasks",
            ",".join(self._task(*task) for task in run.tasks), "--include_path", include,
            self._data.get("options", ""), model.get("options", ""), "--log_samples", "--use_cache",
            str(self.folder / place / "answers"), "--output_path", str(self.folder / place / "results"),
            *more,
        ]  # fmt: skip
        return " ".join(word for word in words if word)

    def do(self, command: str, *, once: bool = True, **facts: Any) -> dict[str, Any]:
        """Run a command; its output goes to a file.

        once: unless the journal has it, and then note it there, with `facts`.
        """
        if not command or (once and command in self._journal):
            return self._journal.get(command, {})
        print(f"$ {command}", flush=True)
        if self.dry:
            return {}
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{len(list(logs.iterdir())) + 1:03d}.txt"
        start, before = time.monotonic(), self._result_files()
        with log.open("wb") as file:
            file.write(f"$ {command}\n".encode())
            file.flush()
            with process_group(command, file) as process:
                code = process.wait()
        made = [json.loads(file.read_text())["results"] for file in self._result_files() - before]
        missing = {self._task(*task) for task in facts.get("tasks", [])}.difference(*made)
        if code or missing:  # lmms-eval exits with 0 where it cannot load a model
            lines = log.read_text(errors="replace").splitlines()
            named = [line for line in lines if re.search("framenest: (?!.* are new)|error: ", line)]
            tail = "\n".join(dict.fromkeys([*named[-5:], *lines[-15:]]))  # which may be torchrun's alone
            raise StepFailed(
                f"{tail}\nThe command failed; all of it is in {log}. `--run` again goes on from here."
            )
        entry = {"what": command, "seconds": round(time.monotonic() - start, 1), **facts, "log": str(log)}
        if once:
            self._note(entry)
        return entry

    def _result_files(self) -> set[Path]:
        return set((self.folder / "results").rglob(RESULT_FILES))

    def _note(self, entry: dict[str, Any]) -> None:
        self._journal[entry["what"]] = entry
        with (self.folder / "journal.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    # Servers.

    @contextmanager
    def serving(self, name: str | None) -> Iterator[None]:
        """A context in which this server answers; it ends with the context."""
        if name is None:
            yield
            return
        server = self._data["servers"][name]
        print(f"$ {server['command']} &", flush=True)
        if self.dry:
            yield
            return
        if responds(server["ready"]):
            raise StepFailed(
                f"another server answers at {server['ready']}; end it, or change the plan's port"
            )
        log = self.folder / "logs" / f"server-{name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file, process_group(server["command"], file) as process:
            wait_for(server["ready"], process, log)
            yield

    # All of it.

    def estimate(self) -> str:
        """GPU hours of each table for what is not done yet, from probes: a Markdown table.

        Selections of a table are those that no earlier table needs.
        """
        planned: Planned = set()
        by_table: dict[str, list[Run]] = {}
        for step in self.steps:
            if "model" in step:
                by_table.setdefault(step["table"], []).extend(self.runs(step, planned))
        selections = {table: self._selection_hours(table, runs) for table, runs in by_table.items()}
        prices: dict[str, dict[int, float]] = {}
        for model in dict.fromkeys(run.model for runs in by_table.values() for run in runs):
            probes = self._probes(model)
            self.do(self.model(model).get("setup", ""))
            with self.serving(self.model(model).get("server")):
                prices[model] = {run.budget: self._price(run) for run in probes}
        lines = ["| Table | Answers | GPU hours, answers | GPU hours, selections |", "|---|---|---|---|"]
        for table, runs in by_table.items():
            answers = {run: sum(QUESTIONS[benchmark] for benchmark, _ in run.tasks) for run in runs}
            hours = sum(n * between(prices[run.model], run.budget) for run, n in answers.items()) / 3600
            lines.append(f"| {table} | {sum(answers.values()):,} | {hours:,.1f} | {selections[table]:,.1f} |")
        return "\n".join(lines)

    def _probes(self, model: str) -> list[Run]:
        """A model's smallest and largest budget, each with the first selector that serves it.

        They do not depend on what is done, so a second start finds them in the journal.
        """
        first: dict[int, str] = {}
        for step in self.steps:
            for budget in step["budgets"] if model in names_in(step, "model") else []:
                for selector in step["selectors"]:
                    if self._serves(selector, budget):
                        first.setdefault(budget, selector)
        return [Run("probe", model, k, ((PROBED, first[k]),)) for k in sorted({min(first), max(first)})]

    def _price(self, run: Run) -> float:
        """GPU seconds of an answer of a probe."""
        entry = self.do(self.answer_command(run, "--limit", str(PROBES), place="probes"))
        if not entry:
            return 0.0
        if "gpu_seconds" not in entry:
            counts = COUNTS.findall(Path(entry["log"]).read_text(errors="replace"))
            new, seconds = sum(int(n) for n, _ in counts), sum(float(s) for _, s in counts)
            if not new:
                raise StepFailed(f"{entry['log']}: the probe asked nothing; delete {self.folder / 'probes'}")
            entry["gpu_seconds"] = self._data["gpus"] * seconds / len(counts) / new
            self._note(entry)
        return float(entry["gpu_seconds"])

    def _selection_hours(self, table: str, runs: Sequence[Run]) -> float:
        """GPU hours for all selections of a table that no earlier one needs."""
        budgets = [k for step in self.steps if step["table"] == table for k in step.get("budgets", [])]
        selectors = dict.fromkeys(selector for run in runs for _, selector in run.tasks)
        tasks = [(PROBED, selector) for selector in selectors]
        more = ("--limit", str(PROBES), "--json")
        entry = self.do(self.prepare_command(tasks, budgets, *more))
        if not entry:
            return 0.0
        report = json.loads(Path(entry["log"]).read_text(errors="replace").strip().splitlines()[-1])
        questions = sum(QUESTIONS[benchmark] for benchmark in {b for run in runs for b, _ in run.tasks})
        return float(report["seconds"]) / PROBES * questions / 3600

    def run(self) -> None:
        """Prepare and answer, step by step; what the journal has is left out."""
        planned: Planned = set()
        for step in self.steps:
            if "command" in step:
                if step["command"] not in self._journal:
                    with self.serving(step.get("server")):
                        self.do(step["command"])
                continue
            runs = list(self.runs(step, planned))
            tasks = list(dict.fromkeys(task for run in runs for task in run.tasks))
            self.do(self.prepare_command(tasks, step["budgets"]), once=False)
            for model in dict.fromkeys(run.model for run in runs):
                self.do(self.model(model).get("setup", ""))
                with self.serving(self.model(model).get("server")):
                    for run in runs:
                        if run.model == model:
                            done = {
                                "done_as": [model, run.budget],
                                "tasks": [list(task) for task in run.tasks],
                            }
                            self.do(self.answer_command(run), **done)


@contextmanager
def process_group(command: str, output: BinaryIO) -> Iterator[subprocess.Popen[bytes]]:
    """A command in bash; on leaving the context, it and all that it started end."""
    process = subprocess.Popen(
        ["bash", "-c", command], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def names_in(step: Mapping[str, Any], key: str) -> list[str]:
    """A step's names under a key: one, several or none."""
    names = step.get(key, [])
    return [names] if isinstance(names, str) else names


def check(file: str, data: Mapping[str, Any]) -> None:
    """ConfigError for what a plan lacks, or names and does not have."""
    for key in sorted(set(data) - KEYS):
        raise ConfigError(f"{file}: unknown key {key!r}; choose from {sorted(KEYS)}")
    for key in sorted(NEEDED - set(data)):
        raise ConfigError(f"{file}: has no {key!r}")
    steps = {f"step {number}": step for number, step in enumerate(data["steps"], 1)}
    known = {"model": data["models"], "server": data["servers"], "benchmarks": QUESTIONS}
    for kind, entries in {**data, "steps": steps}.items():
        for name, entry in entries.items() if kind in NEEDED_IN else []:
            needed = {"table"} if kind == "steps" and "command" in entry else NEEDED_IN[kind]
            for key in sorted(needed - set(entry)):
                raise ConfigError(f"{file}: {name} has no {key!r}")
            for key, names in known.items():
                for unknown in sorted(set(names_in(entry, key)) - set(names)):
                    raise ConfigError(
                        f"{file}: {name} has the {key} {unknown!r}; choose from {', '.join(names)}"
                    )


def between(prices: Mapping[int, float], budget: int) -> float:
    """A price for a budget, on the line through those of the smallest and the largest.

    >>> between({8: 1.0, 256: 32.0}, 132)
    16.5
    """
    (low, first), (high, last) = min(prices.items()), max(prices.items())
    return first if low == high else first + (last - first) * (budget - low) / (high - low)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers at an address."""
    end = time.monotonic() + SERVER_PATIENCE_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise StepFailed(f"the server ended with {process.returncode}; its output is in {log}")
        if responds(url):
            return
        time.sleep(1)
    raise StepFailed(f"the server does not answer at {url}; its output is in {log}")


def responds(url: str) -> bool:
    """Whether a server answers at an address, and not with an error."""
    with suppress(OSError):
        urllib.request.urlopen(url, timeout=10).close()
        return True
    return False


def run_plan(plan: Plan, *, stop_after_estimate: bool) -> bool:
    """Run a plan; whether anything but probes ran."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that servers and ranks end, too
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, lambda *_: sys.exit("ended by a signal"))
    hours = plan.estimate()
    if not plan.dry:
        print(
            f"At most, from {PROBES} answers about the longest videos, for what is not done yet:\n\n{hours}\n"
        )
    if stop_after_estimate:
        return False
    sys.stdout.flush()
    plan.run()
    return not plan.dry
