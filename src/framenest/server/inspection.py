"""What kind of video a file is; run as a script by `check`, in a process with limits. Imports PyAV alone.

python inspection.py FILE SECONDS BYTES prints what it found as JSON. The limits are set before the file is
opened, so a file made to exhaust or break a decoder breaks only this process.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import Any

# Containers that hold their own pictures. Playlists and the like, which name other files or addresses for
# FFmpeg to open, are not among them: a text file could then read the server's disk or network.
FORMATS = {
    "mov,mp4,m4a,3gp,3g2,mj2": ".mp4",
    "matroska,webm": ".mkv",
    "avi": ".avi",
    "mpegts": ".ts",
    "mpeg": ".mpg",
    "flv": ".flv",
    "asf": ".wmv",
    "ogg": ".ogv",
    "mxf": ".mxf",
    "gif": ".gif",
}
FRAMES = 4  # decoded at the beginning
MOST_PIXELS = 2**26


def _inspect(path: str) -> dict[str, Any]:
    import av

    names = ",".join(name for format_ in FORMATS for name in format_.split(","))
    only = {"format_whitelist": names, "protocol_whitelist": "file"}
    try:
        with av.open(path, "r", options=only) as container:
            format_ = container.format.name
            if format_ not in FORMATS:
                return {"refused": f"files of format {format_} are not taken"}
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
                "format": format_,
                "suffix": FORMATS[format_],
                "codec": context.codec.canonical_name,
                "width": frames[0].width,
                "height": frames[0].height,
            }
    except MemoryError:
        return {"refused": "it needs more memory than allowed"}
    except Exception as error:  # PyAV lets slips of its own through on damaged data, such as IndexError
        return {"refused": f"not a video that FFmpeg can read ({getattr(error, 'strerror', repr(error))})"}


def _limit(seconds: int, memory: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _limit(int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(json.dumps(_inspect(sys.argv[1])))
