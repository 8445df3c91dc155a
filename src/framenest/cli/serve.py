"""framenest serve and framenest mcp."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import rich_click as click
from platformdirs import user_data_path

from framenest.cli import options as opt
from framenest.cli.options import argument, command, option
from framenest.cli.printing import err
from framenest.config import PRESETS
from framenest.errors import ConfigError, needs_extra
from framenest.server.server_settings import MOST_SHOWN, ServerSettings
from framenest.text import is_url
from framenest.transcript import NONE


@dataclass(frozen=True)
class Access:
    """Where the server listens, what it may fetch, and how it decodes."""

    host: str = option("Address to listen on.", default="127.0.0.1")
    port: int = option("Port to listen on; 0 picks a free one.", default=8600)
    hosts: tuple[str, ...] = option(
        "Web host that videos may be fetched from (host or host:port); may be repeated.",
        "--allow-host",
        multiple=True,
        metavar="HOST",
    )
    decoder: str = option("pyav, or a plug-in.", default="pyav")


@dataclass(frozen=True)
class ServerLimits:
    """Limits on jobs and uploads."""

    panel: ClassVar = "Limits"
    workers: int = option("Jobs that run at once.", default=1)
    queue: int = option("Jobs that may wait.", default=64)
    max_job: int = option("Time limit of a job.", default=3600, metavar="SECONDS")
    max_upload: opt.Size = option("Largest upload.", default="2GiB")
    max_stored: opt.Size = option("Size of all uploads.", default="20GiB")


@dataclass(frozen=True)
class UpstreamServer:
    """The server with the models: behind the gateway, and for the page's answers."""

    panel: ClassVar = "Models"
    upstream: str | None = option(
        "OpenAI-compatible server, such as http://localhost:8000/v1. Its API is then served here at /v1, and "
        "its models see videos. Its API key is read from $OPENAI_API_KEY.",
        metavar="URL",
    )
    answer_model: str | None = option("Model that answers on the page.")
    budget: opt.Budgets = option(
        "Frames that a model is shown for a question at /v1. 8,16,32 is a ladder: ask with the fewest, and "
        "with more if the model cannot tell.",
        default="32",
    )
    max_images: int = option("Images that go to a model in a request.", default=MOST_SHOWN)


def _settings(
    data: Path, videos: tuple[str, ...], scorer: opt.ScorerChoice, common: opt.Common, *groups: Any
) -> ServerSettings:
    return ServerSettings(
        data=data,
        videos=tuple(Path(folder).expanduser() for folder in videos),
        cache=common.cache.location,
        token=os.environ.get("FRAMENEST_TOKEN") or None,
        scorer=scorer.resolved(common),
        scoring=scorer.config,
        **{name: value for group in groups for name, value in vars(group).items()},
    )


@command(usual="host port videos data name preset upstream answer_model budget quiet")
def serve(
    *,
    access: Access,
    videos: tuple[opt.Folder, ...] = option(
        "Folder whose videos clients may use; may be repeated. [default: uploads only]", multiple=True
    ),
    preset: str = option(
        "Preset for questions that do not name one; paper is the paper's rule.",
        type=click.Choice(list(PRESETS)),
        default=ServerSettings.preset,
    ),
    data: opt.Folder | None = option(
        "Folder for uploads, rankings and jobs. [default: the user's data folder]"
    ),
    scorer: opt.ScorerChoice,
    limits: ServerLimits,
    models: UpstreamServer,
    tokens: opt.TokenOptions,
    transcript: opt.TranscriptOptions,
    common: opt.Common,
) -> None:
    """Serve rankings over HTTP, with a web page to ask questions.

    Only this machine can connect unless --host says otherwise; then clients must send the token in
    $FRAMENEST_TOKEN.

    \b
    framenest serve --videos lectures/
    FRAMENEST_TOKEN=… framenest serve --host 0.0.0.0 --videos lectures/
    """
    listens = scorer.config.listen or scorer.config.listen_url
    if transcript.with_transcript and scorer.config.subtitles == NONE and not listens:
        opt.refuse("there is no transcript with --subtitles none", "with_transcript")
    if models.upstream is None:
        sent = ("answer_model", "budget", "max_images", "tokens", "tiers")
        opt.refuse("nothing is sent to a model without --upstream", *sent)
    elif not is_url(models.upstream):
        raise ConfigError(f"--upstream {models.upstream!r} is not an http(s) URL")
    within = tokens.budget()
    with needs_extra("server"):
        from framenest.server.app import create_app
    folder = Path(data).expanduser() if data else user_data_path("framenest") / "server"
    settings = _settings(folder, videos, scorer, common, access, limits, models, transcript)
    settings = replace(settings, preset=preset, tokens=within)
    _log(logging.WARNING if common.quiet else logging.INFO)
    gateway = "; OpenAI clients use {url}/v1" if settings.upstream else ""
    _listen(settings, create_app, "Framenest at {url}/, its API at {url}/openapi.json" + gateway)


@command()
def mcp(
    *,
    folders: tuple[str, ...] = argument(metavar="FOLDER", nargs=-1, required=True),
    http: bool = option("Serve streamable HTTP at /mcp of --host and --port instead of stdin and stdout."),
    access: Access,
    scorer: opt.ScorerChoice,
    common: opt.Common,
) -> None:
    """Let agents see long videos: a Model Context Protocol server.

    Its tools: what_is, find (moments in all videos), look (frames selected for a question), more (the next
    ones), frames_at, said. Only videos in the FOLDERs can be read.

    \b
    framenest mcp lectures/
    framenest mcp lectures/ meetings/ --http --port 8700
    """
    if not http:
        opt.refuse("agents connect over stdin and stdout without --http", "host", "port")
    with needs_extra("mcp"):
        import anyio

        from framenest.server.agents import http_app, mcp_server
        from framenest.server.service import Service
    with _own_folder() as data:
        settings = _settings(data, folders, scorer, common, access)
        _log(logging.WARNING)
        if http:
            _listen(settings, http_app, "Framenest for agents at {url}/mcp")
            return
        with closing(Service(settings)) as service:
            service.start()
            anyio.run(mcp_server(service).run_stdio_async)


@contextmanager
def _own_folder() -> Iterator[Path]:
    """A folder that is removed when this process ends, and by the next one if it is killed."""
    import psutil

    for left in Path(tempfile.gettempdir()).glob("framenest-mcp-*-*"):
        owner = left.name.split("-")[2]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"framenest-mcp-{os.getpid()}-") as folder:

        def end(number: int, _: object) -> None:  # at once: a thread may wait for stdin
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(128 + number)

        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(getattr(signal, name, signal.SIGTERM), end)  # Windows has no SIGHUP
        yield Path(folder)


def _log(level: int) -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", level=level)  # on stderr: MCP needs stdout
    for library in ("httpx", "httpx2"):  # they log whole URLs
        logging.getLogger(library).setLevel(logging.WARNING)


def _listen(settings: ServerSettings, make_app: Callable[[Any], Any], announcement: str) -> None:
    """Serve until the process is stopped. The port is opened first, since it may be taken."""
    from framenest.server.listen import listen
    from framenest.server.service import Service

    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        port = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        why = (error.strerror or "").partition(" (while")[0]
        text = f"cannot listen at {settings.url} ({why}); --port names another port, 0 any free one"
        raise ConfigError(text) from error
    settings = replace(settings, port=port.getsockname()[1])
    with port, closing(Service(settings)) as service:
        service.start()
        err.print(announcement.format(url=settings.url), soft_wrap=True)
        listen(make_app(service), port)
