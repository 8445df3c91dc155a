"""Client of OpenAI-compatible servers, and the answers it returns. Every error is a one-line ModelError."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from time import monotonic
from typing import Any, Literal, Protocol, Self
from urllib.parse import urlsplit

from framenest.config import ScorerConfig
from framenest.errors import ConfigError, ModelError, needs_extra
from framenest.listening import Recognizer, Samples
from framenest.lmm.request import Request
from framenest.text import is_url
from framenest.transcript import Transcript, json_lines
from framenest.video.decoder import SOUND_RATE

KEY_VARIABLE = "OPENAI_API_KEY"
LIST_SECONDS = 20.0  # timeout of the list of models
_NO_KEY = "none"  # local servers need no key, but the openai package does
MAX_ANSWER_BYTES = 64 * 2**20  # on the wire
_MESSAGE_CHARACTERS = 300  # of a server's message that are shown

# How servers say that the context is too long, in an error's code, type or message.
_TOO_LONG = (
    r"context[ _](length|window)"  # OpenAI, vLLM, SGLang
    r"|max(imum)?[ _]model[ _]len|longer than the max"  # vLLM's engine
    r"|context[ _]size|exceeds? the (max|available)"  # llama.cpp
    r"|prompt is too long|too many tokens"  # hosted models behind a gateway
)
# The number after these words is the context length.
_LIMIT = r"(?:context[ _](?:length|size|window)|maximum|model[ _]len(?:gth)?|n_ctx)[^\d]{0,25}(\d{2,})"
# How vLLM, SGLang, Azure, Anthropic, Groq, Copilot and others say how many images a request may hold.
_OF_IMAGES = r"\bimages\b|image\(s\)|image (?:count|limit)|media|image=|\b1 image\b"
_AT_MOST = r"(?:at most|up to|only(?: supports)?|max\w*|limit|image=|\d/|>)"
_MOST = _AT_MOST + r"(?: (?:of|is|allowed|number of images))*[\s:=(]*(\d[\d,]*)\b"
_BASE64 = re.compile(r"[A-Za-z0-9+/]{200,}={0,2}")  # of images, which some servers repeat in an error
_SIZE = r"\s*(?:[kmg]i?b\b|px\b|pixels?|bytes?|tokens?|[x×])"  # after a number that is no count


Kind = Literal["reasoning", "answer"]
OnText = Callable[[Kind, str], None]  # called with each piece of an answer as it arrives

THINK, END_THINK = "<think>", "</think>"


@dataclass(frozen=True)
class Usage:
    """The cost of one answer. Tokens are None if the server did not count them."""

    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float  # from the request to the last word
    first_seconds: float | None = None  # to the first word, if it was streamed
    retries: int = 0  # retries of a busy or failing server

    def to_json(self) -> dict[str, Any]:
        """The fields; seconds are rounded to milliseconds."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Answer:
    """A model's reply."""

    text: str  # the answer without its reasoning
    reasoning: str
    model: str
    finish_reason: str  # "stop", or "length" if it was cut off
    usage: Usage


def most_images(message: str, sent: int) -> int | None:
    """How many images a request may hold, by a server's error about `sent` of them; None if it says another.

    >>> most_images("At most 8 image(s) may be provided", 16), most_images("too many images: 120 > 100", 120)
    (8, 100)
    """
    message = _BASE64.sub("…", message.replace("one image", "1 image"))
    numbers = re.findall(f"{_MOST}(?!{_SIZE})", message, re.I) if re.search(_OF_IMAGES, message, re.I) else []
    return next((most for most in (int(n.replace(",", "")) for n in numbers) if 0 < most < sent), None)


class Answerer(Protocol):
    """Anything that answers a request: `Client`, or a class of yours.

    >>> class Parrot:
    ...     def answer(self, request, *, on_text=None):
    ...         return Answer("A kiln.", "", "parrot", "stop", Usage(None, None, 0.0))
    """

    def answer(self, request: Request, *, on_text: OnText | None = None) -> Answer:
        """Answer a request.

        Args:
            request: the question with its frames, from `messages`.
            on_text: called with ("reasoning" or "answer", piece) as the answer arrives, unless None.

        Returns:
            The whole answer, with its reasoning separate.

        Raises:
            ModelError: the model gave no answer.
        """
        ...


class Splitter:
    """Separates reasoning from answer, also while the text arrives. The opening tag may be missing.

    thinking: whether the model was asked to think. Text without a tag may then turn out to be reasoning, so
    it is held back until that is known.

    >>> splitter = Splitter(lambda kind, piece: None, thinking=False)
    >>> splitter.text("It fires… </think>\\n\\nB")
    >>> splitter.end()
    ('It fires…', 'B')
    """

    def __init__(self, on_text: OnText, *, thinking: bool) -> None:
        self._on_text, self._thinking = on_text, thinking
        self._kind: Kind | None = None  # not known yet
        self._pending = ""
        self.pieces: dict[Kind, str] = {"reasoning": "", "answer": ""}  # those passed to `on_text` so far

    def reasoning(self, piece: str) -> None:
        """Take a piece that the server marked as reasoning; unmarked text after it is the answer."""
        if piece:
            self._kind = "answer"
            self._give("reasoning", piece)

    def text(self, piece: str) -> None:
        """Take a piece that is not marked."""
        self._pending += piece
        if self._kind is None:
            begins = self._pending.lstrip()
            if begins.startswith(THINK):
                self._kind, self._pending = "reasoning", begins.removeprefix(THINK)
            elif not self._thinking and not THINK.startswith(begins):
                self._kind = "answer"
        before, closed, after = self._pending.partition(END_THINK)
        if closed and self._kind != "answer":
            self._give("reasoning", before)
            self._kind, self._pending = "answer", after.lstrip()
        if self._kind == "answer":
            self._give("answer", self._pending)
            self._pending = ""
        elif self._kind == "reasoning":
            sure = max(0, len(self._pending) - len(END_THINK) + 1)  # a tag may have begun after that
            self._give("reasoning", self._pending[:sure])
            self._pending = self._pending[sure:]

    def end(self, *, cut_off: bool = False) -> tuple[str, str]:
        """The whole reasoning and answer.

        cut_off: the model ran out of tokens, so the text held back until now is reasoning.
        """
        self._give(self._kind or ("reasoning" if cut_off else "answer"), self._pending)
        self._pending = ""
        inside, _, answer = self.pieces["answer"].rpartition(END_THINK)  # the chat template opened the tag
        return (self.pieces["reasoning"] + inside).strip(), answer.strip()

    def _give(self, kind: Kind, piece: str) -> None:
        if piece:
            self.pieces[kind] += piece
            self._on_text(kind, piece)


class ReadDeadline(threading.local):
    """Bounds all reads of a request together, headers and body; httpx bounds each read alone.

    Each thread that uses the client has its own deadline.
    """

    until = math.inf  # the `monotonic` time after which reads time out
    left = sys.maxsize  # bytes that may still come

    def begin(self, seconds: float) -> None:
        """Bound what comes from now on."""
        self.until, self.left = monotonic() + seconds, MAX_ANSWER_BYTES

    def watch(self, request: Any) -> None:
        """Request hook of an httpx client: bounds the connections that the request opens."""
        request.extensions["trace"] = self._bound
        request.headers["accept-encoding"] = "identity"  # compressed, a little could become a lot

    def watch_answer(self, response: Any) -> None:
        """Response hook of an httpx client."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ModelError("the server sent a compressed answer, which was not asked for")

    def _bound(self, event: str, info: dict[str, Any]) -> None:
        stream: Any = info.get("return_value")
        if not (event.endswith(".complete") and hasattr(stream, "start_tls")):
            return  # not a new connection
        read_unbounded = stream.read

        def read(max_bytes: int, timeout: float | None = None) -> bytes:
            left = self.until - monotonic()
            if left <= 0:
                raise TimeoutError("the answer is not complete in time")
            received: bytes = read_unbounded(max_bytes, left if timeout is None else min(timeout, left))
            self.left -= len(received)
            if self.left < 0:
                raise ModelError(f"the server sent more than {MAX_ANSWER_BYTES >> 20} MiB")
            return received

        stream.read = read


class Client:
    """Sends requests to a server and returns its answers. Safe to use from many threads.

    Args:
        base_url: for example "http://localhost:8000/v1".
        model: the model's name; by default the only one that the server lists.
        key_variable: the environment variable with the API key. The key is never logged or saved.
        timeout: seconds until the answer must be complete; for a streamed answer, until its first words and
            between any two pieces.
        retries: how often to retry if the server is busy (429) or fails (5xx), with exponential back-off.
        thinking: turns a model's reasoning on or off; None leaves it to the server.
        max_tokens: an upper bound for the answer; None leaves it to the server.
        temperature: of the sampling; None leaves it to the server.
        extra_body: further fields of the request.

    Raises:
        ConfigError: base_url is not an http(s) URL.
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
        with needs_extra("ask", "openai"):
            import openai
        if base_url is not None and not is_url(base_url):
            raise ConfigError(f"base_url {base_url!r} is not an http(s) URL")
        self.max_tokens, self.thinking = max_tokens, thinking
        self._openai, self._model = openai, model
        self._key, self._key_variable = os.environ.get(key_variable) or None, key_variable
        self._timeout, self._retries = timeout, retries
        self._deadline = ReadDeadline()
        self._temperature, self._extra = temperature, dict(extra_body or {})
        if thinking is not None:
            self._extra["chat_template_kwargs"] = {"enable_thinking": thinking}
        self._refused: set[str] = set()  # optional fields that this server rejects
        self.most_images: int | None = None  # that a request may hold, once the server has said so
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=self._key or _NO_KEY,
            timeout=timeout,
            max_retries=retries,
            # A redirect would send the frames wherever the server says.
            http_client=openai.DefaultHttpxClient(
                follow_redirects=False,
                event_hooks={"request": [self._deadline.watch], "response": [self._deadline.watch_answer]},
            ),
        )
        # Without user and password, since errors name it.
        self.base_url = str(self._client.base_url.copy_with(userinfo=b"")).rstrip("/")

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
    def model(self) -> str:
        """The model's name; by default the only one that the server lists."""
        if self._model is None:
            listed = self.models()
            if len(listed) != 1:
                raise ConfigError(f"choose a model; {self.base_url} lists {', '.join(listed) or 'none'}")
            self._model = next(iter(listed))
        return self._model

    def models(self) -> dict[str, int | None]:
        """The models that the server lists, with their context length in tokens, or None if it is unknown.

        Empty if the server has no such list. Raises ModelError if it cannot be reached.
        """
        client = self._client.with_options(max_retries=0, timeout=LIST_SECONDS)
        self._deadline.begin(LIST_SECONDS)
        with self._explained():
            try:
                listed = self._parsed(client.models.with_raw_response.list(), "data").data or []
            except self._openai.AuthenticationError:
                raise
            except self._openai.APIStatusError:
                return {}
        return {entry.id: getattr(entry, "max_model_len", None) for entry in listed}

    def answer(self, request: Request, *, on_text: OnText | None = None) -> Answer:
        """Send a request and return the model's answer.

        Args:
            request: from `messages`, in a style for servers.
            on_text: if given, the answer is streamed; called with ("reasoning" or "answer", piece).

        Raises:
            ModelError: says in one line what went wrong. `partial` holds the part of the answer that
                arrived; `fits` is the number of frames that fit, if the context was too long.
        """
        model, began = self.model, time.perf_counter()
        self._deadline.begin(self._timeout)
        streams = on_text is not None
        splitter = Splitter(on_text or (lambda *_: None), thinking=bool(self.thinking))
        finish, counted, first = None, None, None
        with self._explained(request):
            response = self._create(request, stream=streams)
            chunks = self._chunks(response, splitter) if streams else [self._parsed(response, "choices")]
            for chunk in chunks:
                counted, model = chunk.usage or counted, chunk.model or model
                for choice in chunk.choices[:1]:
                    message = choice.delta if streams else choice.message
                    # Servers that send reasoning in a separate field use one of two names.
                    thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", "")
                    if thought or message.content:
                        self._deadline.until = monotonic() + self._timeout
                        first = first or time.perf_counter() - began
                    splitter.reasoning(thought or "")
                    splitter.text(message.content or "")
                    finish = choice.finish_reason or finish or (None if streams else "stop")
        if finish is None:
            if not streams:
                raise ModelError(f"{self.base_url} sent an answer without content")
            raise self._broken_off(None, splitter)
        reasoning, answer = splitter.end(cut_off=finish == "length")
        usage = Usage(
            prompt_tokens=counted.prompt_tokens if counted else None,
            completion_tokens=counted.completion_tokens if counted else None,
            seconds=time.perf_counter() - began,
            first_seconds=first if streams else None,
            retries=response.retries_taken,
        )
        return Answer(answer, reasoning, model, finish, usage)

    def transcribe(self, samples: Samples, *, translate: bool = False) -> Transcript:
        """What is said; in English if translated."""
        audio, model, file = self._client.audio, self.model, io.BytesIO()
        with wave.open(file, "wb") as wav:
            wav.setparams((1, 2, SOUND_RATE, 0, "NONE", ""))
            wav.writeframes((samples.clip(-1, 1) * (2**15 - 1)).astype("<i2").tobytes())
        sent = {"file": ("sound.wav", file.getvalue()), "model": model, "response_format": "verbose_json"}
        api: Any = (audio.translations if translate else audio.transcriptions).with_raw_response
        self._deadline.begin(self._timeout)
        with self._explained():
            answer = api.create(**sent).content
        try:
            heard = json.loads(answer)
            language = None if translate else heard.get("language")
            return Transcript("", (*json_lines(heard),), (), language if isinstance(language, str) else None)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"{self.base_url} does not say which words are spoken when") from error

    def _chunks(self, response: Any, splitter: Splitter) -> Iterator[Any]:
        """The chunks of a stream; any error of the stream itself becomes one ModelError."""
        with response.parse() as stream:
            try:
                yield from stream
            except Exception as error:
                raise self._broken_off(error, splitter) from None

    def _create(self, request: Request, *, stream: bool) -> Any:
        """Post the request. If the server refuses an optional field, post again without it."""
        body = request.create
        while True:
            refused = set(self._refused)  # other threads may add to it
            settings: dict[str, Any] = {"temperature": self._temperature, "stream": stream or None}
            settings["max_completion_tokens" if "max_tokens" in refused else "max_tokens"] = self.max_tokens
            if stream and "stream_options" not in refused:
                settings["stream_options"] = {"include_usage": True}
            try:
                response = self._client.chat.completions.with_raw_response.create(
                    model=self.model,
                    messages=body["messages"],
                    extra_body=self._extra | body.get("extra_body", {}),
                    **{name: value for name, value in settings.items() if value is not None},
                )
            except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as error:
                # OpenAI names the field in `param`, others in the message.
                match = re.search("stream_options|max_completion_tokens", self._message(error), re.I)
                field = (error.param or (match[0] if match else "")).replace("completion_", "")
                if field not in ("max_tokens", "stream_options") or field in refused:
                    raise
                self._refused.add(field)
            else:
                if "html" in response.headers.get("content-type", ""):
                    raise self._not_openai()
                return response

    def _parsed(self, response: Any, field: str) -> Any:
        """The reply, if it has this field. The openai package returns a reply of another type as a string."""
        try:
            parsed = response.parse()
            getattr(parsed, field)
        except (AttributeError, TypeError, ValueError) as error:
            raise self._not_openai() from error
        return parsed

    def _not_openai(self) -> ModelError:
        return ModelError(f"{self.base_url} is not an OpenAI-compatible server; should the URL end in /v1?")

    def _broken_off(self, error: Exception | None, splitter: Splitter) -> ModelError:
        partial = splitter.end()[1]
        why = f" ({self._clean(str(error))})" if error is not None and str(error) else ""
        got = f"{len(partial)} characters of the answer had arrived" if partial else "nothing had arrived"
        return ModelError(f"{self.base_url} broke off mid-answer{why}; {got}", partial=partial)

    @contextmanager
    def _explained(self, request: Request | None = None) -> Iterator[None]:
        """Raise the openai package's errors as ModelErrors. The cause is dropped: it may hold the key."""
        try:
            yield
        except (self._openai.OpenAIError, TimeoutError) as error:  # the latter of ReadDeadline, unwrapped
            raise self._model_error(error, request) from None

    def _model_error(self, error: Any, request: Request | None) -> ModelError:
        openai, where = self._openai, self.base_url
        late = isinstance(error, (openai.APITimeoutError, TimeoutError))
        if late or isinstance(error.__cause__, TimeoutError):
            return ModelError(f"{where}: no answer within {self._timeout:g} seconds")
        if isinstance(error.__cause__, ModelError):  # of ReadDeadline
            return error.__cause__
        if isinstance(error, openai.APIConnectionError):
            why = self._clean(str(error.__cause__ or error))
            return ModelError(f"{where}: cannot connect ({why}); is the server running?")
        if not isinstance(error, openai.APIStatusError):
            return ModelError(f"{where}: {self._clean(str(error))}")
        message, status = self._message(error), error.status_code
        if 300 <= status < 400:
            there = self._clean(error.response.headers.get("location", "another URL"))
            return ModelError(f"{where} redirects to {there}; use that URL if frames may go there")
        if status in (401, 403):
            key = f"the API key in ${self._key_variable} {'was rejected' if self._key else 'is not set'}"
            return ModelError(f"{where} denied access ({status}); {key}")
        if request is not None and (known := self._fixable(error, message, request)):
            return known
        retried = self._retries and (status == 429 or status >= 500)
        tried = f" after {self._retries + 1} tries" if retried else ""
        return ModelError(f"{where} answered {status}{tried}: {message[:_MESSAGE_CHARACTERS]}")

    def _fixable(self, error: Any, message: str, request: Request) -> ModelError | None:
        """Errors that the user can fix: the model's name, the number or size of the frames."""
        where, status, model = self.base_url, error.status_code, self.model
        if re.search(_TOO_LONG, f"{error.code} {error.type} {message}", re.I):
            return self._too_long(message, request)
        if most := most_images(message, len(request.prefix)):
            self.most_images = most
            says = f"{where} accepts at most {most} images per request; send {most} frames"
            return ModelError(says, fits=most)
        if status == 413:
            return ModelError(f"{where}: the request is too large; send smaller images")
        # SGLang and proxies only say "model"; transformers serve names it.
        if status == 404 or model in message or (status == 400 and "model" in message.lower()):
            listed = self._models_or_none()
            if listed and model not in listed:
                return ModelError(f"{where} does not serve {model!r}; it lists {', '.join(listed)}")
        if status == 404 and not urlsplit(where).path:
            return ModelError(f"{where} answered 404; should the URL end in /v1?")
        return None

    def _too_long(self, message: str, request: Request) -> ModelError:
        """Say how many frames would fit, by the server's numbers if it gives them, else by the estimate."""
        count, tokens = len(request.prefix), request.tokens
        stated = re.search(_LIMIT, message, re.I)
        limit = int(stated[1]) if stated else self._models_or_none().get(self.model)
        problem = f"{self.base_url}: {count} frames exceed the context of {self.model!r}"
        if limit is None:
            return ModelError(
                f"{problem}; send fewer frames or smaller images ({message[:_MESSAGE_CHARACTERS]})"
            )
        used = max((int(n) for n in re.findall(r"\d{2,}", message) if int(n) > limit), default=0)
        frame_tokens = max(tokens.frames + tokens.times, used - tokens.text)
        left = limit - tokens.text - (self.max_tokens or 0)
        fits = min(count - 1, int(left * count / frame_tokens))
        if fits < 1:
            return ModelError(f"{problem} ({limit} tokens); not even one fits: send smaller images")
        return ModelError(f"{problem} ({limit} tokens); {fits} should fit", fits=fits)

    def _models_or_none(self) -> dict[str, int | None]:
        try:
            return self.models()
        except ModelError:
            return {}

    def _message(self, error: Any) -> str:
        """The server's message; servers put it in different fields."""
        body = error.body
        if not isinstance(body, dict):
            return self._clean(str(body or error))
        message = body.get("message") or body.get("detail")
        text = message if isinstance(message, str) else json.dumps(message or body)
        numbers = {name: value for name, value in body.items() if isinstance(value, int)}
        return self._clean(text + (f" {json.dumps(numbers)}" if numbers else ""))

    def _clean(self, text: str) -> str:
        """One line, without images and without the key."""
        text = _BASE64.sub("…", " ".join(text.split()))
        key = self._key or ""
        return text.replace(key, "***") if len(key) > 5 else text  # "EMPTY" and the like are no secret


def recognizer(model: str, _: object, config: ScorerConfig) -> Recognizer:
    """Speech recognition by the server at `config.listen_url`; by default with the only model it lists."""
    connect = partial(Client, config.listen_url, model or None, retries=1)

    def recognize(samples: Samples) -> Transcript:
        with connect() as client:
            return client.transcribe(samples, translate=config.listen_translate)

    with connect() as client:  # the name needs no answer: what is in the cache serves without the server
        return Recognizer(f"{model or 'the model'} at {client.base_url}", recognize)
