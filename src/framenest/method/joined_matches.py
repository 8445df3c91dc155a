"""How frames match several texts: any of them, or each of them alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def noisy_or(matches: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """(n,) 1 − Π(1 − ρ): how surely a frame matches one of the texts. matches: (n,) each, in [0, 1].

    >>> noisy_or([np.array([0.5, 0.0], np.float32), np.array([0.5, 1.0], np.float32)]).tolist()
    [0.75, 1.0]
    """
    if len(matches) == 1:
        return matches[0]
    missed = np.prod([1.0 - match.astype(np.float64) for match in matches], axis=0)
    return np.asarray(1.0 - missed, dtype=np.float32)


def each_evidence(
    evidence: NDArray[np.float32],
    relevance: NDArray[np.float32],
    matches: Sequence[NDArray[np.float32]],
    weight: float,
) -> NDArray[np.float32]:
    """(m, n) the evidence for each description alone: its own relevance in place of the joined one."""
    rest = evidence.astype(np.float64) - weight * relevance.astype(np.float64)
    return np.stack([rest + weight * match.astype(np.float64) for match in matches]).astype(np.float32)
