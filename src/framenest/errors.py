"""Everything Framenest raises on purpose.

FramenestError
├── VideoError      unreadable, no video stream, empty, changed
├── IndexMismatch   an index or ranking that does not belong to this video or this version
├── BudgetError     a frame budget that the ranking cannot serve
├── ConfigError     settings that contradict each other, or cannot be
│   └── BadSetting  one setting outside its range
├── ScorerError     a scorer that cannot run or returned nonsense
├── ModelError      a multimodal model or its server gave no answer
├── MissingExtra    an optional dependency is not installed; names the command that installs it
└── StoreError      the cache or an output cannot be read or written
"""

from __future__ import annotations

from framenest.installation import install_hint


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
