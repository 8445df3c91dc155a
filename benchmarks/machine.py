"""What a result was measured on, and where it is written."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np

import framenest

RESULTS = Path(__file__).parent / "results"


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


def facts() -> dict[str, Any]:
    return {
        "command": "python " + " ".join([sys.argv[0], *(Path(a).name for a in sys.argv[1:])]),
        "processor": processor() if Path("/proc/cpuinfo").exists() else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyav": av.__version__,
        "framenest": framenest.__version__,
    }


def write(name: str, result: dict[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": facts(), **result}, indent=1) + "\n")
    return path
