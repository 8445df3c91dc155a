"""Request: the chat messages for a model, sent by a client or passed to a processor; and its file format."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from PIL import Image

from framenest.cache.files import write_atomic
from framenest.errors import ConfigError
from framenest.frames import VideoInfo
from framenest.images import READABLE_FORMATS, data_url, encode_image
from framenest.method.prefix import Prefix
from framenest.records import BadField, Whole, convert, load_file
from framenest.text import one_line

REQUEST_FORMAT = 3

Message = dict[str, Any]


@dataclass(frozen=True)
class Tokens:
    """An estimate: images; time markers and separators; question and chat template."""

    frames: int
    times: int
    text: int

    @property
    def total(self) -> int:
        return self.frames + self.times + self.text


@dataclass(frozen=True, eq=False)
class Request:
    """What to send to a server, or to pass to a transformers processor.

    Attributes:
        style: one of STYLES.
        prefix: the frames.
        messages: chat messages. For a server they contain the images, and `body` is the whole request. For
            a processor they contain placeholders, and `inputs` are its other keyword arguments.
        tokens: an estimate.
        markers: the times that the model will read, as written, in order.
        extra_body: fields beside the messages, for a server.
        images: for a processor; empty for a server.
        processor: the processor's other arguments about the images.
        quality: JPEG quality, 1 to 100.

    Example::

        client.chat.completions.create(model=name, **request.create)

        text = processor.apply_chat_template(request.messages, add_generation_prompt=True)
        processor(text=[text], **request.inputs, return_tensors="pt")
    """

    style: str
    prefix: Prefix
    messages: list[Message]
    tokens: Tokens
    markers: list[str] = field(default_factory=list)
    extra_body: dict[str, Any] = field(default_factory=dict)
    images: list[Image.Image] = field(default_factory=list)
    processor: dict[str, Any] = field(default_factory=dict)
    quality: int = 90

    def __repr__(self) -> str:
        return f"Request({self.style!r}, frames={len(self.prefix)}, tokens≈{self.tokens.total})"

    @property
    def for_server(self) -> bool:
        return not self.images

    @property
    def create(self) -> dict[str, Any]:
        """Keyword arguments for the openai client's chat.completions.create."""
        if not self.for_server:
            raise ConfigError(
                f"style {self.style!r} is for a transformers processor; a server takes openai or vllm-video"
            )
        return {"messages": self.messages} | ({"extra_body": self.extra_body} if self.extra_body else {})

    def body(self, model: str | None = None) -> dict[str, Any]:
        """The JSON that is posted to /chat/completions."""
        named = {} if model is None else {"model": model}
        return {**named, "messages": self.create["messages"], **self.extra_body}

    @property
    def inputs(self) -> dict[str, Any]:
        """Keyword arguments of a transformers processor: the images and their metadata."""
        if self.for_server:
            raise ConfigError(f"style {self.style!r} is for servers; for a processor use hf-video or qwen")
        metadata = self.processor.get("video_metadata")
        if metadata is None:
            return {"images": self.images, **self.processor}
        copied = [entry | {"frames_indices": list(entry["frames_indices"])} for entry in metadata]
        return {"videos": [self.images], **self.processor, "video_metadata": copied}

    def save(self, path: str | Path, *, model: str | None = None) -> None:
        """Write the request as JSON: for a server its body, otherwise a file for `load`."""
        write_atomic(Path(path), self.dumps(model=model).encode(errors="surrogatepass"))

    def dumps(self, *, model: str | None = None) -> str:
        """The request as a JSON string."""
        if self.for_server:
            return json.dumps(self.body(model), ensure_ascii=False) + "\n"
        data = {
            "format": REQUEST_FORMAT,
            "kind": "messages",
            "style": self.style,
            "video": self.prefix.video.to_json(),
            **self.prefix.to_json(),
            "markers": self.markers,
            "tokens": [self.tokens.frames, self.tokens.times, self.tokens.text],
            "messages": self.messages,
            "processor": self.processor,
            "pictures": [data_url(encode_image(image, quality=self.quality)) for image in self.images],
        }
        return json.dumps(data, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Request:
        """Read a request that `save` wrote for a processor. Its images are JPEGs."""
        return load_file(path, "messages", REQUEST_FORMAT, cls._from_json)

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Request:
        file = convert(data, RequestFile)
        return cls(
            style=file.style,
            prefix=Prefix.from_json(replace(file.video, from_file=True), data),
            messages=file.messages,
            images=[_decoded(url, f"pictures[{place}]") for place, url in enumerate(file.pictures)],
            processor=file.processor,
            markers=file.markers,
            tokens=Tokens(*file.tokens),
        )

    def then(self, reply: str, question: str) -> Request:
        """The next turn: this request, the model's reply, and another question."""
        said = (("assistant", reply), ("user", question))
        turns = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in said]
        return replace(self, messages=[*self.messages, *turns])


class RequestFile(msgspec.Struct):
    """A file of messages, without its prefix."""

    style: str
    video: VideoInfo
    markers: list[str]
    tokens: tuple[Whole, Whole, Whole]
    messages: list[Message]
    processor: dict[str, Any]
    pictures: Annotated[list[str], Meta(min_length=1)]


def _decoded(url: str, where: str) -> Image.Image:
    """The image in a data URL, as RGB."""
    try:
        data = io.BytesIO(base64.b64decode(url.partition(",")[2]))
        with Image.open(data, formats=READABLE_FORMATS) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadField(f"{where} is not an image ({one_line(error)})") from error
