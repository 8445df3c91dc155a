"""Is this file a video? Decided by decoding its beginning in a process of its own, with limits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from framenest.server.refusals import Unusable

SCRIPT = Path(__file__).with_name("inspection.py")


def check_video(path: Path, *, seconds: int, memory: int) -> dict[str, Any]:
    """What the file is: format, suffix, codec, width, height; refused where it is no video.

    seconds: of processor time; memory: bytes of address space.
    """
    command = [sys.executable, "-I", str(SCRIPT), str(path), str(seconds), str(memory)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=3 * seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"not accepted: its beginning took more than {3 * seconds} s to decode") from error
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise Unusable("not accepted: the decoder broke or went over its limits on this file") from error
    if "refused" in found:
        raise Unusable(f"not accepted: {found['refused']}")
    return found
