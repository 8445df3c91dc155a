"""Durations: the chance that what is seen at one moment is still on at another."""

from __future__ import annotations

import math

import numpy as np

from framenest.method.greedy import Floats


class Durations:
    """How long events last: spread log-uniformly over [a, b] seconds, for one kind of event or for several.

    Args:
        bounds: a and b of each kind.

    >>> Durations((1.0, 4.0)).still_on(np.array([0.0, 1.0, 4.0])).round(3).tolist()
    [[1.0, 0.459, 0.0]]
    """

    def __init__(self, *bounds: tuple[float, float]) -> None:
        self._shortest, self._longest = np.array(bounds, dtype=np.float64).T[:, :, None]
        self._rate = 1 / self._longest
        self._slope = 1 / self._shortest - self._rate
        self._offset = np.array([[math.log(b) - 1.0] for _, b in bounds])
        self._span = np.array([[math.log(b / a)] for a, b in bounds])

    def still_on(self, distance: Floats) -> Floats:
        """κ_t: the probability that an event seen at one moment is still on at another.

        With L = ln(b/a): 1 − d(1/a − 1/b)/L for d < a, (ln(b/d) − 1 + d/b)/L for a ≤ d < b, 0 beyond.

        Args:
            distance: (n,) seconds between the two moments, 0 or more.

        Returns:
            (kinds, n).
        """
        raised = np.maximum(distance, self._shortest)
        within = np.minimum(raised, self._longest)
        chance: Floats = within * self._rate
        chance -= np.log(within, out=within)
        chance += self._offset  # now 0 at the longest
        raised -= distance
        raised *= self._slope  # linear below the shortest
        chance += raised
        chance /= self._span
        return chance
