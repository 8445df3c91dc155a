"""Client of OpenAI-compatible servers."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from framenest.errors import ConfigError, MissingExtra, ModelError
from framenest.lmm.answer import Answer, OnText, Splitter, Usage, split_reasoning
from framenest.lmm.request import Request
from framenest.lmm.server_errors import ServerErrors


class ReadDeadline:
    """Bounds all reads of a request together, headers and body; httpx bounds each of them alone.

    One deadline may serve many threads: each reads within its own time.

    Example::

        deadline = ReadDeadline()
        client = httpx.Client(event_hooks={"request": [deadline.watch]})
        with deadline.within(60.0):
            client.get("http://localhost:8000/v1/models")  # httpx.ReadTimeout after 60 s, at the latest
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What this thread reads here is read within so many seconds, or times out."""
        outer = self._until
        self.extend(seconds)
        try:
            yield
        finally:
            self._of_thread.until = outer

    def extend(self, seconds: float) -> None:
        """Inside `within`: so many seconds from now."""
        self._of_thread.until = monotonic() + seconds

    @property
    def _until(self) -> float:
        return getattr(self._of_thread, "until", float("inf"))

    def watch(self, request: Any) -> None:
        """The hook of a client for every request; a connection that it opens is bounded from then on."""
        request.extensions["trace"] = self._opened

    def _opened(self, event: str, info: dict[str, Any]) -> None:
        stream: Any = info.get("return_value")
        if event.endswith(".complete") and hasattr(stream, "start_tls"):  # connected, or now encrypted
            stream.read = self._bounded(stream)

    def _bounded(self, stream: Any) -> Callable[..., bytes]:
        library = importlib.import_module(type(stream).__module__.partition(".")[0])  # httpcore, of httpx
        unbounded = stream.read

        def read(max_bytes: int, timeout: float | None = None) -> bytes:
            left = self._until - monotonic()
            if left <= 0:
                raise library.ReadTimeout("the answer is not complete in time")
            known: bytes = unbounded(max_bytes, timeout=left if timeout is None else min(timeout, left))
            return known

        return read


KEY_VARIABLE = "OPENAI_API_KEY"
LIST_SECONDS = 20.0  # for the list of models
_NO_KEY = "none"  # servers of one's own want none, and the client library insists on one


class Client:
    """Sends requests to a server and returns its answers. One client may serve many threads.

    Args:
        base_url: "http://localhost:8000/v1".
        model: its name there; by default the only one there is.
        key_variable: the environment variable that holds the API key, which is never written anywhere.
        timeout: seconds for one answer, from the request to its last byte; of a streamed one, from the
            request to its first words and between any two pieces.
        retries: of busy (429) and failing (5xx) servers, with exponential back-off.
        thinking: switches the reasoning of models that can on or off; None leaves it to the server.
        max_tokens: the most that an answer may take; None leaves it to the server.
        temperature: of the sampling; None leaves it to the server.
        extra_body: anything else to send along.

    Raises:
        ConfigError: the address is none.
        MissingExtra: the package openai is not installed.

    Example::

        with Client("http://localhost:8000/v1", "Qwen/Qwen3.5-9B") as client:
            client.answer(messages(prefix, "What happens after firing?")).text
    """

    def __init__(
        self,
        base_url: str | None = None,
        model: str | None = None,
        *,
        key_variable: str = KEY_VARIABLE,
        timeout: float = 600.0,
        retries: int = 4,
        thinking: bool | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("ask", "openai") from error
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"base URL {base_url!r} must begin with http:// or https://")
        self.thinking = thinking
        self._openai = openai
        key = os.environ.get(key_variable) or None
        self._timeout = timeout
        self._deadline = ReadDeadline()
        self._errors = ServerErrors(self, key, key_variable, timeout, retries)
        with self._errors.translated():
            self._client = openai.OpenAI(
                base_url=base_url,
                api_key=key or _NO_KEY,
                timeout=timeout,
                max_retries=retries,
                # A redirect would carry the frames to wherever the server says.
                http_client=openai.DefaultHttpxClient(
                    follow_redirects=False, event_hooks={"request": [self._deadline.watch]}
                ),
            )
        self.base_url = without_password(str(self._client.base_url))
        self._settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
        self._extra = dict(extra_body or {})
        if thinking is not None:
            self._extra["chat_template_kwargs"] = {"enable_thinking": thinking}
        self._renamed = False
        self._usage_in_stream = True
        self._model = model

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __repr__(self) -> str:
        return f"Client({self.base_url!r}, model={self._model!r})"

    @property
    def max_tokens(self) -> int:
        """Tokens that the answer may take; 0 where that is left to the server."""
        return self._settings["max_tokens"] or 0

    @property
    def model(self) -> str:
        """The model's name; by default that of the only model on the server."""
        if self._model is None:
            listed = self.models()
            if len(listed) != 1:
                found = ", ".join(listed) or "no model at all"
                raise ConfigError(f"say which model to ask; {self.base_url} lists {found}")
            self._model = next(iter(listed))
        return self._model

    def models(self) -> dict[str, int | None]:
        """The models that the server lists, with their context length in tokens where it says so.

        Empty where the server has no such list; an error where nothing answers at all.
        """
        client = self._client.with_options(max_retries=0, timeout=LIST_SECONDS)
        try:
            with self._deadline.within(LIST_SECONDS), self._errors.translated(), self._errors.understood():
                listed = client.models.list().data or []
        except ModelError as error:
            cause = error.__cause__
            if isinstance(cause, self._openai.AuthenticationError):
                raise
            if isinstance(cause, self._openai.APIStatusError):
                return {}
            raise
        return {entry.id: getattr(entry, "max_model_len", None) for entry in listed}

    def answer(self, request: Request, *, on_text: OnText | None = None) -> Answer:
        """Send a request and return the model's answer.

        Args:
            request: what `messages` made, in a style for servers.
            on_text: called with ("reasoning" or "answer", piece) as the answer is streamed.

        Raises:
            ModelError: what went wrong, in one line; `partial` holds what had arrived of the answer,
                `fits` the number of frames that fits where the context was too long.
        """
        began = time.perf_counter()
        with self._deadline.within(self._timeout), self._errors.translated(request):
            if on_text is None:
                return self._whole(request, began)
            return self._streamed(request, on_text, began)

    def _whole(self, request: Request, began: float) -> Answer:
        response = self._create(request, {})
        with self._errors.understood():
            reply = response.parse()
            choices = reply.choices
        if not choices:
            raise ModelError(f"{self.base_url} sent an answer without content")
        choice = choices[0]
        thought, finish = _extra_text(choice.message), choice.finish_reason or "stop"
        cut_off = bool(self.thinking) and finish == "length" and not thought
        inside, text = split_reasoning(choice.message.content or "", cut_off=cut_off)
        usage = _usage(reply.usage, began, None, response.retries_taken)
        return Answer(text, thought or inside, reply.model, finish, usage)

    def _streamed(self, request: Request, on_text: OnText, began: float) -> Answer:
        splitter = Splitter(on_text, thinking=bool(self.thinking))
        answer, reasoning = splitter.pieces["answer"], splitter.pieces["reasoning"]
        response = self._create(request, {"stream": True})
        finish, counted, model = None, None, self.model
        for chunk in self._chunks(response, answer):
            counted, model = chunk.usage or counted, chunk.model or model
            for choice in chunk.choices[:1]:
                thought, text = _extra_text(choice.delta), choice.delta.content or ""
                if thought or text:
                    self._deadline.extend(self._timeout)
                if thought:
                    splitter.reasoning(thought)
                splitter.text(text)
                finish = choice.finish_reason or finish
        splitter.end(cut_off=finish == "length")
        inside, text = split_reasoning("".join(answer))
        if finish is None:
            raise self._errors.cut_off(None, text)
        usage = _usage(counted, began, splitter.first_seconds, response.retries_taken)
        return Answer(text, "".join([*reasoning, inside]).strip(), model, finish, usage)

    def _chunks(self, response: Any, heard: list[str]) -> Iterator[Any]:
        """The pieces of a stream; whatever breaks it off becomes one kind of error."""
        with response.parse() as stream:
            arriving = iter(stream)
            while True:
                try:
                    chunk = next(arriving)
                except StopIteration:
                    return
                except Exception as error:
                    cut = self._errors.cut_off(error, "".join(heard))
                    raise cut from (error if self._errors.safe(error) else None)
                yield chunk

    def _create(self, request: Request, more: dict[str, Any]) -> Any:
        """Post the request; again without an optional field that the server does not know."""
        openai = self._openai
        while True:
            renamed, usage = self._renamed, self._usage_in_stream  # another thread may learn meanwhile
            try:
                made = self._client.chat.completions.with_raw_response.create(
                    model=self.model, **self._arguments(request, more, renamed, usage)
                )
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                field = self._errors.unknown_field(error)
                if field == "stream_options" and usage:
                    self._usage_in_stream = False
                elif field in ("max_tokens", "max_completion_tokens") and not renamed:
                    self._renamed = True
                else:
                    raise
            else:
                if "html" in made.headers.get("content-type", ""):
                    raise self._errors.stranger()
                return made

    def _arguments(
        self, request: Request, more: dict[str, Any], renamed: bool, usage: bool
    ) -> dict[str, Any]:
        given = {name: value for name, value in self._settings.items() if value is not None} | more
        if renamed and "max_tokens" in given:
            given["max_completion_tokens"] = given.pop("max_tokens")
        if more and usage:
            given["stream_options"] = {"include_usage": True}
        body = request.create
        return given | {"messages": body["messages"], "extra_body": self._extra | body.get("extra_body", {})}


def without_password(url: str) -> str:
    """An address without the user and password it may hold.

    >>> without_password("https://me:secret@host:8000/v1/")
    'https://host:8000/v1'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")


def _extra_text(message: Any) -> str:
    """Reasoning that a server sends beside the answer, under either of its two names."""
    return getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""


def _usage(counted: Any, began: float, first: float | None, retries: int) -> Usage:
    return Usage(
        prompt_tokens=counted.prompt_tokens if counted else None,
        completion_tokens=counted.completion_tokens if counted else None,
        seconds=time.perf_counter() - began,
        first_seconds=first,
        retries=retries,
    )
