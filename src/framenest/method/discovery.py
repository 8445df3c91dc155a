"""Evidence on the probes, the segments worth a closer look, anchors and zoom frames."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import DiscoveryConfig
from framenest.method.candidate_pool import Cues
from framenest.method.probes import interior, segments


def evidence(cues: Cues, config: DiscoveryConfig) -> NDArray[np.float32]:
    """Eq. evidence: E_n = λr·ρ_n + λΔ·Δ_n + λo·O_n; + λt·τ_n where text was read, + λs·ς_n for speech.

    Args:
        cues: (n,) arrays by name; each weighs as much as the config's `<name>_weight` says.
        config: the weights.

    Returns:
        (n,) float32.
    """
    total = sum(getattr(config, f"{name}_weight") * cue.astype(np.float64) for name, cue in cues.items())
    return np.asarray(total, dtype=np.float32)


def activate(scores: NDArray[np.float32], length: int, ratio: float) -> list[int]:
    """The ⌈ηJ⌉ segments with the highest mean probe evidence, ascending; ties go to the earlier.

    scores: (P,) probe evidence; length: probes in a segment; ratio: η.
    """
    parts = segments(len(scores), length)
    means = np.array([scores[part].astype(np.float64).mean() for part in parts])
    wanted = math.ceil(ratio * len(means) - 1e-12)
    return sorted(best(means, wanted))


def anchors(scores: NDArray[np.float32], active: list[int], length: int, count: int) -> list[int]:
    """Positions of the `count` best probes of each active segment, ascending; ties go to the earlier."""
    parts = segments(len(scores), length)
    return sorted(
        parts[segment].start + chosen for segment in active for chosen in best(scores[parts[segment]], count)
    )


def best(values: NDArray[np.floating[Any]], count: int) -> list[int]:
    """Positions of the largest values, best first; ties go to the earlier position."""
    return [int(i) for i in np.argsort(-values, kind="stable")[:count]]


def zoom(probes: NDArray[np.int64], anchor_positions: list[int], count: int) -> NDArray[np.int64]:
    """Eq. zoom: `count` new frames on each available side of every anchor, ascending and distinct.

    probes: (P,) ascending frame numbers; anchor_positions: positions in it.
    """
    found: set[int] = set()
    for position in anchor_positions:
        if position > 0:
            found.update(interior(int(probes[position - 1]), int(probes[position]), count).tolist())
        if position + 1 < len(probes):
            found.update(interior(int(probes[position]), int(probes[position + 1]), count).tolist())
    return np.array(sorted(found), dtype=np.int64)
