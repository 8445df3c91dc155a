"""Refusals: requests that are answered with an error status."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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

GATEWAY = "/v1/"  # OpenAI's API
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Refusal(FramenestError):
    """Like Starlette's HTTPException; a FramenestError, since jobs meet refusals too.

    status: of HTTP: 403 not allowed, 404 unknown, 409 not ready, 413 too large, 422 unusable, 429 too many.
    retry_after: seconds, if waiting helps.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


_STATUS: dict[type[FramenestError], int] = {
    IndexMismatch: 409,
    BudgetError: 422,
    ConfigError: 422,
    VideoError: 422,
    ScorerError: 422,
    ModelError: 502,
    StoreError: 507,
}


def status_of(error: FramenestError) -> int:
    """
    >>> status_of(Refusal(429, "full", 3)), status_of(BudgetError("too many"))
    (429, 422)
    """
    if isinstance(error, Refusal):
        return error.status
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)


def refusal_body(path: str, status: int, message: str) -> dict[str, Any]:
    """The JSON of a refusal: a `detail`, or OpenAI's error object below GATEWAY."""
    if not path.startswith(GATEWAY):
        return {"detail": message}
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def first_problem(problems: Sequence[Any], skip: int = 0) -> str:
    """The first of Pydantic's errors in one line; what was sent is not repeated.

    skip: parts of its place to leave out, such as "body".

    >>> first_problem([{"loc": ("body", "k"), "msg": "Field required"}], skip=1)
    'k: Field required'
    """
    place, message = problems[0]["loc"], problems[0]["msg"].removeprefix("Value error, ")
    return f"{'.'.join(str(part) for part in place[skip:] or place)}: {message}"


class ConcurrencyLimit:
    """A semaphore that refuses with 429 and Retry-After if no place is free within `wait` seconds."""

    def __init__(self, most: int, what: str, retry_after: int, wait: float = 0.0) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._message = f"{what}; try again later"
        self._retry_after, self._wait = retry_after, wait

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if not self._places.acquire(timeout=self._wait):
            raise Refusal(429, self._message, self._retry_after)
        try:
            yield
        finally:
            self._places.release()
