"""The rule `residual`: evidence that no chosen frame shows yet."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from framenest.config import RankingConfig
from framenest.method.cues import look_alike_rows
from framenest.method.greedy import Floats, Greedy


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


LEAST = 1e-6
"""Relevance below this counts as this, so that the depth of a dip is defined."""
SAME_LOOK = 0.9
"""How sure two identical pictures make that they show the same thing."""


def no_dip(relevance: Floats, chosen: int) -> Floats:
    """r_nm: the lowest relevance between each frame and the chosen one, as a share of the lower of the two.

    Args:
        relevance: (n,) in time order, more than 0.
        chosen: position of m.

    Returns:
        (n,) in (0, 1]; 1 where relevance does not dip between the two.

    >>> no_dip(np.array([0.8, 0.2, 0.4]), 0).tolist()
    [1.0, 1.0, 0.5]
    """
    lowest = np.empty_like(relevance)
    np.minimum.accumulate(relevance[chosen:], out=lowest[chosen:])
    np.minimum.accumulate(relevance[chosen::-1], out=lowest[chosen::-1])
    lowest /= np.minimum(relevance, relevance[chosen])
    return lowest


def same_event(seconds: Floats, relevance: Floats, chosen: int, durations: Durations) -> Floats:
    """κ_nm: the chance that each frame shows the same event as the chosen one. (n,).

    durations: of events, and of scenes, which end where relevance dips.
    """
    distance = seconds - seconds[chosen]
    event, scene = durations.still_on(np.abs(distance, out=distance))
    scene *= no_dip(relevance, chosen)
    either: Floats = np.maximum(event, scene, out=event)
    return either


def same_look(similarity: Floats, least: float) -> Floats:
    """κ_a = 0.9 · clip((s − s₀)/(1 − s₀), 0, 1): the same picture shows the same thing. (n,)."""
    return SAME_LOOK * np.minimum(np.maximum(similarity - least, 0.0) * (1 / (1.0 - least)), 1.0)


def residual(
    seconds: NDArray[np.float64],
    relevance: NDArray[np.float32],
    evidence: NDArray[np.float32],
    appearance: NDArray[np.float32],
    config: RankingConfig,
) -> Greedy:
    """Rank the candidates by the evidence that the frames before do not show.

    Args:
        seconds: (n,) ascending.
        relevance: (n,) the scorer's relevance.
        evidence: (n,) E, or (m, n) rows that take turns.
        appearance: (n, d) unit vectors.
        config: the horizon and the constants of the rule.

    Returns:
        The order, M = min(horizon, n) long, and by rank: `same_event` and `same_look`, the shares of it
        that are shown already; `shown_by`, the rank that shows most of it (0: none does); `utility`. Ties
        go to the earlier frame.
    """
    size = len(seconds)
    horizon = min(config.horizon, size)
    floor = np.maximum(relevance.astype(np.float64), LEAST)
    worths = np.atleast_2d(evidence).astype(np.float64) + config.evidence_floor
    similarities = look_alike_rows(appearance, config.same_look_from)
    durations = Durations(
        (config.event_shortest, config.event_longest), (config.scene_shortest, config.scene_longest)
    )
    longest = max(config.event_longest, config.scene_longest)
    first = np.searchsorted(seconds, seconds - longest, side="left").tolist()
    end = np.searchsorted(seconds, seconds + longest, side="right").tolist()
    new_event, new_look, taken = np.ones(size), np.ones(size), np.zeros(size)
    order = np.empty(horizon, dtype=np.int64)
    event_left, look_left, utilities = np.empty(horizon), np.empty(horizon), np.empty(horizon)
    shares = np.zeros((horizon, size))
    for place in range(horizon):
        utility = worths[place % len(worths)] * new_event
        utility *= new_look
        chosen = int((utility + taken).argmax())
        order[place] = chosen
        event_left[place], look_left[place] = new_event[chosen], new_look[chosen]
        utilities[place] = utility[chosen]
        taken[chosen] = -np.inf
        near = slice(first[chosen], end[chosen])  # an event reaches no further
        event = same_event(seconds[near], floor[near], chosen - near.start, durations)
        shares[place, near] = event
        left = new_event[near]
        np.minimum(left, np.subtract(1.0, event, out=event), out=left)
        similarity = similarities(chosen)
        if np.count_nonzero(similarity > config.same_look_from) > 1:  # another one than itself
            look = same_look(similarity, config.same_look_from)
            np.maximum(shares[place], look, out=shares[place])
            np.minimum(new_look, 1.0 - look, out=new_look)
    terms = {
        "same_event": 1.0 - event_left,
        "same_look": 1.0 - look_left,
        "shown_by": _shown_by(shares[:, order]),
        "utility": utilities,
    }
    return Greedy(order, terms)


def _shown_by(shares: Floats) -> Floats:
    """(M,) the rank before each one that shows most of it; 0 where none shows anything. shares: (M, M)."""
    before = np.tril(shares.T, -1)
    most = before.argmax(axis=1)
    shown: Floats = np.where(before[np.arange(len(most)), most] > 0, most + 1.0, 0.0)
    return shown
