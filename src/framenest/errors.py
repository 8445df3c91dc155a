"""Errors, warnings, and the command that installs a missing extra."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SOURCES = Path(__file__).parents[2]


def install_hint(extra: str) -> str:
    """What to do to add an extra: "run: pip install '.[tags]'", where that is the command that works here."""
    requirement = _requirement(extra)
    if requirement is None:
        return f"run, in a clone of Framenest: {_installer()} {shlex.quote(f'.[{extra}]')}"
    editable, what = requirement
    return f"run: {_installer()} {'-e ' if editable else ''}{shlex.quote(what)}"


def _requirement(extra: str) -> tuple[bool, str] | None:
    """Whether it is editable, and what to install; None where what was installed is there no more."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, and seldom needed
    from urllib.request import url2pathname

    try:
        written = distribution("framenest").read_text("direct_url.json")
    except PackageNotFoundError:  # the sources themselves, on the path
        return (False, f"{_folder(_SOURCES)}[{extra}]") if (_SOURCES / "pyproject.toml").is_file() else None
    if written is None:
        return False, f"framenest[{extra}]"
    origin: dict[str, Any] = json.loads(written)
    url = str(origin["url"])
    path = Path(url2pathname(urlsplit(url).path)) if url.startswith("file:") else None
    if "dir_info" in origin and path is not None:
        editable = bool(origin["dir_info"].get("editable"))
        return (editable, f"{_folder(path)}[{extra}]") if (path / "pyproject.toml").is_file() else None
    if "vcs_info" in origin:
        version = origin["vcs_info"]
        return False, f"framenest[{extra}] @ {version['vcs']}+{url}@{version['commit_id']}"
    return None if path is not None and not path.is_file() else (False, f"framenest[{extra}] @ {url}")


def _folder(path: Path) -> str:
    return "." if path.resolve() == Path.cwd().resolve() else str(path)


def _installer() -> str:
    """pip where this environment has it, otherwise uv."""
    if importlib.util.find_spec("pip") is not None:
        found = shutil.which("pip")
        ours = found is not None and Path(found).parent == Path(sys.executable).parent
        return "pip install" if ours else f"{shlex.quote(sys.executable)} -m pip install"
    active = os.environ.get("VIRTUAL_ENV")
    if active is not None and Path(active).resolve() == Path(sys.prefix).resolve():
        return "uv pip install"
    return f"uv pip install --python {shlex.quote(sys.executable)}"


class FramenestError(Exception):
    """Base of every error that Framenest raises on purpose. The message is one line for a person."""


class VideoError(FramenestError):
    """The video cannot be used."""


class IndexMismatch(FramenestError):
    """An index or a ranking does not fit the video or this version of Framenest."""


class BudgetError(FramenestError):
    """A frame budget that the ranking cannot serve."""


class ConfigError(FramenestError):
    """A setting outside its allowed range."""


class BadSetting(ConfigError):
    """One setting is outside its range. name, value, allowed: which, what was given, what it may be."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"{name} = {value!r} is not allowed; it must be {allowed}")
        self.name = name
        self.value = value
        self.allowed = allowed


class ScorerError(FramenestError):
    """A scorer cannot run, or returned something that is not a relevance."""


class ModelError(FramenestError):
    """A multimodal model, or the server it runs on, gave no answer.

    partial: what had arrived of the answer. fits: where the context was too long, the number of frames
    that fits.
    """

    def __init__(self, message: str, *, partial: str = "", fits: int | None = None) -> None:
        super().__init__(message)
        self.partial = partial
        self.fits = fits


class MissingExtra(FramenestError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"{package} is not installed; {install_hint(extra)}")
        self.extra = extra
        self.package = package


class StoreError(FramenestError):
    """The cache or an output cannot be read or written."""


class CacheWarning(UserWarning):
    """The cache fails in part; work goes on without it."""


class ScorerWarning(UserWarning):
    """Something about a scorer's numbers that whoever uses them should know."""
