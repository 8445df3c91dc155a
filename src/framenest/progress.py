"""Progress bars, and the seconds that each stage took."""

from __future__ import annotations

import importlib.util
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


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
        spent = {stage: seconds - before.get(stage, 0.0) for stage, seconds in self._seconds.items()}
        return {stage: seconds for stage, seconds in spent.items() if seconds > 0}


ShowProgress = Callable[[str, int, int], None] | bool
"""True: bars if somebody watches. False: none. Or a function, called as progress(stage, done, total)."""
BAR_DELAY_SECONDS = 1.0  # seconds of work before bars appear


class Bars:
    """Progress bars on a terminal (stderr), or in a notebook with ipywidgets; silent elsewhere.

    Call it with (stage, done, total) inside `with bars:`, which may be nested. The bars appear after
    BAR_DELAY_SECONDS and are erased at the end of the outermost `with`.

    Args:
        off: no bars.
        console: rich's console, if the terminal is written to through one.
    """

    def __init__(self, *, off: bool = False, console: Console | None = None) -> None:
        self._off, self._console = off, console
        self._lock = threading.RLock()
        self._depth = 0
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        with self._lock:
            self._depth += 1
            if self._depth == 1 and not self._off:
                self._progress, self._tasks = _watched(self._console), {}
                if self._progress is not None:
                    self._timer = threading.Timer(BAR_DELAY_SECONDS, self._appear)
                    self._timer.daemon = True
                    self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth or self._progress is None or self._timer is None:
                return
            self._timer.cancel()
            self._progress.stop()
            self._progress = None

    def __call__(self, stage: str, done: int, total: int, *, note: str = "") -> None:
        with self._lock:
            if self._progress is None:
                return
            if stage not in self._tasks:
                self._tasks[stage] = self._progress.add_task(escape(stage), total=total or None, note=note)
                self._progress.advance(self._tasks[stage], 0)  # so that the first step gives an estimate
            # Without a total the bar pulses.
            self._progress.update(self._tasks[stage], completed=done, total=total or None, note=note)

    def end(self, stage: str) -> None:
        """Remove the bar of a stage."""
        with self._lock:
            if self._progress is not None and stage in self._tasks:
                self._progress.remove_task(self._tasks.pop(stage))

    def _appear(self) -> None:
        with self._lock:
            if self._progress is not None:
                self._progress.start()


@contextmanager
def shown(progress: ShowProgress) -> Iterator[Callable[[str, int, int], None]]:
    """Yield what to call with the progress: bars, silent ones for False, or the function that was given."""
    bars = Bars(off=not progress) if isinstance(progress, bool) else progress
    with bars if isinstance(bars, Bars) else nullcontext():
        yield bars


def _watched(console: Console | None) -> Progress | None:
    """Rich's bars, erased at the end; None if nobody watches, as in a worker process."""
    console = console or Console(stderr=True, highlight=False)
    # In a notebook rich draws with ipywidgets only, and warns without them.
    watched = importlib.util.find_spec("ipywidgets") if console.is_jupyter else console.is_interactive
    if not watched or multiprocessing.parent_process() is not None:
        return None
    name, note = TextColumn("{task.description}"), TextColumn("[dim]{task.fields[note]}")
    left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
    columns = (name, BarColumn(), MofNCompleteColumn(), left, note)
    return Progress(*columns, console=console, transient=True)
