"""Cores, memory and threads: of this machine, of this process, of another."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

LOADER = "framenest-load"
"""The name of threads that load a model."""


def loading() -> bool:
    """Whether a model is being loaded in a thread of this process."""
    return any(thread.name == LOADER for thread in threading.enumerate())


def cores() -> int:
    """CPU cores that this process may use, FRAMENEST_THREADS at most."""
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = os.environ.get("FRAMENEST_THREADS", "")
    return min(given, max(1, int(most))) if most.isdecimal() else given


def own_memory(pid: int) -> int | None:
    """Private memory of a process in bytes (mapped files not counted); None where it cannot be known."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    kibi = [int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
    return 1024 * sum(kibi) if kibi else None


def machine_memory() -> int:
    """Memory of this machine, or of the container this runs in, in bytes; 0 where it cannot be known."""
    found = []
    with suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))  # "max" where there is no bound
    with suppress(OSError, ValueError, IndexError):
        found.append(1024 * int(Path("/proc/meminfo").read_text().split()[1]))
    return min(found, default=0)


def memory_share(processes: int) -> int | None:
    """Bytes that each of so many processes may hold so that the machine stays alive beside them all.

    None where the machine's memory cannot be known. A quarter is left for everything else.

    Example:
        >>> memory_share(2) == 2 * memory_share(4)
        True
    """
    return 3 * machine_memory() // (4 * processes) or None
