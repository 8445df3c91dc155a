"""What a file of messages must hold, field by field; as `method/result_fields.py` for rankings."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from PIL import Image

from framenest.images import from_data_url
from framenest.lmm.times import PAIRINGS
from framenest.method.result_fields import Fields, check_video
from framenest.text import one_line


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
