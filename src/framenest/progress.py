"""Progress bars, and the seconds that each stage took."""

from __future__ import annotations

import html
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class Timing:
    """Seconds spent in each stage so far. To time a part, subtract an earlier reading.

    >>> timing = Timing()
    >>> before = timing.seconds
    >>> with timing("decode"):
    ...     pass
    >>> list(timing.since(before))
    ['decode']
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str, inner: Timing | None = None) -> Iterator[None]:
        """Time a block as a stage. The stages that `inner` times meanwhile count as their own."""
        began, before = time.perf_counter(), inner.seconds if inner else {}
        try:
            yield
        finally:
            spent = inner.since(before) if inner else {}
            spent[stage] = spent.get(stage, 0.0) + time.perf_counter() - began - sum(spent.values())
            for name, seconds in spent.items():
                self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage since the start."""
        return dict(self._seconds)

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """Seconds by stage since `before`, an earlier value of `seconds`."""
        return {
            stage: seconds - before.get(stage, 0.0)
            for stage, seconds in self._seconds.items()
            if seconds > before.get(stage, 0.0)
        }


ShowProgress = Callable[[str, int, int], None] | bool
"""True: bars if somebody watches. False: none. Or a function, called as progress(stage, done, total)."""
PATIENCE = 1.0
"""Seconds of work before bars appear."""


class Bars:
    """Progress bars on a terminal (stderr) or in a notebook; silent elsewhere.

    Call it with (stage, done, total) inside `with bars:`, which may be nested. The bars appear after
    PATIENCE and are erased at the end of the outermost `with`.

    Args:
        off: no bars.
        console: rich's console, if the terminal is written to through one.
    """

    def __init__(self, *, off: bool = False, console: Console | None = None) -> None:
        self._off, self._console = off, console
        self._lock = threading.RLock()
        self._depth = 0
        self._began = 0.0
        self._stages: dict[str, tuple[int, int, str]] = {}
        self._open: Callable[[], _Terminal | _Notebook] | None = None
        self._display: _Terminal | _Notebook | None = None
        self._timer: threading.Timer | None = None

    @property
    def off(self) -> bool:
        """Whether nothing is drawn, inside `with`."""
        return self._open is None

    def __enter__(self) -> Self:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._stages, self._began = {}, time.monotonic()
                self._open = None if self._off else _watched(self._console)
                if (
                    self._open is not None and self._open is not _Notebook
                ):  # which draws in its own thread only
                    self._timer = threading.Timer(PATIENCE, self._appear)
                    self._timer.daemon = True
                    self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            if self._timer is not None:
                self._timer.cancel()
            if self._display is not None:
                self._display.close()
            self._display = self._open = self._timer = None

    def __call__(self, stage: str, done: int, total: int, *, said: str = "") -> None:
        with self._lock:
            if self._open is None:
                return
            self._stages[stage] = (done, total, said)
            if self._display is not None:
                self._display.draw(stage, done, total, said)
            elif time.monotonic() - self._began >= PATIENCE:
                self._appear()

    def end(self, stage: str) -> None:
        """Remove the bar of a stage."""
        with self._lock:
            if self._stages.pop(stage, None) is not None and self._display is not None:
                self._display.drop(stage)

    def _appear(self) -> None:
        with self._lock:
            if self._open is None or self._display is not None or not self._stages:
                return
            self._display = self._open()
            for stage, state in self._stages.items():
                self._display.draw(stage, *state)


@contextmanager
def shown(progress: ShowProgress) -> Iterator[Callable[[str, int, int], None]]:
    """Yield what to call with the progress: bars, silent ones for False, or the function that was given."""
    bars = Bars(off=not progress) if isinstance(progress, bool) else progress
    if isinstance(bars, Bars):
        with bars:
            yield bars
    else:
        yield bars


def _watched(console: Console | None) -> Callable[[], _Terminal | _Notebook] | None:
    """Return what draws the bars; None if nobody watches, as in a worker process."""
    if multiprocessing.parent_process() is not None:
        return None
    console = console or Console(stderr=True, highlight=False)
    if console.is_jupyter:
        return _Notebook
    return (lambda: _Terminal(console)) if console.is_terminal else None


class _Speed(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s", style="dim")


class _Terminal:
    """Rich's bars, erased at the end."""

    def __init__(self, console: Console) -> None:
        name, said = TextColumn("{task.description}"), TextColumn("[dim]{task.fields[said]}")
        left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
        columns = (name, BarColumn(), MofNCompleteColumn(), _Speed(), left, said)
        self._progress = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, Any] = {}
        self._progress.start()

    def draw(self, stage: str, done: int, total: int, said: str) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(escape(stage), total=None, said=said)
        # Without a total the bar pulses.
        self._progress.update(self._tasks[stage], completed=done, total=total or None, said=said)

    def drop(self, stage: str) -> None:
        self._progress.remove_task(self._tasks.pop(stage))

    def close(self) -> None:
        self._progress.stop()


class _Notebook:
    """HTML in the cell's output; needs no widgets."""

    EVERY = 0.2
    """Seconds between redraws."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._lines: dict[str, str] = {}
        self._drawn = 0.0
        self._handle = display(HTML(""), display_id=True)

    def draw(self, stage: str, done: int, total: int, said: str) -> None:
        bar = f'<progress value="{done}" max="{total}"></progress>'
        self._lines[stage] = f"<div>{bar} {html.escape(stage)} {done}/{total} {html.escape(said)}</div>"
        now = time.monotonic()
        if now - self._drawn >= self.EVERY:
            self._drawn = now
            self._handle.update(self._html("".join(self._lines.values())))

    def drop(self, stage: str) -> None:
        del self._lines[stage]

    def close(self) -> None:
        self._handle.update(self._html(""))
