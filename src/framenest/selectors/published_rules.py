"""The rivals' selection rules, pinned to golden vectors."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

import numpy as np

from framenest.frames import Doubles, Ints


def top_k(scores: Doubles, count: int) -> Ints:
    """The highest scores, best first; ties go to the earlier."""
    return np.argsort(-scores, kind="stable")[:count].astype(np.int64)


def min_gap(seconds: Doubles, evidence: Doubles, count: int, *, gap: float = 10.0) -> Ints:
    """The best evidence first, never within `gap` seconds of a chosen frame.

    If no candidate is left, the gap is halved. seconds, evidence: (n,) in time order. Returns positions in
    the order in which they are taken, so prefixes nest; ties go to the earlier.

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
            gap = gap / 2 if gap > NO_GAP else 0.0
            continue
        chosen.append(best)
        left[best] = -np.inf
        np.minimum(nearest, np.abs(seconds - seconds[best]), out=nearest)
    return np.array(chosen, dtype=np.int64)


NO_GAP = 1e-3  # seconds; a smaller gap becomes 0, so that all frames with the same time are finally taken


def aks(scores: Doubles, count: int, *, depth: int = 5, threshold: float = 0.8) -> Ints:
    """Adaptive Keyframe Sampling: split in halves until a part's best frames stand out, then take the best.

    Scores are min-max normalised. A part is split while mean(best K) − mean ≤ threshold and `depth` is not
    reached; a part at depth d gives its ⌊K/2^d⌋ best. As published, that is nothing at depth 5 for K < 32.
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
        best = np.sort(part)[::-1][:count]
        stands_out = len(part) > 0 and best.mean() - part.mean() > threshold
        if level < depth and not stands_out:
            middle = start + (end - start) // 2
            parts += [(start, middle, level + 1), (middle, end, level + 1)]
        else:
            chosen += (start + top_k(part, count // 2**level)).tolist()
    return np.array(sorted(chosen), dtype=np.int64)


def bolt(scores: Doubles, count: int, *, power: float = 3.0) -> Ints:
    """BOLT: inverse transform sampling of min-max scores raised to a power; −1 leaves them as they are.

    Ascending, duplicates possible; constant scores give all zeros, as in the released code.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        normal = (scores - scores.min()) / (scores.max() - scores.min())
        weights = normal if power == -1 else normal**power
        cumulative = np.cumsum(weights / weights.sum())
    points = np.linspace(1 / count, 1 - 1 / count, count)
    positions: Ints = np.searchsorted(cumulative, points, side="left").astype(np.int64)
    return positions


# MDP3's λ, and the widths α of its kernel.
MDP3_WEIGHT = 0.2
WIDTHS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
_NOTHING_NEW = 1e-10


def mdp3(frames: Doubles, text: Doubles, count: int) -> Ints:
    """MDP3 with the whole video as one segment: greedy MAP of a determinantal point process.

    frames: (n, d) vectors; text: (d,). Kernel k(a, b) = Σ_α exp(−‖a − b‖² / 2α). The greedy step adds
    the frame with the largest gain of (2/λ)·Σ log k(q, i) + log det K, by incremental Cholesky; ties go
    to the earlier. Positions in the order in which they are taken.
    """
    relevance = (2 / MDP3_WEIGHT) * np.log(_multi_gaussian(frames, text[None])[:, 0])
    kernel = _multi_gaussian(frames, frames)
    order, _ = _greedy_determinant(relevance, kernel, min(count, len(frames)))
    return np.array(order, dtype=np.int64)


def mdp3_segments(frames: Doubles, text: Doubles, count: int, segment: int) -> Ints:
    """MDP3 in segments of `segment` candidates: dynamic programming over segments and numbers of frames.

    Each segment applies the greedy rule of `mdp3`, given the last frame chosen before it, whose terms also
    count towards the segment's value. best[k] is the value of k frames from the segments so far; a segment
    adds j frames if that has strictly more value, fewer frames first. The last segment may be shorter (the
    released code needs a multiple of `segment`). Returns positions, ascending.
    """
    size = len(frames)
    count = min(count, size)
    relevance = (2 / MDP3_WEIGHT) * np.log(_multi_gaussian(frames, text[None])[:, 0])
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for start in range(0, size, segment):
        inside = np.arange(start, min(start + segment, size))
        reach = {0: (0.0, list[int]())}
        greedy: dict[int | None, tuple[list[int], list[float]]] = {}  # most prefixes share their last frame
        for before, (worth, chosen) in enumerate(best):
            last = chosen[-1] if chosen else None
            if last not in greedy:
                places = inside if last is None else np.concatenate([[last], inside])
                kernel = _multi_gaussian(frames[places], frames[places])
                order, worths = _greedy_determinant(
                    relevance[places], kernel, min(count, len(inside)), first=None if last is None else 0
                )
                greedy[last] = [int(places[i]) for i in order], worths
            order, worths = greedy[last]
            for more in range(min(len(order), count - before) + 1):
                total = worth + (worths[more - 1] if more else 0.0)
                if before + more not in reach or total > reach[before + more][0]:
                    reach[before + more] = total, chosen + sorted(order[:more])
        best = [reach[number] for number in sorted(reach)]
    return np.array(best[count][1], dtype=np.int64)


def _greedy_determinant(
    relevance: Doubles, kernel: Doubles, count: int, first: int | None = None
) -> tuple[list[int], list[float]]:
    """Greedy maximum of Σ relevance + log det, by incremental Cholesky; ties go to the earlier.

    relevance: (n,); kernel: (n, n). first: a position in the set from the start. Returns `count` other
    positions in the order in which they are taken, and the value of the set after each.
    """
    size = len(relevance)
    left = kernel.diagonal().copy()
    start = [] if first is None else [first]
    factors = np.zeros((count + len(start), size))
    taken = np.zeros(size, dtype=bool)
    worth, order, worths = 0.0, list[int](), list[float]()
    for step in range(count + len(start)):
        gains = np.where(taken, -np.inf, relevance + np.log(np.maximum(left, _NOTHING_NEW)))
        best = start[step] if step < len(start) else int(np.argmax(gains))
        worth += float(gains[best])
        if step >= len(start):
            order.append(best)
            worths.append(worth)
        taken[best] = True
        row = (kernel[best] - factors[:step, best] @ factors[:step]) / np.sqrt(max(left[best], _NOTHING_NEW))
        if left[best] > _NOTHING_NEW:  # a frame that looks like a chosen one adds nothing to the rest
            factors[step] = row
            left = left - row**2
    return order, worths


def _multi_gaussian(a: Doubles, b: Doubles) -> Doubles:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :]
    distances = np.maximum(0.0, squares - 2 * a @ b.T)
    kernel: Doubles = sum((np.exp(-distances / (2 * width)) for width in WIDTHS), np.zeros_like(distances))
    return kernel


def facility_location(scores: Doubles, similarity: Doubles, count: int, *, alpha: float, beta: float) -> Ints:
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


LOW = np.array([
    -0.010597401785069032, 0.0328830116668852, 0.030841381835560764, -0.18703481171909309,
    -0.027983769416859854, 0.6308807679298589, 0.7148465705529157, 0.2303778133088965,
])  # fmt: skip
"""The low-pass filter of the Daubechies wavelet db4."""
HIGH = LOW[::-1] * np.array([-1, 1, -1, 1, -1, 1, -1, 1])
FLAT = 1e-12  # a detail signal with less range than this has no peaks

# The released run's settings.
HEIGHT, PROMINENCE = 0.5, 0.05
DURATION_WEIGHT, MEAN_WEIGHT, MAX_WEIGHT, VARIANCE_WEIGHT = 0.4, 0.2, 0.3, 0.1
STRICTNESS, LEAST_IMPORTANCE = 1.2, 0.05
RELEVANCE_WEIGHT = 0.5


def wfs_sb(scores: Doubles, count: int, features: Doubles | None = None) -> Ints:
    """Positions of `count` candidates, ascending. features: (n, d) frame vectors for diversity, or None.

    Without features, diversity is the distance between positions, as in the authors' code.
    """
    size = len(scores)
    if size <= count:
        return np.arange(size, dtype=np.int64)
    peaks = boundaries(detail(scores, level(size)), max(5, int(0.02 * size)))
    if not len(peaks):
        return without_boundaries(scores, count)
    clips, values = important_clips(scores, [*pairwise([0, *peaks.tolist(), size])])
    merit = 2 * scores - 1
    unit: Doubles | None = None
    if features is not None:
        unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    chosen: list[int] = []
    for clip, quota in zip(clips, share_out(values, count), strict=True):
        chosen += marginal_relevance(merit, np.arange(*clip), quota, [], unit)
    if len(chosen) < count:
        rest = np.delete(np.arange(size), chosen)
        chosen += marginal_relevance(merit, rest, count - len(chosen), chosen, unit)
    return np.array(sorted(chosen), dtype=np.int64)


def level(size: int) -> int:
    """Depth of the decomposition for a signal of this length."""
    most = math.floor(math.log2(size / 7)) if size >= 7 else 0
    return 1 if most <= 1 else int(np.clip(math.floor(math.log2(size) - 3), 1, most))


def detail(signal: Doubles, depth: int) -> Doubles:
    """The absolute coarsest detail of the signal: everything else zeroed, transformed back. (n,)."""
    sizes, current = [], signal.astype(np.float64)
    coarsest = np.zeros(0)
    for _ in range(depth):
        sizes.append(len(current))
        current, coarsest = _analyse(current)
    rebuilt = _synthesise(coarsest, HIGH)
    for size in reversed(sizes[1:]):
        rebuilt = _synthesise(rebuilt[:size], LOW)
    return np.abs(rebuilt[: len(signal)])


def _analyse(signal: Doubles) -> tuple[Doubles, Doubles]:
    """One level: (approximation, detail), half-sample symmetric at the ends."""
    taps = len(LOW)
    extended = np.pad(signal, taps - 1, mode="symmetric")
    count = (len(signal) + taps - 1) // 2
    low, high = (np.convolve(extended, filter_)[taps::2][:count] for filter_ in (LOW, HIGH))
    return low, high


def _synthesise(values: Doubles, taps: Doubles) -> Doubles:
    """One level back: 2L − 6 samples from L coefficients of one filter, the other's being zero."""
    spread = np.zeros(2 * len(values))
    spread[::2] = values
    return np.convolve(spread, taps[::-1])[len(LOW) - 2 :][: 2 * len(values) - len(LOW) + 2]


def boundaries(signal: Doubles, distance: int) -> Ints:
    """Peaks of the detail signal that are high and prominent enough, at least `distance` apart."""
    spread = float(np.ptp(signal))
    if spread < FLAT:
        return np.zeros(0, dtype=np.int64)
    height = signal.mean() + HEIGHT * signal.std()
    peaks = [i for i in _local_maxima(signal) if signal[i] >= height]
    peaks = _far_apart(signal, peaks, distance)
    least = PROMINENCE * spread
    return np.array([i for i in peaks if _prominence(signal, i) >= least], dtype=np.int64)


def _local_maxima(signal: Doubles) -> list[int]:
    """Strict maxima; for a flat top, its middle."""
    maxima, last = [], len(signal) - 1
    values = signal.tolist()
    for i in (np.flatnonzero(signal[:-2] < signal[1:-1]) + 1).tolist():
        ahead = i + 1
        while ahead < last and values[ahead] == values[i]:
            ahead += 1
        if values[ahead] < values[i]:
            maxima.append((i + ahead - 1) // 2)
    return maxima


def _far_apart(signal: Doubles, peaks: list[int], distance: int) -> list[int]:
    """The highest peaks, none closer than `distance` to a higher one."""
    peaks_apart: list[int] = []
    for peak in sorted(peaks, key=lambda p: (signal[p], p), reverse=True):
        if all(abs(other - peak) >= distance for other in peaks_apart):
            peaks_apart.append(peak)
    return sorted(peaks_apart)


def _prominence(signal: Doubles, peak: int) -> float:
    """How far one must go down from a peak before a higher one can be reached."""
    height = signal[peak]
    lowest = []
    for side in (signal[peak::-1], signal[peak:]):
        higher = np.flatnonzero(side > height)
        lowest.append(side[: higher[0] if len(higher) else len(side)].min())
    return float(height - max(lowest))


def without_boundaries(scores: Doubles, count: int) -> Ints:
    """Half of the budget spread evenly, the rest on the best of the others; ties go to the earlier."""
    spread = np.unique(np.linspace(0, len(scores) - 1, count // 2, dtype=np.int64))
    best = top_k(scores, len(scores))
    others = best[~np.isin(best, spread)]
    return np.sort(np.concatenate([spread, others[: count - count // 2]]))


def important_clips(scores: Doubles, clips: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], Doubles]:
    """Clips with their importance: length, mean, maximum and variance, weighted.

    Of more than three clips, those far below the mean are dropped, unless none would be left.
    """
    parts, whole = [scores[a:b] for a, b in clips], scores.var() + 1e-8
    values = np.array(
        [
            DURATION_WEIGHT * len(part) / len(scores)
            + MEAN_WEIGHT * part.mean()
            + MAX_WEIGHT * part.max()
            + VARIANCE_WEIGHT * part.var() / whole
            for part in parts
        ]
    )
    kept = values >= max(LEAST_IMPORTANCE, values.mean() - STRICTNESS * values.std())
    if len(clips) <= 3 or not kept.any():
        return clips, values
    return [clip for clip, keep in zip(clips, kept, strict=True) if keep], values[kept]


def share_out(values: Doubles, count: int) -> list[int]:
    """Integer quotas by softmax; the rest goes to the largest fractions, ties to the later."""
    powers = np.exp(values - values.max())
    exact = powers / powers.sum() * count
    quotas = np.floor(exact).astype(int)
    for place in np.argsort(exact - quotas, kind="stable")[::-1][: count - int(quotas.sum())]:
        quotas[place] += 1
    return [int(q) for q in quotas]


def marginal_relevance(
    merit: Doubles, candidates: Ints, count: int, chosen: list[int], unit: Doubles | None
) -> list[int]:
    """Up to `count` candidates, each the best by merit less similarity to those chosen before.

    Similarity is the cosine of the features, or nearness in time without them; ties go to the earlier.
    """
    nearness = np.exp(-np.arange(len(merit)) / 10)  # by distance
    mine = None if unit is None else unit[candidates]

    def similarity(other: int) -> Doubles:
        if unit is None or mine is None:
            return nearness[np.abs(candidates - other)]
        cosines: Doubles = mine @ unit[other]
        return cosines

    picked: list[int] = []
    worth = RELEVANCE_WEIGHT * merit[candidates]
    nearest = np.full(len(candidates), -np.inf)
    for other in chosen:
        np.maximum(nearest, similarity(other), out=nearest)
    while len(picked) < min(count, len(candidates)):
        alone = not (chosen or picked)
        values = merit[candidates] if alone else worth - (1 - RELEVANCE_WEIGHT) * nearest
        place = int(values.argmax())
        picked.append(int(candidates[place]))
        worth[place] = -np.inf  # taken
        np.maximum(nearest, similarity(picked[-1]), out=nearest)
    return picked
