"""What every selector does before and after its rule: candidates with scores, and exactly K frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framenest.frames import Pixels
from framenest.method.probes import probe_grid

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POOL = 1000
"""Candidates of the greedy selectors, at the most."""


@dataclass(frozen=True, eq=False)
class ScoredCandidates:
    """Candidates that decoded, with what a rule may look at.

    frames: (n,) int64 ascending; scores: (n,) float64 relevance; thumbnails: (n, h, w, 3) uint8;
    vectors: (n, d) frame vectors and text: (d,), where the scorer has them, else None.
    """

    frames: Ints
    scores: Floats
    thumbnails: Pixels
    vectors: Floats | None = None
    text: Floats | None = None


def every_second(num_frames: int, fps: float) -> Ints:
    """Candidates of WFS-SB and top-k: every ⌊fps⌋-th frame, the first included."""
    return np.arange(0, num_frames, max(1, int(fps)), dtype=np.int64)


def thinned_seconds(num_frames: int, fps: float) -> Ints:
    """Candidates of MDP3 and facility location: the same, thinned evenly to at most POOL."""
    frames = every_second(num_frames, fps)
    return frames if len(frames) <= POOL else frames[probe_grid(0, len(frames) - 1, POOL)]


def whole_seconds(num_frames: int, fps: float) -> Ints:
    """Candidates of AKS: every ⌊fps⌋-th frame, only as many as whole steps fit."""
    step = max(1, int(fps))
    return np.arange(max(1, num_frames // step), dtype=np.int64) * step


def nearest_seconds(num_frames: int, fps: float) -> Ints:
    """Candidates of BOLT: the frame nearest to each whole second."""
    count = max(1, int(num_frames / fps)) if fps > 0 else 1
    return np.unique(np.floor(np.arange(count) * fps + 0.5).astype(np.int64).clip(0, num_frames - 1))


def even_frames(num_frames: int, count: int) -> Ints:
    """`count` frames spread evenly, both ends included, each rounded down: numpy's linspace to integers.

    >>> even_frames(10, 4).tolist()
    [0, 3, 6, 9]
    """
    return np.linspace(0, num_frames - 1, count, dtype=np.int64)


def exactly(positions: Ints, scored: ScoredCandidates, count: int, num_frames: int) -> Ints:
    """Frame numbers of a rule's choice without duplicates, topped up to `count`, ascending.

    First with the best candidates not chosen (ties to the earlier), then, where the candidates run out,
    with frames spread evenly over the video. Fewer only where the video has fewer frames.
    """
    best = np.argsort(-scored.scores, kind="stable")
    inside = positions[(positions >= 0) & (positions < len(scored.frames))]
    chosen = list(dict.fromkeys([*inside.tolist(), *best.tolist()]))[:count]
    frames = set(scored.frames[chosen].tolist())
    wanted = min(count, num_frames)
    density = wanted
    while len(frames) < wanted:
        grid = probe_grid(0, num_frames - 1, min(density, num_frames)).tolist()
        missing = [number for number in grid if number not in frames]
        frames.update(missing[: wanted - len(frames)])
        density *= 2
    return np.array(sorted(frames), dtype=np.int64)
