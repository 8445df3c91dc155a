"""Processes on this machine: cores and memory there are, and limits on what one process may take."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from framenest.errors import ConfigError


def cores() -> int:
    """Processors that this process may use: those it is given, FRAMENEST_THREADS of them at the most."""
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = os.environ.get("FRAMENEST_THREADS", "")
    return min(given, max(1, int(most))) if most.isdecimal() else given


@dataclass(frozen=True)
class ProcessLimits:
    """What one worker may take. seconds: for one item, None for no limit; memory: bytes of its own."""

    seconds: float | None = None
    memory: int | None = None

    def exceeded(self, began: float, pid: int) -> tuple[str, str] | None:
        """What is wrong (class, line) with a process that has been at an item since `began`."""
        if self.seconds is not None and time.monotonic() - began > self.seconds:
            return "TimeLimit", f"not done after {self.seconds:g} s"
        used = own_memory(pid) if self.memory else None
        if used is not None and self.memory and used > self.memory:
            return "MemoryLimit", f"took {used / 2**20:.0f} MiB of the {self.memory / 2**20:.0f} MiB allowed"
        return None

    def __post_init__(self) -> None:
        if self.memory is not None and own_memory(os.getpid()) is None:
            raise ConfigError("a limit on memory needs /proc, which this system does not have")


def own_memory(pid: int) -> int | None:
    """Bytes that a process alone holds (mapped files not counted); None where that cannot be known."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    kibi = [int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
    return 1024 * sum(kibi) if kibi else None


def machine_memory() -> int:
    """Bytes that this machine, or the container this runs in, has; 0 where that cannot be known."""
    found = []
    with suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))  # "max" where there is no bound
    with suppress(OSError, ValueError, IndexError):
        found.append(1024 * int(Path("/proc/meminfo").read_text().split()[1]))
    return min(found, default=0)


def end_with_parent() -> None:
    """A worker whose parent is gone has nobody to answer."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
