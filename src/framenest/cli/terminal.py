"""What the commands print: tables and facts to stdout, progress and errors to stderr."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from framenest.cache.directory import CacheWarning
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.method.stats import Stats
from framenest.scorers.truncation import CutQuestion
from framenest.text import clock

TOLD = (CacheWarning, CutQuestion)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def note(text: str) -> None:
    err.print(f"[dim]note:[/] {escape(text)}", soft_wrap=True)


def fail(text: str) -> None:
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


class _Speed(ProgressColumn):
    """Frames, or whatever is counted, a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s", style="dim")


class Bars:
    """Progress bars on a terminal; silent elsewhere or when quiet.

    Call it with (stage, done, total) inside `with bars:`; the bars are gone when that is left.
    """

    def __init__(self, quiet: bool) -> None:
        self.off = quiet or not err.is_terminal
        self._shown: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Speed(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("[dim]{task.fields[said]}"),
        )
        self._shown = Progress(*columns, console=err, disable=self.off, transient=True)
        self._tasks = {}
        self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()
            self._shown = None

    def __call__(self, stage: str, done: int, total: int, *, said: str = "") -> None:
        if self._shown is None:
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._shown.add_task(stage, total=total, said=said)
        self._shown.update(self._tasks[stage], completed=done, total=total, said=said)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """What goes wrong with the cache, and what a scorer did not read, is told in one line each."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, TOLD):
            note(str(message))

    with warnings.catch_warnings():
        for category in TOLD:
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield


def print_facts(ranking: Ranking) -> None:
    """What was ranked, how, and what was not seen."""
    video, stats = ranking.video, ranking.stats
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", justify="right")
    facts.add_column(overflow="fold")
    rate = f"{video.fps:.4g} fps" + ("" if video.constant_rate else " on average")
    facts.add_row("video", escape(short_path(video.path)))
    facts.add_row(
        "", f"{clock(video.duration)}, {video.num_frames:,} frames, {rate}, {video.width}×{video.height}"
    )
    facts.add_row("question", escape(ranking.question) if ranking.question is not None else "(none)")
    facts.add_row("scorer", escape(ranking.scorer))
    read = f"; text read on {stats.read} of them" if stats.read is not None else ""
    facts.add_row("looked at", f"{stats.probes} probes + {stats.zoom} zoom frames{read}")
    facts.add_row("not seen", f"up to {stats.largest_gap_seconds:.2f} s at a stretch, between probes")
    frames = {"encode": stats.decoded, "match": stats.candidates}
    spent = ", ".join(
        f"{stage} {value:.2f}" + (f" ({frames[stage] / value:.0f} frames/s)" if frames.get(stage) else "")
        for stage, value in stats.seconds.items()
        if value >= 0.005
    )
    facts.add_row("seconds", spent or "none worth telling")
    for text in (*video.notes, *_losses(stats)):
        facts.add_row("[yellow]note[/]", escape(text))
    out.print(facts)


def short_path(path: str) -> str:
    """A path below the working directory without that directory."""
    here = f"{Path.cwd()}{os.sep}"
    return path.removeprefix(here)


def _losses(stats: Stats) -> list[str]:
    replaced = sum(used >= 0 for _, used in stats.substitutes)
    dropped = len(stats.substitutes) - replaced
    said = []
    if replaced:
        said.append(f"{replaced} frames would not decode; an earlier neighbour stands in for each")
    if dropped:
        said.append(f"{dropped} frames would not decode and had no neighbour to stand in")
    return said


_SHORT = {"relevance": "relev.", "observability": "observ.", "coverage": "cover.", "diversity": "divers."}


def print_ranks(ranking: Ranking, count: int) -> None:
    """The first ranks with their evidence parts."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in ("rank", "time", "frame"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("from", no_wrap=True)
    columns: dict[str, Any] = {
        "evid.": ranking.evidence,
        **{_SHORT.get(name, name): column for name, column in {**ranking.cues, **ranking.terms}.items()},
    }
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for i in range(min(count, len(ranking))):
        table.add_row(
            str(i + 1),
            clock(float(ranking.seconds[i])),
            str(int(ranking.frames[i])),
            "zoom" if ranking.is_zoom[i] else "probe",
            *(f"{float(column[i]):.3f}" for column in columns.values()),
        )
    out.print(table)
    if count < len(ranking):
        out.print(f"[dim]{len(ranking) - count} more ranks[/]")


def print_prefix(prefix: Prefix) -> None:
    """The frames of one budget, in time order."""
    times = " ".join(clock(float(s)) for s in prefix.seconds)
    short = f" (all {len(prefix)} candidates of this short video)" if prefix.complete else ""
    out.print(f"[bold]K={prefix.budget}[/]{short}  {times}", soft_wrap=True)
