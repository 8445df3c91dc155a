"""A second pass: the best candidates of a cheap scorer, judged again by a better one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def refine(
    relevance: NDArray[np.float32], again: NDArray[np.int64], judged: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Relevance (n,) with the candidates at positions `again` (k,) replaced by what was `judged` (k,).

    The others keep theirs, but at most the lowest judged: what the second pass did not look at never
    stands above what it did.

    >>> refine(np.float32([0.9, 0.8, 0.3, 0.1]), np.array([0, 1]), np.float32([0.2, 0.7])).tolist()
    [0.20000000298023224, 0.699999988079071, 0.20000000298023224, 0.10000000149011612]
    """
    if not len(again):
        return relevance
    result: NDArray[np.float32] = np.minimum(relevance, judged.min())
    result[again] = judged
    return result
