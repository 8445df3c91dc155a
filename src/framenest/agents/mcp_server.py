"""The tools as a Model Context Protocol server, over stdio or streamable HTTP."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from starlette.types import ASGIApp

import framenest
from framenest.agents.video_tools import VideoTools
from framenest.server.guard import Guard
from framenest.server.service import Service

ABOUT = """Frames of long videos, chosen for a question. Call `what_is` to see which videos there are, `look`
with the user's question (and, where you know what it would look like, descriptions in look_for), and `more`
with its look_id while the frames do not settle the question. `frames_at` shows given times, `said` searches
the transcript."""


def mcp_server(service: Service) -> MCPServer[None]:
    """The tools over a started service; for function calling too: `list_tools`, `call_tool`."""
    server: MCPServer[None] = MCPServer(
        "framenest", title="Framenest", instructions=ABOUT, version=framenest.__version__, log_level="WARNING"
    )
    for tool in VideoTools(service).every:
        server.add_tool(
            tool,
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            structured_output=False,
        )
    return server


def http_app(service: Service) -> ASGIApp:
    """Streamable HTTP at /mcp, behind the guard of `framenest serve`: token, own names, small requests."""
    settings = service.settings
    app = mcp_server(service).streamable_http_app(host=settings.host)
    return Guard(app, settings, service.metrics)
