"""Evidence, activation, anchors and zoom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import DiscoveryConfig
from framenest.frames import Floats, Ints
from framenest.method.index import interior, segments

Cues = Mapping[str, Floats]
"""(n,) arrays by name. A cue `x` enters the evidence with the weight `DiscoveryConfig.x_weight`."""


def noisy_or(matches: Sequence[Floats]) -> Floats:
    """(n,) 1 − Π(1 − ρ): how surely a frame matches one of several strings. matches: (n,) in [0, 1] each.

    >>> noisy_or([np.array([0.5, 0.0], np.float32), np.array([0.5, 1.0], np.float32)]).tolist()
    [0.75, 1.0]
    """
    if len(matches) == 1:
        return matches[0]
    missed = np.prod([1.0 - match.astype(np.float64) for match in matches], axis=0)
    return np.asarray(1.0 - missed, dtype=np.float32)


def evidence(cues: Cues, config: DiscoveryConfig) -> Floats:
    """Eq. evidence: E_n = λr·ρ_n + λΔ·Δ_n + λo·O_n; + λs·ς_n with a transcript. (n,)."""
    total = sum(getattr(config, f"{name}_weight") * cue.astype(np.float64) for name, cue in cues.items())
    return np.asarray(total, dtype=np.float32)


def activate(scores: Floats, length: int, ratio: float) -> list[int]:
    """The ⌈ηJ⌉ segments with the highest mean probe evidence, ascending; ties go to the earlier.

    scores: (P,) probe evidence; length: probes in a segment; ratio: η.
    """
    parts = segments(len(scores), length)
    means = np.array([scores[part].astype(np.float64).mean() for part in parts])
    wanted = math.ceil(ratio * len(means) - 1e-12)
    return sorted(best(means, wanted))


def anchors(scores: Floats, active: list[int], length: int, count: int) -> list[int]:
    """Positions of the `count` best probes of each active segment, ascending; ties go to the earlier."""
    parts = segments(len(scores), length)
    return sorted(
        parts[segment].start + chosen for segment in active for chosen in best(scores[parts[segment]], count)
    )


def best(values: NDArray[np.floating[Any]], count: int) -> list[int]:
    """Positions of the largest values, best first; ties go to the earlier position."""
    return [int(i) for i in np.argsort(-values, kind="stable")[:count]]


def zoom(probes: Ints, anchor_positions: list[int], count: int) -> Ints:
    """Eq. zoom: `count` new frames on each available side of every anchor, ascending and distinct.

    probes: (P,) ascending frame numbers; anchor_positions: positions in it.
    """
    frames: set[int] = set()
    for gap in {gap for position in anchor_positions for gap in (position - 1, position)}:
        if 0 <= gap < len(probes) - 1:
            frames.update(interior(int(probes[gap]), int(probes[gap + 1]), count).tolist())
    return np.array(sorted(frames), dtype=np.int64)


def refine(relevance: Floats, again: Ints, judged: Floats) -> Floats:
    """Relevance (n,) with the candidates at positions `again` (k,) replaced by what was `judged` (k,).

    The others are capped at the lowest judged score, so that none scores above a judged one.

    >>> refine(np.float32([0.9, 0.8, 0.3, 0.1]), np.array([0, 1]), np.float32([0.2, 0.7])).tolist()
    [0.20000000298023224, 0.699999988079071, 0.20000000298023224, 0.10000000149011612]
    """
    if not len(again):
        return relevance
    result: Floats = np.minimum(relevance, judged.min())
    result[again] = judged
    return result
