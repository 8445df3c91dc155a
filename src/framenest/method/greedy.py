"""The greedy loop of the Matryoshka ranking: the weight schedule, coverage, diversity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framenest.config import RankingConfig
from framenest.method.cues import similarity_rows

Floats = NDArray[np.float64]


def evidence_weight(rank: int, config: RankingConfig, horizon: int) -> float:
    """Eq. weights: w_e(k) = w_e− + (w_e+ − w_e−)·[1 − (k/M)^γ].

    >>> evidence_weight(128, RankingConfig(), horizon=256)
    0.4
    """
    low, high = config.evidence_weight_end, config.evidence_weight_start
    return float(low + (high - low) * (1.0 - (rank / horizon) ** config.gamma))


def coverage(nearest: Floats, num_frames: int, rank: int) -> Floats:
    """Eq. coverage: H_n(k) = min(1, nearest / (N/k)), nearest = frames to the nearest chosen one. (n,)."""
    return np.minimum(1.0, nearest / (num_frames / rank))


def diversity(similarity: Floats) -> Floats:
    """Eq. diversity: D_n(k) = 1 − similarity to the most similar chosen frame. (n,)."""
    return 1.0 - similarity


@dataclass(frozen=True, eq=False)
class Greedy:
    """The greedy order, and what each choice saw.

    Attributes:
        order: (M,) int64 positions in the pool, best first.
        terms: (M,) float64 each, by rank: coverage, diversity, utility. The first rank sees no chosen
            frame: its coverage and diversity are 1, its utility is its evidence.
    """

    order: NDArray[np.int64]
    terms: dict[str, Floats]


def greedy(
    frames: NDArray[np.int64],
    evidence: NDArray[np.float32],
    appearance: NDArray[np.float32],
    num_frames: int,
    config: RankingConfig,
) -> Greedy:
    """Algorithm 1: rank the candidates, each choice seeing only those before it.

    frames: (n,) ascending frame numbers; evidence: (n,), or (m, n) rows that take turns; appearance: (n, d)
    unit vectors; num_frames: N. The ranking has M = min(horizon, n) places, over which the schedule runs.
    Ties go to the earlier frame (`argmax` takes the first, and frames ascend).
    """
    size = len(frames)
    horizon = min(config.horizon, size)
    places = frames.astype(np.float64)
    worths = np.atleast_2d(evidence).astype(np.float64)
    worth = worths[0]
    similarities = similarity_rows(appearance)

    order = np.empty(horizon, dtype=np.int64)
    seen = np.ones((3, horizon))
    chosen = int(np.argmax(worth))
    order[0], seen[2, 0] = chosen, worth[chosen]
    nearest = np.abs(places - places[chosen])
    similarity = similarities(chosen).copy()
    taken = np.zeros(size)
    taken[chosen] = -np.inf
    covered = np.zeros(size)

    for place in range(1, horizon):
        weight = evidence_weight(place + 1, config, horizon)
        worth = worths[place % len(worths)]
        if config.coverage_term:
            covered = coverage(nearest, num_frames, place + 1)
        diverse = diversity(similarity)
        utility = (
            weight * worth
            + (1.0 - weight - config.diversity_weight) * covered
            + (config.diversity_weight * diverse)
        )
        chosen = int((utility + taken).argmax())
        order[place] = chosen
        seen[:, place] = covered[chosen], diverse[chosen], utility[chosen]
        taken[chosen] = -np.inf
        np.minimum(nearest, np.abs(places - places[chosen]), out=nearest)
        np.maximum(similarity, similarities(chosen), out=similarity)
    return Greedy(order, dict(zip(("coverage", "diversity", "utility"), seen, strict=True)))
