"""Processes that tests stop or kill at a certain moment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 240.0
"""Seconds that a test waits for what takes one on a quiet machine; pytest's own limit lies beyond."""


def children(pid: int) -> list[int]:
    """Processes that a process, in any of its threads, has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@contextmanager
def standing_still(pids: list[int]) -> Iterator[None]:
    """Processes that do nothing meanwhile; those that were not killed then go on."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def kill_in_mid_write(writer: subprocess.Popen, folder: Path) -> None:
    """Kill a process that keeps writing entries, where a part of one is on disk and not yet published."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        writer.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(writer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "the writer is gone"
        if any(part.stat().st_size > 1000 for part in folder.rglob("*.tmp")):
            writer.kill()
            return
        writer.send_signal(signal.SIGCONT)
        time.sleep(0.005)
    raise AssertionError("nothing was written")
