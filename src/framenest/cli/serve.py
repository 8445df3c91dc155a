"""framenest serve."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import rich_click as click
from platformdirs import user_data_path

from framenest.cli import options
from framenest.cli.options import Common, ScorerChoice, option
from framenest.cli.terminal import err
from framenest.errors import MissingExtra


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
    workers: int = option("Jobs at once.", default=1)
    queue: int = option("Jobs that may wait.", default=64)
    max_job: int = option("Of one job; then it is ended.", default=3600, metavar="SECONDS")
    max_upload: int = option("Of one video.", default=2048, metavar="MIB", callback=_bytes)
    max_stored: int = option("Of all.", default=20480, metavar="MIB", callback=_bytes)


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


@click.command()
@click.option_panel("Options")
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(Access.panel)
@click.option_panel(Limits.panel)
@click.option_panel(AnswerSource.panel)
@options.from_parameters
def serve(
    *,
    host: str = option("Address to listen on.", default="127.0.0.1"),
    port: int = option("Port to listen on.", default=8600),
    videos: tuple[str, ...] = option(
        "Folder whose videos may be asked about; may be given again. [default: uploads only]",
        metavar="DIR",
        multiple=True,
    ),
    data: str | None = option("Uploads, rankings and jobs. [default: the user's data folder]", metavar="DIR"),
    scorer: ScorerChoice,
    access: Access,
    limits: Limits,
    answers: AnswerSource,
    common: Common,
) -> None:
    """Serve rankings over HTTP, with a page to ask questions on.

    Only this machine can reach it unless --host says otherwise; then a token is needed.

    \b
    framenest serve --videos lectures/
    FRAMENEST_TOKEN=… framenest serve --host 0.0.0.0 --videos lectures/
    """
    try:
        from framenest.server.app import create_app
        from framenest.server.listen import listen
        from framenest.server.server_settings import ServerSettings
        from framenest.server.service import Service
    except ImportError as error:
        raise MissingExtra("server", error.name or "fastapi") from error
    with options.settings_as_options():
        settings = ServerSettings(
            data=Path(data).expanduser() if data else user_data_path("framenest") / "server",
            videos=tuple(Path(folder).expanduser() for folder in videos),
            cache=common.cache.location,
            host=host,
            port=port,
            scorer=scorer.resolved(common),
            scoring=scorer.config,
            **vars(access),
            **vars(limits),
            **vars(answers),
        )
    logging.basicConfig(
        format="%(asctime)s %(message)s", level=logging.WARNING if common.quiet else logging.INFO
    )
    for library in ("httpx", "httpx2"):  # of the answering client; they log whole addresses
        logging.getLogger(library).setLevel(logging.WARNING)
    service = Service(settings)
    try:
        service.start()
    except BaseException:
        service.close()
        raise
    err.print(f"Framenest at {settings.url}/, its API at {settings.url}/docs", soft_wrap=True)
    listen(create_app(service), settings)
