"""What the service refuses, each with its HTTP status."""

from __future__ import annotations

from framenest.errors import (
    BudgetError,
    ConfigError,
    FramenestError,
    IndexMismatch,
    ModelError,
    ScorerError,
    StoreError,
    VideoError,
)


class Refusal(FramenestError):
    """A request that is not served. `status`: of HTTP; `retry_after`: seconds, where waiting helps."""

    status = 400

    def __init__(self, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Forbidden(Refusal):
    status = 403


class Unknown(Refusal):
    status = 404


class NotReady(Refusal):
    status = 409


class TooLarge(Refusal):
    status = 413


class Unusable(Refusal):
    """The request is well formed, what it names cannot be used."""

    status = 422


class Busy(Refusal):
    """More than the service takes on at once."""

    status = 429


_STATUS: tuple[tuple[type[FramenestError], int], ...] = (
    (IndexMismatch, 409),
    (BudgetError, 422),
    (ConfigError, 422),
    (VideoError, 422),
    (ScorerError, 422),
    (ModelError, 502),
    (StoreError, 507),
)


def status_of(error: FramenestError) -> int:
    """
    >>> status_of(Busy("full", 3)), status_of(BudgetError("too many"))
    (429, 422)
    """
    if isinstance(error, Refusal):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
