"""Cores, memory, GPUs, limits, and supervised worker processes."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from framenest.errors import ConfigError, FramenestError, error_line
from framenest.text import bytes_of


def cores() -> int:
    """CPU cores that this process may use, at most FRAMENEST_THREADS."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = os.environ.get("FRAMENEST_THREADS", "")
    return min(usable, max(1, int(most))) if most.isdecimal() else usable


def own_memory(pid: int) -> int:
    """Private memory of a process in bytes, without mapped files; 0 if it has ended."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0
    return int(memory.rss - getattr(memory, "shared", 0))


def return_memory() -> None:
    """Return freed memory to the system: frames fragment the heap, and glibc keeps the fragments."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def machine_memory() -> int:
    """Memory of this machine, or of the container this runs in, in bytes."""
    memory = int(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):  # psutil does not know a container's limit
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))  # "max" if there is none
    return memory


def memory_share(processes: int) -> int:
    """Bytes that each of this many processes may use, with a quarter of the memory left for the rest."""
    return 3 * machine_memory() // (4 * processes)


def has_gpu() -> bool:
    """Whether there is a CUDA GPU, and torch, if installed, can use it."""
    if not gpu_memory() or importlib.util.find_spec("torch") is None:  # importing torch takes seconds
        return gpu_memory() > 0
    return bool(importlib.import_module("torch").cuda.is_available())


def own_gpu() -> str:
    """The GPU that "cuda" means in this process, with its index: "cuda:0".

    It is the device that this thread has chosen with torch.cuda.set_device. Otherwise it is the one that
    accelerate gives to the process: LOCAL_RANK, which torchrun sets too, modulo the number of visible GPUs.
    """
    rank = os.environ.get("LOCAL_RANK", "")
    if not rank.isdecimal() and "torch" not in sys.modules:
        return "cuda:0"  # no other can have been chosen, and importing torch takes seconds
    cuda = importlib.import_module("torch").cuda
    index = cuda.current_device() if cuda.is_initialized() else 0
    if index == 0 and rank.isdecimal():  # not chosen, or not in this thread
        index = int(rank) % max(1, cuda.device_count())
    return f"cuda:{index}"


def gpu_memory() -> int:
    """Bytes of memory of the first CUDA GPU; 0 if there is none."""
    device, size = ctypes.c_int(), ctypes.c_size_t()
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return 0
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return 0
    return 0 if driver.cuDeviceTotalMem_v2(ctypes.byref(size), device) else size.value


MEMORY_VARIABLE = "FRAMENEST_MEMORY"  # memory that this process may use; in a worker, its limit
FEATURES_VARIABLE = "FRAMENEST_FEATURES_LIMIT"
"""The limit, in bytes, for the features of all videos in a cache directory."""
DOWNLOAD_VARIABLE = "FRAMENEST_MAX_DOWNLOAD"  # the largest video that is downloaded whole


def limit_in(variable: str) -> int | None:
    """The bytes that an environment variable allows; None if it is unset, ConfigError if it is not a size."""
    text = os.environ.get(variable, "")
    try:
        return bytes_of(text) if text else None
    except ValueError as error:
        raise ConfigError(f"${variable}: {error}") from error


def process_memory() -> int:
    """Bytes that this process may use: its limit if it has one, or the machine's."""
    return limit_in(MEMORY_VARIABLE) or machine_memory()


CANCEL = "cancel"
START_RETRIES = 3  # how often a worker that dies while it loads is restarted
log = logging.getLogger("framenest")


class Cancelled(Exception):
    """The call was cancelled."""


class WorkerLost(FramenestError):
    """A worker process ended. kind: TimeLimit, MemoryLimit, WorkerDied, or StartFailed (after retries)."""

    def __init__(self, message: str, kind: str = "WorkerDied") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of one worker process; None for no limit.

    seconds: for one call, or since its last heartbeat. memory: private bytes of the process.
    """

    seconds: float | None = None
    memory: int | None = None

    def exceeded(self, began: float, pid: int) -> WorkerLost | None:
        """The limit that a process exceeds, if any. began: the monotonic time at which its clock started."""
        if self.seconds is not None and time.monotonic() - began > self.seconds:
            return WorkerLost(f"not done after {self.seconds:g} s", "TimeLimit")
        if self.memory and (used := own_memory(pid)) > self.memory:
            text = f"took {used / 2**20:.0f} MiB of the {self.memory / 2**20:.0f} MiB allowed"
            return WorkerLost(text, "MemoryLimit")
        return None


Report = Callable[..., None]
"""How a worker reports to its parent: report("heartbeat") or report("progress", stage, done, total)."""


class WorkerProcess:
    """A supervised process that answers one call at a time. Not thread-safe.

    load(report, *arguments) runs in the process and returns the function that answers calls. Loading counts
    against the memory limit, not the time limit. threads: sets FRAMENEST_THREADS and OMP_NUM_THREADS there;
    FRAMENEST_MEMORY is the memory limit. The process ignores SIGINT, ends with its parent and has its own
    pipe: killed at any time, it leaves no queue locked.
    """

    inside = False  # whether this process is such a worker, and so has limits

    def __init__(
        self,
        load: Callable[..., Callable[..., Any]],
        *arguments: Any,
        limits: ProcessLimits,
        threads: int | None = None,
        niceness: int = 0,
    ) -> None:
        self._setup = (load, arguments, threads, niceness, limits.memory)
        self._limits = limits
        self._process: Any = None
        self._pipe: Any = None
        self._call: tuple[Any, ...] = ()
        self._ready = False
        self._began = 0.0
        self._failed_starts = 0

    @property
    def pid(self) -> int | None:
        """None if no process runs."""
        return self._process.pid if self._process else None

    @property
    def wakes(self) -> list[Any]:
        """What `multiprocessing.connection.wait` may wait for: a message, or the process's end."""
        return [self._pipe, self._process.sentinel]

    def send(self, *call: Any) -> None:
        """Begin a call; starts the process if none is alive."""
        if self._process is not None and not self._process.is_alive():
            self.kill()
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, *self._setup), daemon=True)
            self._process.start()
            theirs.close()
        self._call, self._began = call, time.monotonic()
        if self._ready:
            self._tell(call)

    def poll(self, seconds: float = 0.0) -> tuple[Any, ...] | None:
        """("done", result), ("progress", *what the work reported), or None if neither came in `seconds`.

        Raises what the call or loading raised, and WorkerLost if the process died or exceeded a limit. A
        process lost while loading is restarted, up to START_RETRIES times.
        """
        try:
            kind, *rest = self._pipe.recv() if self._pipe.poll(seconds) else ("nothing",)
        except (EOFError, OSError):
            self._process.join(1.0)  # the pipe closes a moment before the process has an exit code
            code = self._process.exitcode
            killed = code is not None and code < 0
            cause = f"was killed by {signal.Signals(-code).name}" if killed else f"ended with code {code}"
            self._lose(WorkerLost(f"the worker {cause}"))
            return None
        if kind == "error":
            raise rest[0]
        if kind == "done":
            return (kind, *rest)
        if kind == "warning":
            log.warning("%s", *rest)
        elif kind in ("ready", "heartbeat"):
            self._began, self._failed_starts = time.monotonic(), 0
            if not self._ready:
                self._ready = True
                self._tell(self._call)
        lost = self._limits.exceeded(self._began if self._ready else time.monotonic(), self.pid or 0)
        if lost is not None:
            self._lose(lost)
        return (kind, *rest) if kind == "progress" else None

    def cancel(self) -> bool:
        """Ask the call to stop: it raises Cancelled at its next report. False if it has not begun yet."""
        self._tell(CANCEL)
        return self._ready

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._pipe.close()
        self._process, self._ready = None, False

    def _tell(self, message: Any) -> None:
        with suppress(OSError):  # the process has died; `poll` says so
            self._pipe.send(message)

    def _lose(self, lost: WorkerLost) -> None:
        ready = self._ready
        self.kill()
        if ready:
            raise lost
        self._failed_starts += 1
        if self._failed_starts > START_RETRIES:
            self._failed_starts = 0
            raise WorkerLost(f"a worker could not start: {lost}", "StartFailed")
        self.send(*self._call)


def _serve(
    pipe: Connection,
    load: Callable[..., Callable[..., Any]],
    arguments: tuple[Any, ...],
    threads: int | None,
    niceness: int,
    memory: int | None,
) -> None:
    """The worker's side: load, then answer calls until the parent ends."""
    WorkerProcess.inside = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(OSError):  # if memory runs out, the OOM killer ends this process first
        Path("/proc/self/oom_score_adj").write_text("800")
    if threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    variables = {"FRAMENEST_THREADS": threads, MEMORY_VARIABLE: memory}
    os.environ.update({name: str(value) for name, value in variables.items() if value is not None})
    if niceness and hasattr(os, "nice"):  # not on Windows
        os.nice(niceness)
    sending = threading.Lock()  # warnings may come from any thread

    def send(*message: Any) -> None:
        with sending:
            pipe.send(message)

    def report(*message: Any) -> None:
        if pipe.poll() and pipe.recv() == CANCEL:
            raise Cancelled
        send(*message)

    warnings.showwarning = lambda message, *_, **__: send("warning", str(message))
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            answer = load(report, *arguments)
        except Exception as error:
            send("error", _portable(error))
            return
        send("ready")
        while True:
            call = pipe.recv()
            if call == CANCEL:  # it arrived after the call had ended
                continue
            try:
                message = ("done", answer(*call))
            except Exception as error:  # a bug ends the call, not the worker
                message = ("error", _portable(error))
            send(*message)


def _portable(error: Exception) -> Exception:
    """The error, or its message as an error that surely can be pickled."""
    return error if isinstance(error, FramenestError | Cancelled) else FramenestError(error_line(error))


def _end_with_parent() -> None:
    """Wait for the parent process to end, then end this one: no orphans."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
