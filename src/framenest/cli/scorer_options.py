"""Options of scorers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from framenest.cli.options import SCORER_PANEL, Common, Size, option, refuse, through_environment
from framenest.cli.terminal import detail, note
from framenest.config import ScorerConfig
from framenest.errors import ConfigError, ScorerError
from framenest.method.discovery import LookFor
from framenest.processes import FEATURES_VARIABLE
from framenest.progress import Bars
from framenest.transcript import AUTO

if TYPE_CHECKING:
    from framenest.session import Session


@dataclass(frozen=True, kw_only=True)
class ScorerChoice:
    """The scorer that the command line names, and how it runs."""

    panel: ClassVar = SCORER_PANEL
    name: str = option(
        "What scores relevance: a name from `framenest models`, with a checkpoint of yours as in "
        "clip:org/name or blip2:FOLDER, or table:FILE for scores of your own (CSV or JSON of frame or "
        "seconds → score).",
        flag="--scorer",
        default="auto",
        metavar="NAME",
    )
    config: ScorerConfig

    def __post_init__(self) -> None:
        refuse_reranker(self.config)
        if self.config.subtitles is None:  # who ranks for a question wants what is said, too
            object.__setattr__(self, "config", replace(self.config, subtitles=AUTO))

    def _check_device(self) -> None:
        """Refuse a device that this scorer cannot run on."""
        elsewhere = self.config.device not in ("auto", "cpu")
        if elsewhere and self.name.partition(":")[0] in ("tags", "table"):
            raise ConfigError(
                f"--device {self.config.device} has no effect: {self.name.partition(':')[0]} runs on the CPU"
            )

    def resolved(self, common: Common) -> str:
        """The scorer's name; of "auto" what that is on this machine, and a note why."""
        detail(f"scorer {self.name} asked for")
        self._check_device()
        if self.name == "auto":
            from framenest.scorers import choose

            with suppress(ScorerError):  # where nothing is ready, the command says so when it needs a scorer
                name, why = choose(common.local)
                note(why)
                return name
        return self.name

    def session(self, common: Common, bars: Bars, selectors: Sequence[str]) -> Session:
        """A session with this scorer; nothing is said of it where no selector uses one."""
        from framenest.selectors import needs_scorer
        from framenest.session import Session

        used = any(map(needs_scorer, selectors))
        return Session(
            self.resolved(common) if used else self.name,
            store=common.cache,
            progress=bars,
            scoring=self.config,
        )


def refuse_reranker(config: ScorerConfig) -> None:
    """Refuse --reranker where nothing is reranked."""
    if not config.rerank:
        refuse("nothing is scored again without --rerank COUNT", "reranker")


def refuse_one_file(config: ScorerConfig, videos: int) -> None:
    """Refuse --subtitles FILE for several videos."""
    if videos > 1 and Path(config.subtitles or "").is_file():
        raise ConfigError(
            "one subtitle file cannot be that of several videos; give a folder of them, or auto"
        )


@dataclass(frozen=True)
class Descriptions:
    """What to look for beside the question."""

    look_for: tuple[str, ...] = option(
        "Something to look for beside the question, described as it would be seen: “a potter opens a kiln”; "
        "may be given again. A frame that shows one of them is relevant.",
        multiple=True,
        metavar="TEXT",
    )

    def given(self) -> LookFor | None:
        """None if nothing is to be looked for."""
        return LookFor(self.look_for) if self.look_for else None


@dataclass(frozen=True)
class FeaturesBound:
    """How much features may take in the cache, all together."""

    features_limit: int | None = option(
        "What the features of all videos may take in the cache directory together, such as 50GiB; those "
        f"unused for longest go. [default: ${FEATURES_VARIABLE}, or 20GiB, and at most half of what is free]",
        type=Size(),
        callback=through_environment(FEATURES_VARIABLE),
    )


@dataclass(frozen=True, kw_only=True)
class KeptFeatures:
    """Which features are kept."""

    keep_features: bool | None = option(
        "Keep features in the cache whatever they take, or keep none. [default: up to 512 MiB a video]",
        flag="--keep-features/--no-keep-features",
        default=None,
    )
    bound: FeaturesBound
