"""Options of commands that serve: where they listen, who may use them, what a user may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from framenest.cli.common_options import Common
from framenest.cli.options import option, settings_as_options
from framenest.cli.scorer_options import ScorerChoice
from framenest.server.server_settings import ServerSettings


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
