"""
title: Framenest
description: Hands uploaded videos to a Framenest gateway, which shows the model the best frames.
required_open_webui_version: 0.12.4

A filter function of Open WebUI. Start the gateway in front of the model's server, add it to Open WebUI as an
OpenAI connection (http://HOST:8600/v1, the key is FRAMENEST_TOKEN), paste this file under Admin Panel,
Functions, and enable it for the gateway's models alone: others refuse the field `framenest`.

    framenest serve --upstream http://localhost:8000/v1

Open WebUI drops videos on their way to a model. This filter puts them back into the messages, where the
gateway replaces them by frames.
"""  # Open WebUI reads the lines above as the function's description

import asyncio
import base64
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

SUFFIXES = (".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".ogv", ".webm", ".wmv")


class Filter:
    class Valves(BaseModel):
        priority: int = Field(0, description="Filters run in ascending order.")
        k: int = Field(32, ge=1, description="How many frames the model sees for a question.")
        by_path: bool = Field(
            False,
            description="Send the path of a video, not its content: for a gateway on the same machine that "
            "was started with --videos and Open WebUI's folder of uploads.",
        )

    def __init__(self) -> None:
        self.valves = self.Valves()
        self.places: dict[tuple[str, str], int] = {}  # of videos among the user's messages, by chat

    async def inlet(self, body: dict[str, Any], __user__: dict[str, Any]) -> dict[str, Any]:
        """Add the videos of a chat to its messages, before Open WebUI sends them to the model.

        A video belongs to the message that lists it as <file … id="…">, so the messages stay the same from
        turn to turn. Where Open WebUI lists no files, one that came with the last message belongs there from
        then on, until this process ends, and any other to the first.
        """
        files = body.get("files") or []
        videos = {file["id"]: kind for file in files if (kind := video_type(file))}
        turns = [message for message in body["messages"] if message["role"] == "user"]
        if not videos or not turns:
            return body
        about = body.get("metadata") or {}
        asked = about.get("user_message") or {}
        places = self.places if about.get("chat_id") else {}
        new = {file.get("id") for file in asked.get("files") or []}
        for name, kind in videos.items():
            place = places.setdefault((about.get("chat_id", ""), name), len(turns) - 1 if name in new else 0)
            otherwise = turns[min(place, len(turns) - 1)]
            turn = next((one for one in turns if f'id="{name}"' in text_of(one)), otherwise)
            content = turn["content"]
            text = [{"type": "text", "text": content}] if isinstance(content, str) else content
            url = await self.url(name, kind, __user__["id"])
            turn["content"] = [{"type": "video_url", "video_url": {"url": url}}, *text]
        body["files"] = [file for file in files if file.get("id") not in videos]  # not for text retrieval
        # Open WebUI lists attached files in the message's text, which would be ranked for.
        question = {"question": asked["content"]} if asked.get("content") else {}
        body["framenest"] = {"k": self.valves.k, **question}
        return body

    async def url(self, name: str, kind: str, user: str) -> str:
        """The address of an uploaded video for the gateway: its path, or all of it."""
        from open_webui.models.files import Files
        from open_webui.storage.provider import Storage

        file = await Files.get_file_by_id(name)
        if file is None or file.user_id != user:  # the list of files comes from the browser
            raise PermissionError("this video is not one of your uploads")
        path = Path(await asyncio.to_thread(Storage.get_file, file.path))
        if self.valves.by_path:
            return path.absolute().as_uri()
        data = await asyncio.to_thread(path.read_bytes)
        return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def video_type(file: dict[str, Any]) -> str:
    """The MIME type of an attached video; empty for anything else. Browsers do not know some of them."""
    upload = file.get("file")
    meta = (upload.get("meta") if isinstance(upload, dict) else None) or {}
    kind = file.get("content_type") or meta.get("content_type") or ""
    if kind in ("", "application/octet-stream") and Path(file.get("name") or "").suffix.lower() in SUFFIXES:
        return "video/mp4"  # the gateway looks at the file
    return kind if kind.startswith("video/") else ""


def text_of(message: dict[str, Any]) -> str:
    """The text of a message, whose parts may be images, too."""
    content = message["content"]
    parts = content if isinstance(content, list) else [{"text": content}]
    return "".join(part.get("text") or "" for part in parts)
