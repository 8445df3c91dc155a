"""Open an unknown video in a process with limits, before this process opens it.

A header of a kilobyte can make FFmpeg allocate gigabytes, in more ways than a check of ours could know. The
process does exactly what this one will do, so a video that stays within the limits there does so here. It
runs this file as a script and returns its result in the format of the cache.
"""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from tempfile import NamedTemporaryFile
from typing import Any

from framenest.cache.archive import DamagedFile, pack, unpack
from framenest.errors import FramenestError, VideoError
from framenest.frames import Array, check_image_size
from framenest.processes import WorkerProcess, own_memory
from framenest.text import size_text
from framenest.video.source import Source, damage_as_video_error, is_remote
from framenest.video.timeline import describe

OPENING_BYTES, OPENING_BYTES_PER_BYTE = 2**30, 16
"""Private memory that opening and scanning may take, and the extra per byte of the file."""
OPENING_SECONDS, BYTES_PER_SECOND = 20, 2**16
"""CPU time that it may take; more for large files, since some streams must be decoded to be scanned."""
LIBRARY_BYTES = 2**30
"""Address space that Python and its libraries take, without any memory behind most of it."""
CHECK_WAIT_SECONDS = 600.0
"""For `check_guarded` by the clock, for a busy machine; the limit on processor time ends bad files."""
_ORDINARY_BYTES = 128 * 2**20  # that it takes for ordinary files, Python included
_POLL_SECONDS = 0.02  # between two checks of the process's memory


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
        size = file.seek(0, io.SEEK_END)
        return _supervise(source, size, OPENING_SECONDS + size // BYTES_PER_SECOND)


def check_guarded(path: Path, *, seconds: int, memory: int) -> dict[str, Any]:
    """What a file is, from its first frame: format, codec, width, height. Nothing else of it is read.

    seconds: of processor time. memory: bytes, also of address space beyond that of the libraries. Raises
    VideoError if it is not a video or opening it exceeds a limit, OSError if it cannot be read, TimeoutError
    if the machine was too busy to tell.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe must not be waited for
        status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(f"{path}: it is no file")
    return _supervise(Source.at(str(path)), status.st_size, seconds, memory)[0]


def _supervise(
    source: Source, size: int, seconds: int, check: int = 0
) -> tuple[dict[str, Any], dict[str, Array]]:
    """check: bytes of memory for `check_guarded`; 0 to describe the video."""
    peak, until = 0, time.monotonic() + CHECK_WAIT_SECONDS
    memory = OPENING_BYTES + OPENING_BYTES_PER_BYTE * size
    if check:
        memory = check = min(memory, check)
    request = [source.path, source.stream, source.local, size, seconds, check]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    command, environment = [sys.executable, "-P", __file__, json.dumps(request)], os.environ | paths
    with Popen(command, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE) as process:
        try:
            while process.returncode is None:
                peak = max(peak, own_memory(process.pid))
                if peak > memory:
                    most = size_text(memory)
                    raise VideoError(f"{source.path}: opening it takes more than {most} of memory")
                if check and time.monotonic() > until:
                    raise TimeoutError
                with suppress(TimeoutExpired):
                    data, errors = process.communicate(timeout=_POLL_SECONDS)
        finally:
            process.kill()
    code = process.returncode
    cause = signal.Signals(-code).name if code < 0 else f"code {code}"
    if cause == "SIGXCPU":
        raise VideoError(f"{source.path}: opening it takes more than {seconds} s of processor time")
    try:
        header, arrays = unpack(data)
    except DamagedFile as error:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        cause += f" ({last})" if last else ""
        raise VideoError(f"{source.path}: the process that opens it ended with {cause}") from error
    if "error" in header:
        raise VideoError(header["error"])
    return header | ({"memory": peak} if peak > _ORDINARY_BYTES and not check else {}), arrays


def _answer(path: str, stream: int | None, local: str, size: int, seconds: int, check: int) -> bytes:
    """What the process writes."""
    with suppress(ImportError):  # on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        if check:
            resource.setrlimit(resource.RLIMIT_AS, (LIBRARY_BYTES + check, LIBRARY_BYTES + check))
    source = Source(path, "", stream, local)
    if is_remote(local):
        from framenest.video.address import http_file

        source = replace(source, open_file=partial(http_file, local, size))
    try:
        return pack(_look(source), {}) if check else pack(*describe(source))
    except FramenestError as error:
        return pack({"error": str(error)}, {})


def _look(source: Source) -> dict[str, Any]:
    with damage_as_video_error(source.path), closing(source.open()) as opened:
        first = opened.first_frame()
        if first is None:
            raise VideoError(f"{source.path}: none of its frames can be decoded")
        check_image_size(source.path, first.width, first.height)
        codec = opened.context.codec.canonical_name
        kind = opened.container.format.name
        return {"format": kind, "codec": codec, "width": first.width, "height": first.height}


if __name__ == "__main__":
    sys.stdout.buffer.write(_answer(*json.loads(sys.argv[1])))
