"""What the benchmarks share: results with their machine, tables in pages, caches, checkouts, options."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import av
import numpy as np

import framenest
from framenest.cache.directory import cache_dir

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
UNLIKE_USERS = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
"""Variables that are removed: without bytecode, every import compiles its module again."""


def facts() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    processors = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {
        "command": "python " + " ".join([sys.argv[0], *(Path(a).name for a in sys.argv[1:])]),
        "processor": processors[0] if processors else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyav": av.__version__,
        "framenest": framenest.__version__,
        "commit": commit(),
    }


def commit() -> str | None:
    """The commit of this checkout, with "+" if it has changed since; None outside of one."""
    described = ["git", "-C", str(HERE), "describe", "--always", "--dirty=+", "--exclude=*"]
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(described, capture_output=True, text=True, check=True).stdout.strip()
    return None


def write(name: str, result: dict[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": facts(), **result}, indent=1) + "\n")
    return path


def filled(page: str, tables: Mapping[str, str]) -> str:
    """The page with the tables, or numbers, that stand between <!-- table NAME --> and <!-- end -->."""

    def content(match: re.Match[str]) -> str:
        text = tables[match[1]]
        inside = f"\n{text.strip()}\n" if "|" in text else text
        return f"<!-- table {match[1]} -->{inside}<!-- end -->"

    return re.sub(r"<!-- table ([\w-]+) -->.*?<!-- end -->", content, page, flags=re.S)


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose --help shows a script's docstring."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


@contextmanager
def empty_cache() -> Iterator[str]:
    """A cache directory with the user's model files and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        models = cache_dir() / "models"
        if models.is_dir():
            (Path(folder) / "models").symlink_to(models, target_is_directory=True)
        yield folder


def environment(root: Path) -> dict[str, str]:
    """Variables for a process that runs the code of a checkout of this project."""
    paths = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    inherited = {name: value for name, value in os.environ.items() if name not in UNLIKE_USERS}
    return inherited | {"PYTHONPATH": paths}
