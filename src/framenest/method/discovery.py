"""Evidence on the probes, the segments worth a closer look, zoom frames, the candidate pool."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import DiscoveryConfig, MECConfig
from framenest.frames import VideoInfo
from framenest.method.probes import interior, segments


def evidence(
    relevance: NDArray[np.float32],
    change: NDArray[np.float32],
    observability: NDArray[np.float32],
    config: DiscoveryConfig,
    text: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Eq. evidence: E_n = λr·ρ_n + λΔ·Δ_n + λo·O_n, and + λt·τ_n where text was read. All (n,)."""
    total = (
        config.relevance_weight * relevance.astype(np.float64)
        + config.change_weight * change.astype(np.float64)
        + config.observability_weight * observability.astype(np.float64)
    )
    if text is not None:
        total = total + config.text_weight * text.astype(np.float64)
    return total.astype(np.float32)


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


@dataclass(frozen=True, eq=False)
class Candidates:
    """All frames that a ranking could choose from, with their cues.

    frames: (n,) int64 ascending; seconds: (n,) float64; is_zoom: (n,) bool; relevance, change,
    observability, evidence: (n,) float32; active: segment numbers; anchors: frame numbers; text: (n,)
    float32 how well text on screen matches the question, None where none was read.
    """

    frames: NDArray[np.int64]
    seconds: NDArray[np.float64]
    is_zoom: NDArray[np.bool_]
    relevance: NDArray[np.float32]
    change: NDArray[np.float32]
    observability: NDArray[np.float32]
    evidence: NDArray[np.float32]
    active: tuple[int, ...]
    anchors: tuple[int, ...]
    text: NDArray[np.float32] | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        zoomed = int(self.is_zoom.sum())
        probes = len(self) - zoomed
        return f"{type(self).__name__}(frames={self.frames.shape}, probes={probes}, zoom={zoomed})"


@dataclass(frozen=True, eq=False, repr=False)
class CandidatePool(Candidates):
    """The candidates of one question, ready to be ranked; appearance: (n, d) float32 unit vectors."""

    video: VideoInfo
    question: str | None
    scorer: str
    config: MECConfig
    num_frames: int
    """N: frames of the video, or of the window that was looked at."""
    appearance: NDArray[np.float32]
    stats: dict[str, Any]
    options: tuple[str, ...] = ()

    @property
    def candidates(self) -> Candidates:
        """Without what only ranking needs."""
        return Candidates(**{f.name: getattr(self, f.name) for f in fields(Candidates)})
