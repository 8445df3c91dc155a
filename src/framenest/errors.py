"""Errors, warnings, and the command that installs a missing extra."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname


def install_hint(extra: str) -> str:
    """The command that installs an extra here, such as "run: pip install 'framenest[tags]'".

    It uses the source that Framenest was installed from (PEP 610): an index, folder, repository or file.
    """
    try:
        written = metadata.distribution("framenest").read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # the sources, on the path
        written = None
    origin = json.loads(written or "{}")
    what, url, version = f"framenest[{extra}]", origin.get("url"), origin.get("vcs_info")
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    if "dir_info" in origin:
        what = f"{url2pathname(urlsplit(url).path)}[{extra}]"
    elif version:
        what += f" @ {version['vcs']}+{url}@{version['commit_id']}"
    elif url:
        what += f" @ {url}"
    return f"run: {_installer()} {editable}{shlex.quote(what)}"


def _installer() -> str:
    """pip if this environment has it, otherwise uv."""
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(sys.executable)}"
    ours = Path(shutil.which("pip") or "").parent == Path(sys.executable).parent
    return "pip install" if ours else f"{shlex.quote(sys.executable)} -m pip install"


class FramenestError(Exception):
    """Base of all errors that Framenest raises on purpose. The message is one line."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: unpickled without the constructor, which may take more than the message."""
        return Exception.__new__, (type(self), *self.args), self.__dict__


def error_line(error: Exception) -> str:
    """What happened, as one line: an error of a file names the file, any other that is not ours its class.

    >>> error_line(OSError(36, "File name too long", "kiln.mp4"))
    'kiln.mp4: File name too long'
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, FramenestError):
        return str(error)
    return f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"


class VideoError(FramenestError):
    """The video cannot be used."""


class IndexMismatch(FramenestError):
    """An index or a ranking does not fit the video or this version of Framenest."""


class BudgetError(FramenestError):
    """The ranking cannot serve this frame budget."""


class ConfigError(FramenestError):
    """A setting is not allowed."""


class BadSetting(ConfigError):
    """One setting is out of range: its name, the given value, and the allowed ones."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"{name} = {value!r} is not allowed; it must be {allowed}")


class ScorerError(FramenestError):
    """A scorer cannot run, or did not return relevance in [0, 1]."""


class ModelError(FramenestError):
    """A multimodal model, or its server, gave no answer.

    Args:
        message: what went wrong.
        partial: the part of the answer that had arrived.
        fits: the number of frames that fit, if the context was too long.
    """

    def __init__(self, message: str, *, partial: str = "", fits: int | None = None) -> None:
        super().__init__(message)
        self.partial = partial
        self.fits = fits


class MissingExtra(FramenestError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"{package} is not installed; {install_hint(extra)}")
        self.package = package


@contextmanager
def needs_extra(extra: str, package: str = "") -> Iterator[None]:
    """Raise MissingExtra if an import inside fails. package: the one to name; by default the missing one."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(extra, package or error.name or extra) from error


class StoreError(FramenestError):
    """The cache or an output file cannot be read or written."""


class NotFetched(StoreError):
    """A file could not be downloaded: no network, or the server does not have it."""


class CacheWarning(UserWarning):
    """Part of the cache failed; work continues without it."""


class ScorerWarning(UserWarning):
    """Something to know before relying on a scorer's numbers."""
