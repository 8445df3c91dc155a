"""LateWrite: a large entry that is written while other work goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable

_unfinished: set[LateWrite] = set()
"""Being written, or failed and not told."""


class LateWrite:
    """Calls `write` in a thread of its own; the process does not end before it has returned.

    Args:
        write: writes the entry.
        after: another one that is to be written before; None where the order does not matter.

    >>> LateWrite(lambda: None).finish()
    """

    def __init__(self, write: Callable[[], None], after: LateWrite | None = None) -> None:
        self._after = after
        self._error: BaseException | None = None
        _unfinished.add(self)
        self._thread = threading.Thread(target=self._run, args=(write,), name="framenest-write")
        self._thread.start()  # no daemon: Python waits for it when it ends

    @property
    def finished(self) -> bool:
        """Whether it is written, or failed, and everything before it."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Wait until it is written, and everything before it; raises what writing raised, once."""
        self._thread.join()
        _unfinished.discard(self)
        after, self._after = self._after, None
        error, self._error = self._error, None
        if after is not None:
            after.finish()
        if error is not None:
            raise error

    def _run(self, write: Callable[[], None]) -> None:
        if self._after is not None:
            self._after._thread.join()
        try:
            write()
            _unfinished.discard(self)
        except BaseException as error:
            self._error = error


def finish_writes() -> None:
    """Wait until all that this process still writes is written; raises what writing raised."""
    for write in [*_unfinished]:
        write.finish()
