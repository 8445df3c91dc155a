"""The inner rules of the selectors: scores in, positions out. Published ones are pinned to golden vectors.

Scores are (n,) relevance of candidates in time order; a rule returns positions among them. What the
public selectors add (removing duplicates, topping up to exactly K) is not here.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def top_k(scores: Floats, count: int) -> Ints:
    """The highest scores, best first; ties go to the earlier."""
    return np.argsort(-scores, kind="stable")[:count].astype(np.int64)


def min_gap(seconds: Floats, evidence: Floats, count: int, *, gap: float = 10.0) -> Ints:
    """The best evidence first, never within `gap` seconds of a chosen frame.

    Where no candidate is left, the gap is halved. seconds, evidence: (n,) in time order. Positions in the
    order in which they are taken, so prefixes nest; ties go to the earlier.

    >>> min_gap(np.array([0.0, 4.0, 20.0]), np.array([0.9, 0.8, 0.1]), 3).tolist()
    [0, 2, 1]
    """
    nearest = np.full(len(seconds), np.inf)
    left = evidence.copy()
    chosen: list[int] = []
    while len(chosen) < min(count, len(seconds)):
        allowed = np.where(nearest >= gap, left, -np.inf)
        best = int(allowed.argmax())
        if allowed[best] == -np.inf:
            gap = gap / 2 if gap > _NO_GAP else 0.0
            continue
        chosen.append(best)
        left[best] = -np.inf
        np.minimum(nearest, np.abs(seconds - seconds[best]), out=nearest)
    return np.array(chosen, dtype=np.int64)


_NO_GAP = 1e-3
"""Seconds below which a gap is none: frames that share a time are all taken in the end."""


def aks(
    scores: Floats, count: int, *, depth: int = 5, threshold: float = 0.8, spread: float = -100.0
) -> Ints:
    """Adaptive Keyframe Sampling: split in halves until a part's best frames stand out, then take the best.

    Scores are min-max normalised. A part is split while mean(best K) − mean ≤ threshold (or its standard
    deviation ≤ spread) and `depth` is not reached; a part at depth d gives its ⌊K/2^d⌋ best. As published:
    at depth 5 and K < 32 that is nothing at all.
    """
    size = len(scores)
    if size < count:
        return np.arange(size, dtype=np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        normal = (scores - scores.min()) / (scores.max() - scores.min())
    chosen: list[int] = []
    parts = deque([(0, size, 0)])
    while parts:
        start, end, level = parts.popleft()
        part = normal[start:end]
        if level < depth and not _stands_out(part, count, threshold, spread):
            middle = start + (end - start) // 2
            parts += [(start, middle, level + 1), (middle, end, level + 1)]
        else:
            order = np.argsort(-part, kind="stable")[: count // 2**level]
            chosen += [start + int(i) for i in order]
    return np.array(sorted(chosen), dtype=np.int64)


def _stands_out(part: Floats, count: int, threshold: float, spread: float) -> bool:
    """Whether the best frames of a part lie far enough above its mean."""
    if not len(part):
        return False
    best = np.sort(part)[::-1][:count]
    return bool(best.mean() - part.mean() > threshold and part.std() > spread)


def bolt(scores: Floats, count: int, *, power: float = 3.0) -> Ints:
    """BOLT: inverse transform sampling of min-max scores raised to a power; −1 leaves them as they are.

    Ascending, duplicates possible; constant scores give all zeros, as in the released code.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        normal = (scores - scores.min()) / (scores.max() - scores.min())
        weights = normal if power == -1 else normal**power
        cumulative = np.cumsum(weights / weights.sum())
    points = np.linspace(1 / count, 1 - 1 / count, count)
    found: Ints = np.searchsorted(cumulative, points, side="left").astype(np.int64)
    return found


_NOTHING_NEW = 1e-10


def mdp3(
    frames: Floats,
    text: Floats,
    count: int,
    *,
    weight: float = 0.2,
    widths: tuple[float, ...] = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0),
) -> Ints:
    """MDP3 with the whole video as one segment: greedy MAP of a determinantal point process.

    frames: (n, d) vectors; text: (d,). Kernel k(a, b) = Σ_α exp(−‖a − b‖² / 2α). The greedy step adds
    the frame with the largest gain of (2/λ)·Σ log k(q, i) + log det K, by incremental Cholesky; ties go
    to the earlier. Positions in the order in which they are taken.
    """
    relevance = (2 / weight) * np.log(_multi_gaussian(frames, text[None], widths)[:, 0])
    kernel = _multi_gaussian(frames, frames, widths)
    order, _ = _greedy_determinant(relevance, kernel, min(count, len(frames)))
    return np.array(order, dtype=np.int64)


def mdp3_segments(
    frames: Floats,
    text: Floats,
    count: int,
    segment: int,
    *,
    weight: float = 0.2,
    widths: tuple[float, ...] = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0),
) -> Ints:
    """MDP3 in segments of `segment` candidates: dynamic programming over segments and numbers of frames.

    Within a segment the greedy rule of `mdp3`, with the last frame chosen before it taken as given: that
    frame's terms count in the segment's worth, too. best[k] is the worth of k frames from the segments so
    far; a segment adds j frames where that is worth strictly more, fewer frames from it coming first. Where
    the candidates are no multiple of `segment`, the last segment is shorter (the released code cannot run
    there). Positions, ascending.
    """
    size = len(frames)
    count = min(count, size)
    relevance = (2 / weight) * np.log(_multi_gaussian(frames, text[None], widths)[:, 0])
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for start in range(0, size, segment):
        inside = np.arange(start, min(start + segment, size))
        found = {0: (0.0, list[int]())}
        greedy: dict[int | None, tuple[list[int], list[float]]] = {}  # most beginnings share their last frame
        for before, (worth, chosen) in enumerate(best):
            given = chosen[-1] if chosen else None
            if given not in greedy:
                places = inside if given is None else np.concatenate([[given], inside])
                kernel = _multi_gaussian(frames[places], frames[places], widths)
                order, worths = _greedy_determinant(
                    relevance[places], kernel, min(count, len(inside)), first=None if given is None else 0
                )
                greedy[given] = [int(places[i]) for i in order], worths
            order, worths = greedy[given]
            for more in range(min(len(order), count - before) + 1):
                total = worth + (worths[more - 1] if more else 0.0)
                if before + more not in found or total > found[before + more][0]:
                    found[before + more] = total, chosen + sorted(order[:more])
        best = [found[number] for number in sorted(found)]
    return np.array(best[count][1], dtype=np.int64)


def _greedy_determinant(
    relevance: Floats, kernel: Floats, count: int, first: int | None = None
) -> tuple[list[int], list[float]]:
    """Greedy maximum of Σ relevance + log det, by incremental Cholesky; ties go to the earlier.

    relevance: (n,); kernel: (n, n). first: a position that is in the set from the beginning and is not
    taken again. Returns `count` positions in the order in which they are taken, and the worth of the set
    after each.
    """
    size = len(relevance)
    left = kernel.diagonal().copy()
    given = [] if first is None else [first]
    factors = np.zeros((count + len(given), size))
    taken = np.zeros(size, dtype=bool)
    worth, order, worths = 0.0, list[int](), list[float]()
    for step in range(count + len(given)):
        gains = np.where(taken, -np.inf, relevance + np.log(np.maximum(left, _NOTHING_NEW)))
        best = given[step] if step < len(given) else int(np.argmax(gains))
        worth += float(gains[best])
        if step >= len(given):
            order.append(best)
            worths.append(worth)
        taken[best] = True
        row = (kernel[best] - factors[:step, best] @ factors[:step]) / np.sqrt(max(left[best], _NOTHING_NEW))
        if left[best] > _NOTHING_NEW:  # a look that is there already adds nothing to the rest
            factors[step] = row
            left = left - row**2
    return order, worths


def _multi_gaussian(a: Floats, b: Floats, widths: tuple[float, ...]) -> Floats:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :]
    distances = np.maximum(0.0, squares - 2 * a @ b.T)
    kernel: Floats = sum((np.exp(-distances / (2 * width)) for width in widths), np.zeros_like(distances))
    return kernel


def facility_location(scores: Floats, similarity: Floats, count: int, *, alpha: float, beta: float) -> Ints:
    """Greedy α·Σ relevance + β·mean over candidates of the best similarity to a chosen one.

    similarity: (n, n). Positions in the order in which they are taken, so prefixes nest; ties go to the
    earlier.
    """
    best = np.zeros(len(scores))
    chosen: list[int] = []
    open_places = np.ones(len(scores), dtype=bool)
    for _ in range(min(count, len(scores))):
        gains = alpha * scores + beta * (np.maximum(similarity, best[:, None]).mean(axis=0) - best.mean())
        pick = int(np.argmax(np.where(open_places, gains, -np.inf)))
        chosen.append(pick)
        open_places[pick] = False
        best = np.maximum(best, similarity[:, pick])
    return np.array(chosen, dtype=np.int64)
