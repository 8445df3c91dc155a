"""What goes wrong between here and a server, in one line that says what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from framenest.errors import FramenestError, ModelError
from framenest.lmm.request import Request

_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|max(imum)?[ _]model[ _]len|longer than the max|prompt is too long"
    r"|too many tokens|exceeds? the (max|available)",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"(?:context[ _](?:length|size|window)|model[ _]len(?:gth)?|n_ctx|maximum)[^\d]{0,25}(\d{2,})",
    re.IGNORECASE,
)
_MOST = re.compile(r"at most (\d+) image", re.IGNORECASE)
_SHOWN = 300  # characters of what a server says


class Server(Protocol):
    """What an explanation needs to know of the client."""

    base_url: str

    @property
    def model(self) -> str: ...
    @property
    def max_tokens(self) -> int: ...
    def models(self) -> dict[str, int | None]: ...


class Translator:
    """Turns the client library's errors into ModelErrors; knows the key, to keep it out of them."""

    def __init__(self, key: str | None, variable: str, timeout: float, retries: int) -> None:
        self._key, self._variable, self._timeout, self._retries = key, variable, timeout, retries

    @contextmanager
    def translated(self, server: Server, request: Request | None = None) -> Iterator[None]:
        import openai

        try:
            yield
        except FramenestError:
            raise
        except openai.OpenAIError as error:
            said = self._explain(server, error, request)
            raise said from (error if self.safe(error) else None)

    @contextmanager
    def understood(self, server: Server) -> Iterator[None]:
        """For reading what the library parsed: a page of HTML comes as text, with no field of an answer."""
        try:
            yield
        except (AttributeError, TypeError, ValueError) as error:
            raise self.stranger(server) from error

    def stranger(self, server: Server) -> ModelError:
        """Something is there, but no server of this protocol."""
        where = server.base_url
        return ModelError(f"{where} answers, but not as an OpenAI server; should the address end in /v1?")

    def cut_off(self, server: Server, error: Exception | None, partial: str) -> ModelError:
        """The stream ended before the answer did."""
        why = f" ({self._clean(str(error))})" if error is not None and str(error) else ""
        got = f"{len(partial)} characters of the answer had arrived" if partial else "nothing had arrived"
        return ModelError(f"{server.base_url} went away in mid-answer{why}; {got}", partial=partial)

    def _explain(self, server: Server, error: Any, request: Request | None) -> ModelError:
        import openai

        where = getattr(server, "base_url", "the server")
        if isinstance(error, openai.APITimeoutError):
            return ModelError(f"{where}: no answer within {self._timeout:g} seconds")
        if isinstance(error, openai.APIConnectionError):
            why = self._clean(str(error.__cause__ or error))
            return ModelError(f"{where}: nothing answers there ({why}); is the server running?")
        if not isinstance(error, openai.APIStatusError):
            return ModelError(f"{where}: {self._clean(str(error))}")
        said, status = self.said(error), error.status_code
        if status in (401, 403):
            hint = "is not accepted" if self._key else "is not set"
            return ModelError(f"{where} refused access ({status}); the key in ${self._variable} {hint}")
        if request is not None and (known := self._known(server, status, said, request)):
            return known
        tried = (
            f" after {self._retries + 1} tries" if self._retries and (status == 429 or status >= 500) else ""
        )
        return ModelError(f"{where} answered {status}{tried}: {said[:_SHOWN]}")

    def _known(self, server: Server, status: int, said: str, request: Request) -> ModelError | None:
        """What can be put right on this side: the model's name, the number or size of the frames."""
        where = server.base_url
        if _TOO_LONG.search(said):
            return _too_long(server, said, request)
        if most := _MOST.search(said):
            fits = min(int(most.group(1)), len(request.prefix) - 1)
            return ModelError(f"{where} takes at most {most.group(1)} images a request; -k {fits}", fits=fits)
        if status == 413:
            return ModelError(f"{where} finds the request too large; smaller pictures: --max-side, --quality")
        if status == 404 or (status == 400 and "model" in said.lower()) or server.model in said:
            listed = _listed(server)
            if listed and server.model not in listed:
                there = ", ".join(listed)
                return ModelError(f"{where} does not serve {server.model!r}; it lists {there}")
        if status == 404 and not urlsplit(where).path:
            return ModelError(f"{where} answered 404; should the address end in /v1?")
        return None

    def said(self, error: Any) -> str:
        """The server's own words, wherever its kind puts them."""
        body = error.body
        if isinstance(body, dict):
            inner = body.get("error", body)
            message = inner.get("message") or inner.get("detail") if isinstance(inner, dict) else inner
            rest = {k: v for k, v in inner.items() if isinstance(v, int)} if isinstance(inner, dict) else {}
            text = message if isinstance(message, str) else json.dumps(message or body)
            return self._clean(text + (f" {json.dumps(rest)}" if rest else ""))
        return self._clean(str(body or error))

    def _clean(self, text: str) -> str:
        """One line, without pictures and without the key."""
        text = re.sub(r"[A-Za-z0-9+/]{200,}={0,2}", "…", " ".join(text.split()))
        return text.replace(self._secret, "***") if self._secret else text

    @property
    def _secret(self) -> str:
        """The key, where there is one to hide; "EMPTY" and the like are none."""
        return self._key if self._key is not None and len(self._key) > 5 else ""

    def safe(self, error: BaseException | None) -> bool:
        """Whether a traceback may show this error: nothing in its chain repeats the key."""
        while error is not None:
            if self._secret and self._secret in f"{error} {getattr(error, 'body', '')}":
                return False
            error = error.__cause__ or error.__context__
        return True


def _too_long(server: Server, said: str, request: Request) -> ModelError:
    """Frames are what can be spared: how many fit, from the server's numbers or the estimate."""
    found = _LIMIT.search(said)
    limit = int(found.group(1)) if found else _listed(server).get(server.model)
    count = len(request.prefix)
    asked = f"{server.base_url}: {count} frames are too long for the context of {server.model!r}"
    if limit is None:
        return ModelError(
            f"{asked}; take fewer frames with -k, or smaller ones with --max-side ({said[:_SHOWN]})"
        )
    room = limit - request.tokens.text - server.max_tokens
    used = max((int(n) for n in re.findall(r"\d{2,}", said) if int(n) > limit), default=0)
    pictures = request.tokens.frames + request.tokens.times
    if used:
        together = re.search("completion|output tokens", said, re.IGNORECASE)
        answer = server.max_tokens if together else 0  # counted with the prompt
        told = max(count, used - request.tokens.text - answer)
        pictures = max(pictures, told) if "at least" in said else told
    fits = min(count - 1, int(room * count / pictures))
    if fits < 1:
        return ModelError(f"{asked} ({limit} tokens); not even one fits: limit the pictures with --max-side")
    return ModelError(f"{asked} ({limit} tokens); -k {fits} should fit", fits=fits)


def _listed(server: Server) -> dict[str, int | None]:
    try:
        return server.models()
    except ModelError:
        return {}
