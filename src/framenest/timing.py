"""Where the seconds go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timing:
    """Seconds spent in each stage since the last reset.

    >>> timing = Timing()
    >>> with timing("decode"):
    ...     pass
    >>> list(timing.seconds)
    ['decode']
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str, within: Timing | None = None) -> Iterator[None]:
        """Count what happens inside as a stage, less what `within` counted of it as stages of its own."""
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = {stage: time.perf_counter() - began}
            if within is not None:
                spent[stage] -= sum(within._seconds.values())
                spent |= within._seconds
                within.reset()
            for name, seconds in spent.items():
                self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @property
    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)

    def reset(self) -> None:
        self._seconds.clear()
