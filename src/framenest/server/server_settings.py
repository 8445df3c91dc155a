"""ServerSettings: the options of `framenest serve`; closed unless opened."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from framenest.cache.directory import DirectoryStore
from framenest.config import DEFAULT_PRESET, ScorerConfig
from framenest.errors import BadSetting, ConfigError
from framenest.image_tokens import TokenBudget
from framenest.lmm.prompt import TOKENS
from framenest.rank_request import Budget

MIB = 2**20
MIN_TOKEN_CHARS = 16
MOST_SHOWN = 256  # frames that go to a model in one request


@dataclass(frozen=True)
class ServerSettings:
    """Options of `framenest serve`. Secrets are not in its repr."""

    data: Path  # folder of uploads and the journal
    videos: tuple[Path, ...] = ()  # the only folders whose files may be registered by path
    cache: str | None = None  # folder or address for indexes, features and models; None: the user's cache
    decoder: str = "pyav"  # as for `open_video`
    host: str = "127.0.0.1"
    port: int = 8600
    token: str | None = field(default=None, repr=False)
    scorer: str = "auto"
    scoring: ScorerConfig = ScorerConfig()
    preset: str = DEFAULT_PRESET  # of questions that name none
    workers: int = 1
    queue: int = 64
    max_job: int = 3600  # seconds
    max_upload: int = 2048 * MIB
    max_stored: int = 20480 * MIB
    hosts: tuple[str, ...] = ()  # web hosts that videos may be fetched from
    upstream: str | None = None  # OpenAI-compatible server behind the gateway
    answer_model: str | None = None  # of the upstream; answers the page's questions
    budget: Sequence[int] = (32,)  # frames that the gateway shows for a turn; several are a ladder
    tokens: TokenBudget | None = None  # what they may cost, in place of the budget
    max_images: int = MOST_SHOWN  # that the gateway sends in a request
    with_transcript: bool = False  # send what is said beside the frames
    transcript_tokens: int = TOKENS  # that this may take

    def __post_init__(self) -> None:
        for folder in self.videos:
            if not folder.is_dir():
                raise ConfigError(f"{folder}: not a folder; give a folder of videos to offer")
        for name in ("workers", "queue", "max_job", "max_upload", "max_stored", "max_images"):
            if getattr(self, name) < 1:
                raise BadSetting(name, getattr(self, name), "1 or more")
        if not 0 <= self.port <= 65535:
            raise BadSetting("port", self.port, "a port, 0 to 65535")
        if self.token is not None and len(self.token) < MIN_TOKEN_CHARS:
            raise ConfigError(f"the token is too short; give at least {MIN_TOKEN_CHARS} characters")
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise ConfigError("the token has characters that a client cannot send; use ASCII without spaces")
        if self.token is None and not is_loopback(self.host):
            reached = f"{self.host} can be reached from other machines"
            raise ConfigError(f"{reached}, so it needs a token; set FRAMENEST_TOKEN")
        if Budget.ladder(self.budget)[-1] > MOST_SHOWN:
            raise BadSetting("budget", self.budget, f"1 to {MOST_SHOWN} frames")

    @property
    def url(self) -> str:
        """Where the server is reached."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def uploads(self) -> Path:
        """Folder of uploaded and fetched videos."""
        return self.data / "uploads"

    @property
    def cache_folder(self) -> Path | None:
        """Folder of indexes and features; None if they are at an address."""
        return None if self.cache and "://" in self.cache else DirectoryStore(self.cache).root


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address, such as ::1."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
