"""framenest serve."""

from __future__ import annotations

import logging
from pathlib import Path

import rich_click as click
from platformdirs import user_data_path

from framenest.cli import options
from framenest.cli.common_options import Common
from framenest.cli.feature_options import FeaturesBound
from framenest.cli.model_options import SpokenLines
from framenest.cli.options import option
from framenest.cli.scorer_options import ScorerChoice
from framenest.cli.server_options import Access, AnswerSource, Limits, ListenAddress, server_settings
from framenest.cli.terminal import err
from framenest.errors import MissingExtra
from framenest.transcript import NONE

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
