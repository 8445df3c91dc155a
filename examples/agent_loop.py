"""A model that asks for more frames until it is sure: the tools of `framenest mcp` in plain function calling.

    python examples/agent_loop.py kiln.mp4 "What does the potter do after firing?" \
        --base-url http://localhost:8000/v1

Any OpenAI-compatible server with function calling works. Tools reply with text and images, but a tool message
may hold only text, so the images follow in a user message.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import openai

from framenest.server.agents import USAGE, mcp_server
from framenest.server.server_settings import ServerSettings
from framenest.server.service import Service

MOST_STEPS = 8


async def answer(service: Service, client: openai.OpenAI, model: str, video: str, question: str) -> str:
    """Return the model's answer once it stops calling tools."""
    server = mcp_server(service)
    tools: list[Any] = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
        }
        for tool in await server.list_tools()
    ]
    turns: list[Any] = [
        {"role": "system", "content": USAGE},
        {"role": "user", "content": f"The video is {video}. {question}"},
    ]
    for _ in range(MOST_STEPS):
        said = client.chat.completions.create(model=model, messages=turns, tools=tools).choices[0].message
        turns.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return said.content or ""
        seen: list[Any] = []
        for call in said.tool_calls:
            print(f"{call.function.name} {call.function.arguments}")
            texts, images = await use(server, call.function.name, call.function.arguments)
            turns.append({"role": "tool", "tool_call_id": call.id, "content": "\n".join(texts)})
            seen += images
        if seen:
            turns.append({"role": "user", "content": [{"type": "text", "text": "The frames:"}, *seen]})
    return f"(no answer after {MOST_STEPS} steps)"


async def use(server: Any, name: str, arguments: str) -> tuple[list[str], list[Any]]:
    """Return the text and images of a tool's reply; an error is text that the model can act on."""
    try:
        parts = (await server.call_tool(name, json.loads(arguments))).content
    except Exception as error:
        return [str(error)], []
    texts = [part.text for part in parts if part.type == "text"]
    urls = [f"data:{part.mime_type};base64,{part.data}" for part in parts if part.type == "image"]
    return texts, [{"type": "image_url", "image_url": {"url": url}} for url in urls]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("video", type=Path)
    parser.add_argument("question")
    parser.add_argument("--base-url")
    parser.add_argument("--model", default="default")
    parser.add_argument("--scorer", default="auto")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        service = Service(ServerSettings(Path(data), (given.video.parent,), scorer=given.scorer))
        try:
            service.start()
            client = openai.OpenAI(base_url=given.base_url)
            print(asyncio.run(answer(service, client, given.model, given.video.name, given.question)))
        finally:
            service.close()


if __name__ == "__main__":
    main()
