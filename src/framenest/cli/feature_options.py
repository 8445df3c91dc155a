"""Options of commands that keep features: which ones, and how much all of them may take."""

from __future__ import annotations

from dataclasses import dataclass

from framenest.cli.options import option, through_environment
from framenest.cli.parameter_types import Size
from framenest.limits import FEATURES_VARIABLE


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
