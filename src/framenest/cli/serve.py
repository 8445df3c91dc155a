"""framenest serve."""

from __future__ import annotations

import logging
from pathlib import Path

import rich_click as click
from platformdirs import user_data_path

from framenest.cli import options
from framenest.cli.terminal import err
from framenest.config import ScorerConfig
from framenest.errors import ConfigError, MissingExtra
from framenest.protocols import ManagedStore


@click.command()
@click.option_panel("Options")
@click.option_panel(options.SCORER_PANEL)
@click.option_panel("Who may use it")
@click.option_panel("Limits")
@click.option_panel("Answers")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=8600, show_default=True)
@click.option(
    "--videos", metavar="DIR", help="Folder whose videos may be asked about. [default: uploads only]"
)
@click.option("--data", metavar="DIR", help="Uploads, rankings and jobs. [default: the user's data folder]")
@options.scorer
@click.option(
    "--token",
    envvar="FRAMENEST_TOKEN",
    metavar="TEXT",
    help="What clients must send. Needed for any address but loopback; better set in $FRAMENEST_TOKEN, since "
    "other users of this machine can see command lines.",
    panel="Who may use it",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A web host that videos may be fetched from (host or host:port); may be given again.",
    panel="Who may use it",
)
@click.option("--workers", type=int, default=1, show_default=True, help="Jobs at once.", panel="Limits")
@click.option("--queue", type=int, default=64, show_default=True, help="Jobs that may wait.", panel="Limits")
@click.option(
    "--max-job",
    type=int,
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="Of one job; then it is ended.",
    panel="Limits",
)
@click.option(
    "--max-upload",
    type=int,
    default=2048,
    show_default=True,
    metavar="MIB",
    help="Of one video.",
    panel="Limits",
)
@click.option(
    "--max-stored", type=int, default=20480, show_default=True, metavar="MIB", help="Of all.", panel="Limits"
)
@click.option(
    "--answer-url",
    metavar="URL",
    help="An OpenAI-compatible endpoint that answers questions, such as http://localhost:8000/v1. "
    "Its key, if it needs one, is read from $OPENAI_API_KEY.",
    panel="Answers",
)
@click.option("--answer-model", metavar="NAME", help="The model to ask there.", panel="Answers")
@options.common
def serve(
    host: str,
    port: int,
    videos: str | None,
    data: str | None,
    scorer: str,
    scoring: ScorerConfig,
    token: str | None,
    hosts: tuple[str, ...],
    workers: int,
    queue: int,
    max_job: int,
    max_upload: int,
    max_stored: int,
    answer_url: str | None,
    answer_model: str | None,
    cache: ManagedStore,
    quiet: bool,
) -> None:
    """Serve rankings over HTTP, with a page to ask questions on.

    Only this machine can reach it unless --host says otherwise; then a token is needed.

    \b
    framenest serve --videos lectures/
    FRAMENEST_TOKEN=… framenest serve --host 0.0.0.0 --videos lectures/
    """
    try:
        import uvicorn

        from framenest.server.app import create_app
        from framenest.server.server_settings import MIB, ServerSettings
        from framenest.server.service import Service
    except ImportError as error:
        raise MissingExtra("server", error.name or "fastapi") from error
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port {port} is not a port; give 0 to 65535")
    settings = ServerSettings(
        data=Path(data).expanduser() if data else user_data_path("framenest") / "server",
        videos=Path(videos).expanduser() if videos else None,
        cache=cache.location,
        host=host,
        port=port,
        token=token or None,
        scorer=scorer,
        scoring=scoring,
        workers=workers,
        queue=queue,
        max_job=max_job,
        max_upload=max_upload * MIB,
        max_stored=max_stored * MIB,
        hosts=hosts,
        answer_url=answer_url,
        answer_model=answer_model,
    )
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING if quiet else logging.INFO)
    for library in ("httpx", "httpx2"):  # of the answering client; they log whole addresses
        logging.getLogger(library).setLevel(logging.WARNING)
    service = Service(settings)
    try:
        service.start()
    except BaseException:
        service.close()
        raise
    where = f"[{host}]" if ":" in host else host
    err.print(f"Framenest at http://{where}:{port}/, its API at http://{where}:{port}/docs", soft_wrap=True)
    # Its own access log would have query strings in it; the guard logs instead.
    uvicorn.run(
        create_app(service),
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
