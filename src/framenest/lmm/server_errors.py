"""Errors of a model server as ModelErrors: one line each, with what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from framenest.errors import FramenestError, ModelError
from framenest.lmm.request import Request

TOO_LONG_CODES = ("context_length_exceeded", "exceed_context_size_error")
"""An error's `code` (OpenAI, vLLM) or `type` (llama.cpp) where the context is too long."""

# What only the sentence of an error tells, by the servers that write it.
_TOO_LONG = {
    "OpenAI, vLLM, SGLang": r"context[ _](length|window)",
    "vLLM's engine": r"max(imum)?[ _]model[ _]len|longer than the max",
    "llama.cpp": r"context[ _]size|exceeds? the (max|available)",
    "hosted models behind a gateway": r"prompt is too long|too many tokens",
}
_LIMIT = {
    "OpenAI, vLLM, SGLang": r"context[ _](?:length|size|window)|maximum",
    "vLLM's engine": r"model[ _]len(?:gth)?",
    "llama.cpp": r"n_ctx",
}
_MOST_IMAGES = {"vLLM": r"at most (\d+) image"}
_UNKNOWN_MODEL = {"SGLang, proxies": "model"}  # transformers serve names the model itself; others answer 404
_COMPLETION_COUNTED = {"OpenAI, vLLM": r"completion|output tokens"}
_UNKNOWN_FIELDS = {"FastAPI servers": "stream_options", "OpenAI, proxies": "max_completion_tokens"}

_SHOWN = 300  # characters of what a server says


def _find(table: dict[str, str], said: str, around: str = "(?:{})") -> re.Match[str] | None:
    return re.search(around.format("|".join(table.values())), said, re.IGNORECASE)


class Server(Protocol):
    """The part of the client that explanations need."""

    base_url: str

    @property
    def model(self) -> str: ...
    @property
    def max_tokens(self) -> int: ...
    def models(self) -> dict[str, int | None]: ...


class ServerErrors:
    """Translates errors of the openai package into ModelErrors, without the API key in them."""

    def __init__(self, server: Server, key: str | None, variable: str, timeout: float, retries: int) -> None:
        self._server, self._key, self._variable = server, key, variable
        self._timeout, self._retries = timeout, retries

    @property
    def _where(self) -> str:
        return getattr(self._server, "base_url", "the server")

    @contextmanager
    def translated(self, request: Request | None = None) -> Iterator[None]:
        """Raise errors of the openai package as ModelErrors."""
        import openai

        try:
            yield
        except FramenestError:
            raise
        except openai.OpenAIError as error:
            raise self._explained(error, request) from (error if self.safe(error) else None)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Around reading a reply: the openai package returns an HTML page as text, without any field."""
        try:
            yield
        except (AttributeError, TypeError, ValueError) as error:
            raise self.stranger() from error

    def stranger(self) -> ModelError:
        """The error for something that is no OpenAI-compatible server, such as a web page."""
        return ModelError(
            f"{self._where} answers, but not as an OpenAI server; should the address end in /v1?"
        )

    def cut_off(self, error: Exception | None, partial: str) -> ModelError:
        """The error for a stream that ended before the answer did."""
        why = f" ({self._clean(str(error))})" if error is not None and str(error) else ""
        got = f"{len(partial)} characters of the answer had arrived" if partial else "nothing had arrived"
        return ModelError(f"{self._where} went away in mid-answer{why}; {got}", partial=partial)

    def unknown_field(self, error: Any) -> str:
        """The optional field that a server refuses: OpenAI names it in `param`, others in a sentence."""
        found = _find(_UNKNOWN_FIELDS, self._said(error))
        return error.param or (found[0] if found else "")

    def _explained(self, error: Any, request: Request | None) -> ModelError:
        import openai

        where = self._where
        if isinstance(error, openai.APITimeoutError):
            return ModelError(f"{where}: no answer within {self._timeout:g} seconds")
        if isinstance(error, openai.APIConnectionError):
            why = self._clean(str(error.__cause__ or error))
            return ModelError(f"{where}: nothing answers there ({why}); is the server running?")
        if not isinstance(error, openai.APIStatusError):
            return ModelError(f"{where}: {self._clean(str(error))}")
        said, status = self._said(error), error.status_code
        if 300 <= status < 400:
            there = self._clean(error.response.headers.get("location", "elsewhere"))
            return ModelError(f"{where} sends on to {there}; give that address if frames may go there")
        if status in (401, 403):
            hint = "is not accepted" if self._key else "is not set"
            return ModelError(f"{where} refused access ({status}); the key in ${self._variable} {hint}")
        if request is not None and (known := self._known(error, said, request)):
            return known
        retried = self._retries and (status == 429 or status >= 500)
        tried = f" after {self._retries + 1} tries" if retried else ""
        return ModelError(f"{where} answered {status}{tried}: {said[:_SHOWN]}")

    def _known(self, error: Any, said: str, request: Request) -> ModelError | None:
        """Errors that the user can fix: the model's name, the number or size of the frames."""
        where, status, model = self._where, error.status_code, self._server.model
        if error.code in TOO_LONG_CODES or error.type in TOO_LONG_CODES or _find(_TOO_LONG, said):
            return self._too_long(said, request)
        if most := _find(_MOST_IMAGES, said):
            fits = min(int(most[1]), len(request.prefix) - 1)
            return ModelError(f"{where} takes at most {most[1]} images a request; -k {fits}", fits=fits)
        if status == 413:
            return ModelError(f"{where} finds the request too large; smaller pictures: --max-side, --quality")
        if status == 404 or model in said or (status == 400 and _find(_UNKNOWN_MODEL, said)):
            listed = self._listed()
            if listed and model not in listed:
                return ModelError(f"{where} does not serve {model!r}; it lists {', '.join(listed)}")
        if status == 404 and not urlsplit(where).path:
            return ModelError(f"{where} answered 404; should the address end in /v1?")
        return None

    def _too_long(self, said: str, request: Request) -> ModelError:
        """How many frames would fit, from the server's numbers or the estimate."""
        server, count = self._server, len(request.prefix)
        found = _find(_LIMIT, said, r"(?:{})[^\d]{{0,25}}(\d{{2,}})")
        limit = int(found[1]) if found else self._listed().get(server.model)
        asked = f"{self._where}: {count} frames are too long for the context of {server.model!r}"
        if limit is None:
            return ModelError(
                f"{asked}; take fewer frames with -k, or smaller ones with --max-side ({said[:_SHOWN]})"
            )
        used = max((int(n) for n in re.findall(r"\d{2,}", said) if int(n) > limit), default=0)
        if not count:
            return ModelError(
                f"{self._where}: the question alone is too long for the context ({limit} tokens)"
            )
        pictures = request.tokens.frames + request.tokens.times
        if used:
            answer = server.max_tokens if _find(_COMPLETION_COUNTED, said) else 0
            told = max(count, used - request.tokens.text - answer)
            pictures = max(pictures, told) if "at least" in said else told
        left = limit - request.tokens.text - server.max_tokens
        fits = min(count - 1, int(left * count / pictures))
        if fits < 1:
            advice = "not even one fits: limit the pictures with --max-side"
            return ModelError(f"{asked} ({limit} tokens); {advice}")
        return ModelError(f"{asked} ({limit} tokens); -k {fits} should fit", fits=fits)

    def _listed(self) -> dict[str, int | None]:
        try:
            return self._server.models()
        except ModelError:
            return {}

    def _said(self, error: Any) -> str:
        """The server's message; servers put it in different fields."""
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
