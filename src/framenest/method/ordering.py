"""Ranking rules: put candidates in order, and explain each choice. A rule is one object in RULES."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from framenest.config import RankingConfig
from framenest.frames import Doubles, Floats, Ints, Mask
from framenest.method.cues import similarity_rows
from framenest.method.ranking import CandidatePool


class Order(NamedTuple):
    """(M,) positions in the pool, best first; and the terms of each choice, (M,) by rank, by name."""

    order: Ints
    terms: dict[str, Doubles]


@dataclass(frozen=True)
class Term:
    """A number that a rule gives to every rank.

    label: a short heading for tables; about: one sentence for people; is_rank: the number is another frame's
    rank, or 0 for none.
    """

    name: str
    label: str
    about: str
    is_rank: bool = False


class UtilityPart(NamedTuple):
    """One summand or factor of the utility.

    name: for people, and the style of its bar on the page; about: one sentence for people, empty for
    evidence, which the page explains; values: (M,) by rank; weights: (M,) by rank, None for a factor.
    """

    name: str
    about: str
    values: Doubles
    weights: Doubles | None = None


UTILITY = Term(
    "utility", "utility", "What the ranking maximises: the frame with the highest utility comes next."
)


def evidence_weight(rank: int, config: RankingConfig, horizon: int) -> float:
    """Eq. weights: w_e(k) = w_e− + (w_e+ − w_e−)·[1 − (k/M)^γ].

    >>> evidence_weight(128, RankingConfig(), horizon=256)
    0.4
    """
    low, high = config.evidence_weight_end, config.evidence_weight_start
    return float(low + (high - low) * (1.0 - (rank / horizon) ** config.gamma))


def coverage(nearest: Doubles, num_frames: int, rank: int) -> Doubles:
    """Eq. coverage: H_n(k) = min(1, nearest / (N/k)), nearest = frames to the nearest chosen one. (n,)."""
    return np.minimum(1.0, nearest / (num_frames / rank))


def diversity(similarity: Doubles) -> Doubles:
    """Eq. diversity: D_n(k) = 1 − similarity to the most similar chosen frame. (n,)."""
    return 1.0 - similarity


def choose(utility: Doubles, before: Ints, spoken: Mask | None) -> int:
    """The position of the next rank: the highest utility; ties go to the earlier frame.

    Rank 3 is a frame of the passage that answers the question, unless rank 1 or 2 is one.

    utility: (n,), −inf for those already ranked; before: (k,) positions of the ranks so far;
    spoken: (n,) the frames of that passage, all False or None if no passage answers the question.

    >>> choose(np.array([-np.inf, -np.inf, 0.9, 0.1]), np.array([0, 1]), np.arange(4) == 3)
    3
    """
    if spoken is not None and len(before) == 2 and spoken.any() and not spoken[before].any():
        utility = np.where(spoken, utility, -np.inf)
    return int(utility.argmax())


def greedy(
    frames: Ints,
    evidence: Floats,
    appearance: Floats,
    num_frames: int,
    config: RankingConfig,
    spoken: Mask | None = None,
) -> Order:
    """Algorithm 1: rank the candidates; each choice depends only on those before it.

    The order has length M = min(horizon, n), over which the weights shift. Before rank 1 no frame is chosen:
    its coverage and diversity are 1, its utility is its evidence. Ties go to the earlier frame (argmax takes
    the first).

    frames: (n,) ascending; evidence: (n,) E; appearance: (n, d) unit vectors; num_frames: N;
    spoken: as for `choose`.
    """
    size = len(frames)
    horizon = min(config.horizon, size)
    places = frames.astype(np.float64)
    worth = evidence.astype(np.float64)
    similarities = similarity_rows(appearance)

    order = np.empty(horizon, dtype=np.int64)
    terms = np.ones((3, horizon))
    chosen = int(np.argmax(worth))
    order[0], terms[2, 0] = chosen, worth[chosen]
    nearest = np.abs(places - places[chosen])
    similarity = similarities(chosen).copy()
    taken = np.zeros(size)
    taken[chosen] = -np.inf
    covered = np.zeros(size)

    for place in range(1, horizon):
        weight = evidence_weight(place + 1, config, horizon)
        if config.coverage_term:
            covered = coverage(nearest, num_frames, place + 1)
        diverse = diversity(similarity)
        utility = (
            weight * worth
            + (1.0 - weight - config.diversity_weight) * covered
            + (config.diversity_weight * diverse)
        )
        chosen = choose(utility + taken, order[:place], spoken)
        order[place] = chosen
        terms[:, place] = covered[chosen], diverse[chosen], utility[chosen]
        taken[chosen] = -np.inf
        np.minimum(nearest, np.abs(places - places[chosen]), out=nearest)
        np.maximum(similarity, similarities(chosen), out=similarity)
    return Order(order, dict(zip(("coverage", "diversity", "utility"), terms, strict=True)))


class PaperRule:
    """The paper's weighted sum of evidence, coverage and diversity.

    As of every rule, joins: how the parts make up the utility, as a "sum" or a "product"; terms: those of
    each choice, in the order of `Order.terms`.
    """

    name = "paper"
    joins = "sum"
    terms = (
        Term("coverage", "cover.", "How far the frame is in time from every frame with a better rank."),
        Term("diversity", "divers.", "How different the frame looks from every frame with a better rank."),
        UTILITY,
    )

    def order(self, pool: CandidatePool, appearance: Floats, blank: Mask, spoken: Mask) -> Order:
        """Rank the candidates of a pool by its settings.

        appearance: (n, d) unit vectors. blank: (n,) frames that show nothing. spoken: as for `choose`.
        """
        return greedy(pool.frames, pool.evidence, appearance, pool.num_frames, pool.config.ranking, spoken)

    def parts(
        self, evidence: Doubles, terms: Mapping[str, Doubles], config: RankingConfig
    ) -> list[UtilityPart]:
        """What makes up the utility of every rank. evidence: (M,) by rank."""
        horizon = len(evidence)
        on_evidence = np.array([evidence_weight(rank, config, horizon) for rank in range(1, horizon + 1)])
        on_coverage = (1.0 - on_evidence - config.diversity_weight) * config.coverage_term
        on_diversity = np.full(horizon, config.diversity_weight)
        on_evidence[0], on_coverage[0], on_diversity[0] = 1.0, 0.0, 0.0  # the first rank has only evidence
        parts = [UtilityPart("evidence", "", evidence, on_evidence)]
        for term, weights in zip(self.terms[:2], (on_coverage, on_diversity), strict=True):
            parts.append(UtilityPart(term.name, term.about, terms[term.name], weights))
        return parts


def still_on(distance: Doubles, shortest: float, longest: float) -> Doubles:
    """κ_t: the probability that an event seen at one moment is still on at another.

    Events last between a (shortest) and b (longest) seconds, spread log-uniformly. With L = ln(b/a):
    1 − d(1/a − 1/b)/L for d < a, (ln(b/d) − 1 + d/b)/L for a ≤ d < b, 0 beyond.
    distance: (n,) seconds between the two moments, 0 or more.

    >>> still_on(np.array([0.0, 1.0, 4.0]), 1.0, 4.0).round(3).tolist()
    [1.0, 0.459, 0.0]
    """
    raised = np.maximum(distance, shortest)
    within = np.minimum(raised, longest)
    chance = within * (1 / longest) - np.log(within) + (math.log(longest) - 1.0)  # 0 at the longest
    chance += (raised - distance) * (1 / shortest - 1 / longest)  # linear below the shortest
    return np.asarray(chance / math.log(longest / shortest))


LEAST_RELEVANCE = 1e-6  # relevance below this counts as this, so that the depth of a dip is defined
AFTER_ALL = -1e6  # added to the utility of frames that show nothing
IDENTICAL_LOOK = 0.9  # the probability that two identical images show the same thing


def no_dip(relevance: Doubles, chosen: int) -> Doubles:
    """r_nm: the lowest relevance between each frame and the chosen one, as a share of the lower of the two.

    relevance: (n,) in time order, more than 0; chosen: position of m. Returns (n,) in (0, 1]; 1 if relevance
    does not dip between the two.

    >>> no_dip(np.array([0.8, 0.2, 0.4]), 0).tolist()
    [1.0, 1.0, 0.5]
    """
    lowest = np.empty_like(relevance)
    np.minimum.accumulate(relevance[chosen:], out=lowest[chosen:])
    np.minimum.accumulate(relevance[chosen::-1], out=lowest[chosen::-1])
    lowest /= np.minimum(relevance, relevance[chosen])
    return lowest


def same_event(seconds: Doubles, relevance: Doubles, chosen: int, config: RankingConfig) -> Doubles:
    """κ_nm: the chance that each frame shows the same event as the chosen one, or the same scene. (n,).

    A scene lasts longer than an event, and ends where relevance dips.
    """
    distance = np.abs(seconds - seconds[chosen])
    event = still_on(distance, config.event_shortest, config.event_longest)
    scene = still_on(distance, config.scene_shortest, config.scene_longest) * no_dip(relevance, chosen)
    return np.maximum(event, scene)


def same_look(similarity: Doubles, least: float) -> Doubles:
    """κ_a = 0.9 · clip((s − s₀)/(1 − s₀), 0, 1): the same image shows the same thing. (n,)."""
    return IDENTICAL_LOOK * np.minimum(np.maximum(similarity - least, 0.0) * (1 / (1.0 - least)), 1.0)


def residual(
    seconds: Doubles,
    relevance: Floats,
    evidence: Floats,
    appearance: Floats,
    config: RankingConfig,
    blank: Mask | None = None,
    spoken: Mask | None = None,
) -> Order:
    """Rank the candidates by the evidence that no earlier rank shows; ties go to the earlier frame.

    seconds: (n,) ascending; relevance: (n,) the scorer's; evidence: (n,) E; appearance: (n, d) unit vectors;
    blank: (n,) frames that show nothing, which come after all others, if there are others; spoken: as for
    `choose`. The terms are those of `ResidualRule`; the order has length M = min(horizon, n).
    """
    size = len(seconds)
    horizon = min(config.horizon, size)
    floor = np.maximum(relevance.astype(np.float64), LEAST_RELEVANCE)
    worth = evidence.astype(np.float64) + config.evidence_floor
    similarities = similarity_rows(appearance)
    longest = max(config.event_longest, config.scene_longest)
    first = np.searchsorted(seconds, seconds - longest, side="left").tolist()
    end = np.searchsorted(seconds, seconds + longest, side="right").tolist()
    new_event, new_look = np.ones(size), np.ones(size)
    taken = np.zeros(size)
    if blank is not None and not blank.all():
        taken[blank] = AFTER_ALL
    order = np.empty(horizon, dtype=np.int64)
    terms = np.zeros((4, horizon))
    shares = np.zeros((horizon, size))
    for place in range(horizon):
        utility = worth * new_event
        utility *= new_look
        chosen = choose(utility + taken, order[:place], spoken)
        order[place] = chosen
        terms[:, place] = 1.0 - new_event[chosen], 1.0 - new_look[chosen], 0.0, utility[chosen]
        taken[chosen] = -np.inf
        near = slice(first[chosen], end[chosen])  # an event reaches no further
        event = same_event(seconds[near], floor[near], chosen - near.start, config)
        shares[place, near] = event
        left = new_event[near]
        np.minimum(left, np.subtract(1.0, event, out=event), out=left)
        similarity = similarities(chosen)
        if np.count_nonzero(similarity > config.same_look_from) > 1:  # other than itself
            look = same_look(similarity, config.same_look_from)
            np.maximum(shares[place], look, out=shares[place])
            np.minimum(new_look, 1.0 - look, out=new_look)
    before = np.tril(shares[:, order].T, -1)  # how much of each rank every rank before it shows
    terms[2] = np.where(before.max(axis=1) > 0, before.argmax(axis=1) + 1.0, 0.0)
    return Order(order, dict(zip(("same_event", "same_look", "shown_by", "utility"), terms, strict=True)))


class ResidualRule:
    """Evidence that no chosen frame shows yet."""

    name = "residual"
    joins = "product"
    terms = (
        Term(
            "same_event",
            "event",
            "The share of its evidence that a better-ranked frame near in time already shows.",
        ),
        Term(
            "same_look",
            "look",
            "The share of its evidence that a better-ranked frame with the same look already shows.",
        ),
        Term(
            "shown_by",
            "by",
            "The rank of the frame that already shows most of its evidence; 0 if none does.",
            is_rank=True,
        ),
        UTILITY,
    )

    def order(self, pool: CandidatePool, appearance: Floats, blank: Mask, spoken: Mask) -> Order:
        relevance, config = pool.cues["relevance"], pool.config.ranking
        return residual(pool.seconds, relevance, pool.evidence, appearance, config, blank, spoken)

    def parts(
        self, evidence: Doubles, terms: Mapping[str, Doubles], config: RankingConfig
    ) -> list[UtilityPart]:
        floor = config.evidence_floor
        added = "Its evidence, plus a little that every frame gets."
        event = "The share of its evidence that no better-ranked frame near in time shows."
        look = "The share of its evidence that no better-ranked frame with the same look shows."
        return [
            UtilityPart(f"evidence + {floor:g}", added, evidence + floor),
            UtilityPart("event not shown yet", event, 1.0 - terms["same_event"]),
            UtilityPart("look not shown yet", look, 1.0 - terms["same_look"]),
        ]


RULES: dict[str, PaperRule | ResidualRule] = {"paper": PaperRule(), "residual": ResidualRule()}
"""Every rule by its name. The printer and the page know no rule by name: a rule describes itself."""
