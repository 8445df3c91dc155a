"""`framenest rank` of one video on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from framenest.cli.common_options import Common
from framenest.cli.terminal import note
from framenest.cli.video_options import VideoOptions
from framenest.config import IndexConfig, MECConfig
from framenest.method.index import choose_probes
from framenest.method.mec import MEC, check_horizon
from framenest.method.ranking import Ranking
from framenest.protocols import Decoder
from framenest.video.formats import is_remote


def rank_here(
    video: str,
    config: MECConfig,
    scorer: str | None,
    common: Common,
    how: VideoOptions,
    budgets: Sequence[int],
    settings: Mapping[str, Any],
) -> Callable[..., Ranking]:
    """`MEC.rank` of the open video, once it is clear that its ranking serves the budgets."""
    mec = MEC(config, scorer, store=common.cache, **settings)
    if is_remote(video):
        mec.session.begin_loading()  # else once it is clear that this is a video
    opened = how.open(video, common)
    check_horizon(budgets, opened, config)
    if config.index.max_gap is not None:
        _tell_cost(opened, config.index)
    return partial(mec.rank, opened)


def _tell_cost(video: Decoder, config: IndexConfig) -> None:
    """How much more --max-gap looks at than the default would."""
    wanted, usual = (len(choose_probes(video, one)[1]) for one in (config, replace(config, max_gap=None)))
    if wanted > usual:
        note(
            f"--max-gap {config.max_gap:g} looks at {wanted:,} probes instead of {usual:,}: about "
            f"{wanted / usual:.1f} times the decoding and encoding of a first question"
        )
