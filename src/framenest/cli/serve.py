"""framenest serve, framenest mcp"""

from __future__ import annotations

import logging
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import rich_click as click
from platformdirs import user_data_path

from framenest.cli import options
from framenest.cli.model_options import SpokenLines
from framenest.cli.options import Common, argument, option, settings_as_options
from framenest.cli.scorer_options import FeaturesBound, ScorerChoice
from framenest.cli.terminal import err
from framenest.errors import MissingExtra
from framenest.server.server_settings import ServerSettings
from framenest.transcript import NONE


@dataclass(frozen=True)
class ListenAddress:
    """Where the server listens."""

    host: str = option("Address to listen on.", default="127.0.0.1")
    port: int = option("Port to listen on; 0 for any free one.", default=8600)


@dataclass(frozen=True)
class Access:
    """Who may use the server, and what it may fetch."""

    panel: ClassVar = "Who may use it"
    token: str | None = option(
        "What clients must send. Needed for any address but loopback; better set in $FRAMENEST_TOKEN, since "
        "other users of this machine can see command lines.",
        envvar="FRAMENEST_TOKEN",
        metavar="TEXT",
        callback=lambda _c, _p, token: token or None,
    )
    hosts: tuple[str, ...] = option(
        "A web host that videos may be fetched from (host or host:port); may be given again.",
        flag="--allow-host",
        multiple=True,
        metavar="HOST",
    )


def _bytes(_context: Any, _parameter: Any, mebibytes: int) -> int:
    return mebibytes * 2**20


@dataclass(frozen=True)
class Limits:
    """What a user may take."""

    panel: ClassVar = "Limits"
    workers: int = option("Jobs that run at once.", default=1)
    queue: int = option("Jobs that may wait.", default=64)
    max_job: int = option("Time that one job may take; then it is ended.", default=3600, metavar="SECONDS")
    max_upload: int = option(
        "Size of the largest video that may be uploaded.", default=2048, metavar="MIB", callback=_bytes
    )
    max_stored: int = option("Size of all uploads together.", default=20480, metavar="MIB", callback=_bytes)


@dataclass(frozen=True)
class AnswerSource:
    """Who answers questions."""

    panel: ClassVar = "Answers"
    answer_url: str | None = option(
        "An OpenAI-compatible endpoint that answers questions, such as http://localhost:8000/v1. "
        "Its key, if it needs one, is read from $OPENAI_API_KEY.",
        metavar="URL",
    )
    answer_model: str | None = option("The model to ask there.", metavar="NAME")


def server_settings(
    data: Path, videos: tuple[str, ...], scorer: ScorerChoice, common: Common, *groups: Any
) -> ServerSettings:
    """What the command line asks for; `groups` are those above."""
    given = {name: value for group in groups for name, value in vars(group).items()}
    with settings_as_options():
        return ServerSettings(
            data=data,
            videos=tuple(Path(folder).expanduser() for folder in videos),
            cache=common.cache.location,
            scorer=scorer.resolved(common),
            scoring=scorer.config,
            **given,
        )


WITH_TRANSCRIPT = "Send what is said around each frame beside it, in answers and messages, where it is known."


@click.command()
@click.option_panel("Options")
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(Access.panel)
@click.option_panel(Limits.panel)
@click.option_panel(AnswerSource.panel)
@options.from_parameters
def serve(
    *,
    address: ListenAddress,
    videos: tuple[str, ...] = option(
        "Folder whose videos may be asked about; may be given again. [default: uploads only]",
        metavar="DIR",
        multiple=True,
    ),
    data: str | None = option(
        "Folder for uploads, rankings and jobs. [default: the user's data folder]", metavar="DIR"
    ),
    scorer: ScorerChoice,
    features: FeaturesBound,
    access: Access,
    limits: Limits,
    answers: AnswerSource,
    spoken: SpokenLines = options.group(
        with_transcript={"panel": AnswerSource.panel, "help": WITH_TRANSCRIPT},
        transcript_tokens={"panel": AnswerSource.panel},
    ),
    common: Common,
) -> None:
    """Serve rankings over HTTP, with a page to ask questions on.

    Only this machine can reach it unless --host says otherwise; then a token is needed.

    \b
    framenest serve --videos lectures/
    FRAMENEST_TOKEN=… framenest serve --host 0.0.0.0 --videos lectures/
    """
    if spoken.with_transcript and scorer.config.subtitles == NONE:
        options.refuse("there is no transcript with --subtitles none", "with_transcript")
    try:
        from framenest.server.app import create_app
        from framenest.server.listen import listen, open_port
        from framenest.server.service import Service
    except ImportError as error:
        raise MissingExtra("server", error.name or "fastapi") from error
    folder = Path(data).expanduser() if data else user_data_path("framenest") / "server"
    settings = server_settings(folder, videos, scorer, common, address, access, limits, answers, spoken)
    logging.basicConfig(
        format="%(asctime)s %(message)s", level=logging.WARNING if common.quiet else logging.INFO
    )
    for library in ("httpx", "httpx2"):  # of the answering client; they log whole addresses
        logging.getLogger(library).setLevel(logging.WARNING)
    port, settings = open_port(settings)
    service = Service(settings)
    try:
        service.start()
    except BaseException:
        service.close()
        port.close()
        raise
    err.print(f"Framenest at {settings.url}/, its API at {settings.url}/docs", soft_wrap=True)
    listen(create_app(service), port)


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

        from framenest.agents import http_app, mcp_server
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
