"""Bounds in bytes that a user may set through an environment variable."""

from __future__ import annotations

import os

from framenest.errors import ConfigError
from framenest.text import bytes_of

FEATURES_VARIABLE = "FRAMENEST_FEATURES_LIMIT"
"""What the features of all videos may take in a cache directory."""
DOWNLOAD_VARIABLE = "FRAMENEST_MAX_DOWNLOAD"
"""The largest video that is downloaded whole."""


def limit_in(variable: str) -> int | None:
    """The bytes that an environment variable allows; None where it is not set.

    Raises:
        ConfigError: it is set to something else than a size.

    >>> limit_in(DOWNLOAD_VARIABLE) is None
    True
    """
    text = os.environ.get(variable, "")
    try:
        return bytes_of(text) if text else None
    except ValueError as error:
        raise ConfigError(f"${variable}: {error}") from error
