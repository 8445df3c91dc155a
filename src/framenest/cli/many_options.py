"""Options of commands that work on many videos: in worker processes or on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import rich_click as click

from framenest.cli.options import option
from framenest.cli.output_files import OutputFile
from framenest.cli.parameter_types import Duration, Size

MANY_PANEL = "Many videos"
LOCAL = ("engine", "local")


@dataclass(frozen=True)
class ManyVideos:
    """How a run over many videos is done."""

    panel: ClassVar = MANY_PANEL
    jobs: int | None = option(
        "Worker processes. [default: one per core; fewer where each loads a model onto a GPU]",
        type=click.IntRange(1),
        metavar="N",
    )
    time_limit: float | None = option(
        "Time limit for one video or question; 0 for none. [default: 30m]", type=Duration()
    )
    memory: float | None = option(
        "Memory that a worker may use, such as 2GiB; one that uses more is stopped. "
        "[default: an equal share of three quarters of the machine's]",
        type=Size(),
    )
    failures: Path | None = option(
        "What failed and why, one JSON object a line; replaced by every run. [default: failures.jsonl]",
        type=OutputFile(),
    )
    engine: str = option(
        "Processes of this machine, or a Ray cluster (extra `ray`).",
        type=click.Choice(["local", "ray"]),
        default="local",
    )
    address: str | None = option(
        "With --engine ray: the cluster, as ray.init takes it. [default: a new one on this machine]",
        metavar="ADDRESS",
    )
    encoders: int | None = option(
        "With --engine ray: processes that run the scorer for all others. "
        "[default: one per GPU; without GPUs each worker runs its own]",
        type=click.IntRange(1),
        metavar="N",
    )

    @property
    def asked_for(self) -> bool:
        """Whether the command line sets any of these."""
        return any(value is not None for name, value in vars(self).items() if (name, value) != LOCAL)
