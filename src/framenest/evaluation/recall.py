"""Recall: how often a selection shows the moment that answers the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Intervals = Sequence[tuple[float, float]]
Floats = NDArray[np.float64]

REGIMES = {"low": (8, 16), "medium": (32, 64), "high": (128, 256)}
"""Budgets over which the paper's tables average."""
BOOTSTRAP, SEED = 1000, 0
SAME_LOOK = 0.995
"""Appearance similarity above which two frames are near-duplicates."""


def inside(seconds: Floats, intervals: Intervals) -> NDArray[np.bool_]:
    """(n,) which of the times lie in an interval, its ends included.

    >>> inside(np.array([1.0, 7.5]), [(7.0, 8.0)]).tolist()
    [False, True]
    """
    found = np.zeros(len(seconds), dtype=bool)
    for start, end in intervals:
        found |= (start <= seconds) & (seconds <= end)
    return found


def hit(seconds: Floats, intervals: Intervals) -> bool:
    """Whether a frame lies in an interval."""
    return bool(inside(seconds, intervals).any())


def covered(seconds: Floats, intervals: Intervals) -> float:
    """Share of the intervals that hold a frame."""
    return sum(hit(seconds, [interval]) for interval in intervals) / len(intervals)


def first_hit(seconds_by_rank: Floats, intervals: Intervals) -> int | None:
    """Rank, from 1, of the first frame in an interval; None where there is none."""
    hits = inside(seconds_by_rank, intervals)
    return int(np.argmax(hits)) + 1 if hits.any() else None


def largest_gap(seconds: Floats, duration: float) -> float:
    """The longest stretch of the video without a frame, its ends included, as a share of its length."""
    edges = np.concatenate([[0.0], np.sort(seconds), [duration]])
    return float(np.diff(edges).max() / duration) if duration > 0 else 0.0


def most_similar(appearance: NDArray[np.floating[Any]]) -> Floats:
    """(K,) similarity of each frame to its most similar other; 0 for a lone one.

    appearance: (K, d) unit vectors.
    """
    if len(appearance) < 2:
        return np.zeros(1)
    vectors = appearance.astype(np.float64, copy=False)
    similar = vectors @ vectors.T
    np.fill_diagonal(similar, -np.inf)
    nearest: Floats = similar.max(axis=1)
    return nearest


def redundancy(nearest: Floats) -> float:
    """Mean similarity of each frame to its most similar other. nearest: (K,) as `most_similar` gives it."""
    return float(nearest.mean())


def near_duplicates(nearest: Floats) -> float:
    """Share of the frames whose most similar other looks the same. nearest: (K,) as `most_similar` gives."""
    return float((nearest > SAME_LOOK).mean())


def nesting(smaller: NDArray[np.int64], larger: NDArray[np.int64]) -> float:
    """Share of the smaller selection's frames that the larger one keeps."""
    kept = set(larger.tolist())
    return sum(frame in kept for frame in smaller.tolist()) / len(smaller)


@dataclass
class RecallOutcome:
    """What one selector did on one question: measures by budget, and what does not depend on it."""

    by_budget: dict[int, dict[str, float | None]] = field(default_factory=dict)
    first_hit: int | None = None
    ranked: bool = False
    candidates: int = 0
    seconds: float = 0.0


def objective(hits: Mapping[int, float], weights: Mapping[int, float]) -> float:
    """The paper's objective Σ π_K·hit@K; weights need not sum to one."""
    total = sum(weights[k] for k in hits)
    return sum(weights[k] * hits[k] for k in hits) / total


def interval_of_mean(values: Floats) -> tuple[float, float]:
    """95 % bootstrap interval of a mean over questions; the same draws every time.

    For a paired difference, pass the differences.
    """
    draws = np.random.default_rng(SEED).integers(0, len(values), (BOOTSTRAP, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def _mean(values: Sequence[float | None]) -> float | None:
    """Over the questions for which there is a value."""
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def by_question(outcomes: Sequence[RecallOutcome], budget: int, name: str, seeds: int = 1) -> Floats:
    """(n,) a measure of each question, the mean over its seeds. outcomes: question by question."""
    values = np.array([outcome.by_budget[budget][name] for outcome in outcomes], dtype=np.float64)
    means: Floats = values.reshape(-1, seeds).mean(axis=1)
    return means


def summarise(
    outcomes: Sequence[RecallOutcome], weights: Mapping[int, float] | None = None, seeds: int = 1
) -> dict[str, Any]:
    """Means over questions: {"8": {"hit": …, "hit_low": …, "hit_high": …, …}, …, "all": {…}}.

    outcomes: question by question, each with all its seeds. Intervals are over questions.
    """
    budgets = list(outcomes[0].by_budget)
    weights = weights or dict.fromkeys(budgets, 1.0)
    summary: dict[str, Any] = {}
    for budget in budgets:
        rows = [outcome.by_budget[budget] for outcome in outcomes]
        means = {name: _mean([row[name] for row in rows]) for name in rows[0]}
        low, high = interval_of_mean(by_question(outcomes, budget, "hit", seeds))
        summary[str(budget)] = means | {"hit_low": low, "hit_high": high}
    hits = {budget: summary[str(budget)]["hit"] for budget in budgets}
    ranked = all(outcome.ranked for outcome in outcomes)
    ranks = [outcome.first_hit for outcome in outcomes if outcome.first_hit is not None]
    regimes = {
        name: float(np.mean([hits[k] for k in group]))
        for name, group in REGIMES.items()
        if all(k in hits for k in group)
    }
    summary["all"] = {
        "objective": objective(hits, weights),
        **regimes,
        "mean_first_hit": float(np.mean(ranks)) if ranks and ranked else None,
        "found": len(ranks) / len(outcomes) if ranked else None,
        "candidates": float(np.mean([outcome.candidates for outcome in outcomes])),
        "seconds": float(np.mean([outcome.seconds for outcome in outcomes])),
    }
    return summary
