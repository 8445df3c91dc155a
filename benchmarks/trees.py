"""Checkouts of this project that are measured beside one another."""

from __future__ import annotations

import os
from pathlib import Path

UNLIKE_USERS = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
"""Variables that some machines set and that are taken away: without bytecode every import compiles anew."""


def environment(root: Path) -> dict[str, str]:
    """For a process that runs the code of a checkout, as users have it."""
    paths = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    inherited = {name: value for name, value in os.environ.items() if name not in UNLIKE_USERS}
    return inherited | {"PYTHONPATH": paths}
