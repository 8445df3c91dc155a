"""Whether a file is a video: its beginning is decoded in a process with limits.

`check_video` runs this file as a script: python video_check.py FILE SECONDS BYTES OPTIONS prints JSON. Limits
are set before the file is opened, so a file made to break a decoder breaks only that process. The script
imports only PyAV, to start fast; OPTIONS say what FFmpeg may open.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

FRAMES = 4  # decoded at the beginning
MOST_PIXELS = 2**26
_LIBRARIES = 2**29  # bytes of address space that Python and FFmpeg take before any file is opened
CHECK_SECONDS = 600  # by the clock, for a busy machine; the limit on processor time ends bad files


def check_video(path: Path, *, seconds: int, memory: int) -> dict[str, Any]:
    """What the file is: format, suffix, codec, width, height; refused if it is no video.

    seconds: of processor time; memory: bytes of address space.
    """
    from framenest.errors import VideoError
    from framenest.frames import check_image_size
    from framenest.server.guard import Refusal
    from framenest.video.guarded_opening import memory_for
    from framenest.video.source import FORMATS, open_options

    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not be waited for
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise VideoError("it is no file")
            memory = min(memory, _LIBRARIES + memory_for(os.fstat(file.fileno()).st_size))
        options = json.dumps(open_options(str(path)))
        command = [sys.executable, "-P", __file__, str(path), str(seconds), str(memory), options]
        done = subprocess.run(
            command, capture_output=True, timeout=CHECK_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
        found: dict[str, Any] = json.loads(done.stdout)
        if "refused" in found:
            raise VideoError(found["refused"])
        check_image_size("the file", found["width"], found["height"])
    except VideoError as error:
        raise Refusal(422, f"not accepted: {error}") from error
    except OSError as error:
        raise Refusal(422, f"not accepted: the file cannot be read ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        text = "the server is too busy to look at this file; send it again later"
        raise Refusal(503, text, retry_after=60) from error
    except ValueError as error:
        text = "not accepted: the decoder broke or went over its limits on this file"
        raise Refusal(422, text) from error
    return {**found, "suffix": FORMATS[found["format"]]}


def _inspect(path: str, options: dict[str, str]) -> dict[str, Any]:
    import av

    try:
        with av.open(path, "r", options=options) as container:
            if not container.streams.video:
                return {"refused": "no video stream in this file"}
            best = container.streams.best("video")
            stream = container.streams.video[0]
            stream = next((s for s in container.streams.video if best and s.index == best.index), stream)
            context = stream.codec_context
            if context.width * context.height > MOST_PIXELS:
                return {"refused": f"its pictures are too large ({context.width}×{context.height})"}
            context.thread_count = 1
            frames = list(islice(container.decode(stream), FRAMES))
            if not frames:
                return {"refused": "none of its frames can be decoded"}
            return {
                "format": container.format.name,
                "codec": context.codec.canonical_name,
                "width": frames[0].width,
                "height": frames[0].height,
            }
    except MemoryError:
        return {"refused": "it needs more memory than allowed"}
    except Exception as error:  # PyAV lets slips of its own through on damaged data, such as IndexError
        return {"refused": f"not a video that FFmpeg can read ({getattr(error, 'strerror', repr(error))})"}


if __name__ == "__main__":
    import resource

    file, seconds, memory, options = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps(_inspect(file, json.loads(options))))
