"""framenest mcp."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import rich_click as click

from framenest.cli import options
from framenest.cli.common_options import Common
from framenest.cli.options import argument, option
from framenest.cli.scorer_options import ScorerChoice
from framenest.cli.server_options import Access, ListenAddress, server_settings
from framenest.cli.terminal import err
from framenest.errors import MissingExtra


@click.command()
@click.option_panel("Options")
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(Access.panel)
@options.from_parameters
def mcp(
    *,
    folders: tuple[str, ...] = argument(metavar="FOLDER", nargs=-1, required=True),
    http: bool = option("Serve streamable HTTP at /mcp instead of stdin and stdout."),
    address: ListenAddress = options.group(
        host={"help": "With --http: the address to listen on."},
        port={"help": "With --http: the port to listen on; 0 for any free one.", "default": 8700},
    ),
    scorer: ScorerChoice,
    access: Access,
    common: Common,
) -> None:
    """Give agents eyes for long videos: a Model Context Protocol server.

    Its tools: what_is, look (frames chosen for a question), more (the next ones), frames_at, said. Only
    videos in the FOLDERs can be read.

    \b
    framenest mcp lectures/
    framenest mcp lectures/ meetings/ --http --port 8700
    """
    if not http:
        options.refuse("agents are spoken to over stdin and stdout without --http", "host", "port", "token")
    try:
        import anyio

        from framenest.agents.mcp_server import http_app, mcp_server
        from framenest.server.listen import listen, open_port
        from framenest.server.service import Service
    except ImportError as error:
        raise MissingExtra("mcp", error.name or "mcp") from error
    with tempfile.TemporaryDirectory(prefix="framenest-mcp-") as data:
        settings = server_settings(Path(data), folders, scorer, common, address, access)
        # stdout belongs to the protocol
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.WARNING)
        port = None
        if http:
            port, settings = open_port(settings)
        service = Service(settings)
        try:
            service.start()
            if port is not None:
                err.print(f"Framenest for agents at {settings.url}/mcp", soft_wrap=True)
                listen(http_app(service), port)
            else:
                anyio.run(mcp_server(service).run_stdio_async)
        finally:
            service.close()
