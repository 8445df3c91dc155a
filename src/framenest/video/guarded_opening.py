"""Open and scan an unknown video in a process with limits, before this process opens it.

A header of a kilobyte can make FFmpeg allocate gigabytes, in more ways than a check of ours could know. The
process does exactly what this one will do, so a video that stays within the limits there does so here. It
runs this file as a script and returns its result in the format of the cache.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from tempfile import NamedTemporaryFile
from typing import Any

from framenest.cache.archive import DamagedFile, pack, unpack
from framenest.errors import FramenestError, VideoError
from framenest.frames import Array
from framenest.processes import WorkerProcess, own_memory
from framenest.text import size_text
from framenest.video.source import Source, damage_as_video_error, is_remote
from framenest.video.timeline import describe

MEMORY, MEMORY_PER_BYTE = 2**30, 16
"""Private memory that opening and scanning may take, and the extra per byte of the file."""
SECONDS, BYTES_PER_SECOND = 20, 2**16
"""CPU time that it may take; more for large files, since some streams must be decoded to be scanned."""
_ORDINARY = 128 * 2**20  # bytes that it takes for ordinary files, Python included
_LOOK = 0.02  # seconds between two checks of the process's memory


def memory_for(size: int) -> int:
    """Bytes of memory that opening a file of `size` bytes may take."""
    return MEMORY + MEMORY_PER_BYTE * size


def describe_guarded(source: Source) -> tuple[dict[str, Any], dict[str, Array]]:
    """`timeline.describe` in a process with limits; in this one if it has some, or if fsspec reads the video.

    The header also has "memory", the bytes that opening took, if that is more than usual. VideoError is
    raised as by `describe`, and if opening the video exceeds a limit.
    """
    if WorkerProcess.inside:
        return describe(source)
    with damage_as_video_error(source.path), source.file() as file, NamedTemporaryFile() as copy:
        if isinstance(file, io.BytesIO):
            copy.write(file.getbuffer())
            copy.flush()
            source = replace(source, local=copy.name)
        if source.local is None:
            return describe(source)
        return _supervise(source, file.seek(0, io.SEEK_END))


def _supervise(source: Source, size: int) -> tuple[dict[str, Any], dict[str, Array]]:
    seconds, memory, peak = SECONDS + size // BYTES_PER_SECOND, memory_for(size), 0
    asked = json.dumps([source.path, source.stream, source.local, source.playlists, size, seconds])
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    command, environment = [sys.executable, "-P", __file__, asked], os.environ | paths
    with (
        Popen(command, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE) as process,
        ExitStack() as at_end,
    ):
        at_end.callback(process.kill)
        while process.returncode is None:
            peak = max(peak, own_memory(process.pid) or 0)
            if peak > memory:
                raise VideoError(f"{source.path}: opening it takes more than {size_text(memory)} of memory")
            with suppress(TimeoutExpired):
                data, said = process.communicate(timeout=_LOOK)
    code = process.returncode
    cause = signal.Signals(-code).name if code < 0 else f"code {code}"
    if cause == "SIGXCPU":
        raise VideoError(f"{source.path}: opening it takes more than {seconds} s of processor time")
    try:
        header, arrays = unpack(data)
    except DamagedFile as error:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        cause += f" ({last})" if last else ""
        raise VideoError(f"{source.path}: the process that opens it ended with {cause}") from error
    if "error" in header:
        raise VideoError(header["error"])
    return header | ({"memory": peak} if peak > _ORDINARY else {}), arrays


def _answer(path: str, stream: int | None, local: str, playlists: bool, size: int, seconds: int) -> bytes:
    with suppress(ImportError):  # on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source = Source(path, "", stream, local, playlists=playlists)
    if is_remote(local):
        from framenest.video.address import http_file

        source = replace(source, open_file=partial(http_file, local, size))
    try:
        return pack(*describe(source))
    except FramenestError as error:
        return pack({"error": str(error)}, {})


if __name__ == "__main__":
    sys.stdout.buffer.write(_answer(*json.loads(sys.argv[1])))
