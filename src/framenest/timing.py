"""Where the seconds go."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Timing:
    """Seconds spent in each stage so far; a reader takes the difference between two moments.

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
        """Count what happens inside as a stage.

        Args:
            stage: the stage's name.
            inner: a clock that runs inside; what it counts become stages here too, not part of this one.
        """
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
        """Seconds by stage since this clock was made."""
        return dict(self._seconds)

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """Seconds of the stages that ran after `before` was read from `seconds`."""
        return {
            stage: seconds - before.get(stage, 0.0)
            for stage, seconds in self._seconds.items()
            if seconds > before.get(stage, 0.0)
        }
