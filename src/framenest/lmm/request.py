"""Request: messages as a file that any client can send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from PIL import Image

from framenest.cache.files import write_atomic
from framenest.errors import ConfigError
from framenest.frames import VideoInfo
from framenest.images import data_url, encode_image, from_data_url
from framenest.lmm.times import PAIRINGS
from framenest.lmm.tokens import PairingCost, Tokens
from framenest.method.prefix import Prefix
from framenest.method.ranking import Fields, check_video, load_file
from framenest.text import one_line

REQUEST_FORMAT = 2

Message = dict[str, Any]


def cannot_grow(style: str) -> ConfigError:
    """The error for a later turn that adds frames to a video."""
    return ConfigError(f"style {style!r} cannot go on with more frames; take openai, or pairing images")


@dataclass(frozen=True, eq=False)
class Request:
    """What to send to a server, or to pass to a transformers processor.

    Attributes:
        style: one of STYLES.
        prefix: the frames.
        messages: chat messages. For servers (styles openai, vllm-video) they hold the pictures, and `body`
            is all that is sent; for transformers (the other styles) they hold placeholders, and `inputs`
            are the processor's other keyword arguments.
        extra_body: fields beside the messages, for a server.
        pictures: for a processor; empty for a server.
        processor: what a processor must know of the pictures.
        markers: the times that the model will read, as written, in order.
        tokens: an estimate.
        pairing: for models that fuse two frames, which ones, and what it costs; None for others.
        quality: of the JPEGs, 1 to 100.

    Example::

        client.chat.completions.create(model=name, **request.create)

        text = processor.apply_chat_template(request.messages, add_generation_prompt=True)
        processor(text=[text], **request.inputs, return_tensors="pt")
    """

    style: str
    prefix: Prefix
    messages: list[Message]
    extra_body: dict[str, Any]
    pictures: list[Image.Image]
    processor: dict[str, Any]
    markers: list[str]
    tokens: Tokens
    pairing: PairingCost | None = None
    quality: int = 90

    def __repr__(self) -> str:
        return f"Request({self.style!r}, frames={len(self.prefix)}, tokens≈{self.tokens.total})"

    @property
    def for_server(self) -> bool:
        return not self.pictures

    @property
    def create(self) -> dict[str, Any]:
        """Keyword arguments for the openai client's chat.completions.create."""
        self._must_be_for_server()
        return {"messages": self.messages} | ({"extra_body": self.extra_body} if self.extra_body else {})

    def body(self, model: str | None = None) -> dict[str, Any]:
        """The JSON that is posted to /chat/completions."""
        self._must_be_for_server()
        return ({} if model is None else {"model": model}) | {"messages": self.messages} | self.extra_body

    @property
    def inputs(self) -> dict[str, Any]:
        """Keyword arguments of a transformers processor: the pictures and their metadata."""
        if self.for_server:
            raise ConfigError(f"style {self.style!r} is for servers; for a processor take hf-video or qwen")
        metadata = self.processor.get("video_metadata")
        if metadata is None:
            return {"images": self.pictures, **self.processor}
        copied = [entry | {"frames_indices": list(entry["frames_indices"])} for entry in metadata]
        return {"videos": [self.pictures], **self.processor, "video_metadata": copied}

    def save(self, path: str | Path, *, model: str | None = None) -> None:
        """Write the request as JSON: for a server its body, otherwise a file for `load`."""
        write_atomic(Path(path), self.dumps(model=model).encode(errors="surrogatepass"))

    def dumps(self, *, model: str | None = None) -> str:
        """The request as JSON text."""
        data = self.body(model) if self.for_server else self._to_json()
        return json.dumps(data, ensure_ascii=False) + "\n"

    def _to_json(self) -> dict[str, Any]:
        return {
            "format": REQUEST_FORMAT,
            "kind": "messages",
            "style": self.style,
            "video": self.prefix.video.to_json(),
            **self.prefix.to_json(),
            "markers": self.markers,
            "pairing": None if self.pairing is None else self.pairing.to_json(),
            "tokens": [self.tokens.frames, self.tokens.times, self.tokens.text],
            "messages": self.messages,
            "processor": self.processor,
            "pictures": [data_url(encode_image(p, quality=self.quality)) for p in self.pictures],
        }

    @classmethod
    def load(cls, path: str | Path) -> Request:
        """Read a request for a processor that `save` wrote; its pictures were compressed as JPEG."""
        return load_file(path, "messages", REQUEST_FORMAT, cls._from_json)

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Request:
        check_request(data)
        return cls(
            style=data["style"],
            prefix=Prefix.from_json(VideoInfo.from_json(data["video"], from_file=True), data),
            messages=data["messages"],
            extra_body={},
            pictures=pictures_of(data),
            processor=data["processor"],
            markers=data["markers"],
            tokens=Tokens(*data["tokens"]),
            pairing=None if data["pairing"] is None else PairingCost(**data["pairing"]),
        )

    def then(self, reply: str, more: Request | str) -> Request:
        """The next turn: this request, the model's reply, and more frames or another question.

        Raises:
            ConfigError: more frames after a video, whose metadata hold for the whole conversation.
        """
        said = {"role": "assistant", "content": [{"type": "text", "text": reply}]}
        if isinstance(more, str):
            turn: list[Message] = [{"role": "user", "content": [{"type": "text", "text": more}]}]
            return replace(self, messages=[*self.messages, said, *turn])
        if self.extra_body or "video_metadata" in self.processor:
            raise cannot_grow(self.style)
        return replace(
            self,
            prefix=self.prefix.with_frames_of(more.prefix),
            messages=[*self.messages, said, *more.messages],
            pictures=[*self.pictures, *more.pictures],
            markers=[*self.markers, *more.markers],
            tokens=self.tokens + more.tokens,
        )

    def _must_be_for_server(self) -> None:
        if not self.for_server:
            raise ConfigError(
                f"style {self.style!r} is for a transformers processor; a server takes openai or vllm-video"
            )


def check_request(data: Mapping[str, Any]) -> None:
    """Every field of a file of messages that is read, but the pictures.

    Raises:
        BadField: names the first one that is wrong.
    """
    fields = Fields(data)
    fields.text("style")
    _check_prefix(fields)
    fields.texts("markers")
    tokens = fields.numbers("tokens", whole=True, least=0)
    if len(tokens) != 3:
        fields.refuse("tokens", f"holds {len(tokens)} values instead of 3: frames, times, text")
    if data.get("pairing", 0) is not None:
        _check_pairing(fields.part("pairing"))
    for message in fields.objects("messages"):
        message.text("role")
        if isinstance(message.value("content"), list):
            for part in message.objects("content"):
                part.text("type")
        else:
            message.text("content")
    processor = fields.part("processor")
    if "video_metadata" in processor:
        for video in processor.objects("video_metadata"):
            video.number("fps", least=0)
            video.numbers("frames_indices", whole=True, least=0)


def _check_prefix(fields: Fields) -> None:
    count, duration = check_video(fields.part("video"))
    fields.number("budget", whole=True, least=1)
    frames = fields.numbers("frames", whole=True, least=0, most=count - 1)
    if any(a >= b for a, b in pairwise(frames)):
        fields.refuse("frames", "must ascend")
    columns = {"seconds": fields.numbers("seconds", least=0, most=duration + 1e-6)}
    if fields.value("ranks") is not None:
        columns["ranks"] = fields.numbers("ranks", whole=True, least=1)
    for name, column in columns.items():
        if len(column) != len(frames):
            fields.refuse(name, f"holds {len(column)} values for {len(frames)} frames")
    fields.flag("complete")
    if "why" in fields:
        fields.text("why")


def _check_pairing(pairing: Fields) -> None:
    if pairing.text("pairing") not in PAIRINGS:
        pairing.refuse("pairing", f"must be one of {', '.join(PAIRINGS)}")
    for name in ("pairs", "alone"):
        pairing.number(name, whole=True, least=0)
    tokens = pairing.part("tokens")
    for name in tokens.by_name():
        tokens.number(name, whole=True, least=0)


def pictures_of(data: Mapping[str, Any]) -> list[Image.Image]:
    """The pictures in a file of messages.

    Raises:
        BadField: names the first one that is none.
    """
    fields = Fields(data)
    found = []
    for place, url in enumerate(fields.texts("pictures")):
        try:
            found.append(from_data_url(url))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            fields.refuse("pictures", f"holds no picture at [{place}] ({one_line(error)})")
    if not found:
        fields.refuse("pictures", "is empty: there is nothing to show")
    return found
