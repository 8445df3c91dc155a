"""The selectors that come with Framenest: MEC, two simple ones, and published rules."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from framenest.config import MECConfig
from framenest.method import appearance
from framenest.method.look_for import LookFor
from framenest.method.mec import MEC
from framenest.method.prefix import Prefix
from framenest.method.probes import probe_grid
from framenest.method.ranking import Ranking
from framenest.protocols import Decoder
from framenest.selectors import selection_rules as rules
from framenest.selectors.rule_selector import RuleSelector
from framenest.selectors.scored_candidates import (
    Ints,
    ScoredCandidates,
    even_frames,
    nearest_seconds,
    thinned_seconds,
    whole_seconds,
)
from framenest.selectors.selection import Selection, check_budgets, prefix_of, ranked_prefix
from framenest.selectors.wavelet_rule import wfs_sb
from framenest.session import Session, Video


class MecSelector:
    """MEC, at the paper's settings unless told otherwise: ranked once, every budget a prefix."""

    name = "mec"

    def __init__(self, session: Session, config: MECConfig | None = None) -> None:
        self._mec = MEC(config, session=session)

    def rank(self, video: Video, question: str | None, look_for: LookFor | Sequence[str] = ()) -> Ranking:
        """The ranking that serves every budget."""
        return self._mec.rank(video, question, look_for=look_for)

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """A prefix of one ranking for each budget."""
        began = time.perf_counter()
        ranking = self.rank(video, question)
        prefixes = {budget: ranking.prefix(budget) for budget in check_budgets(budgets)}
        stats = ranking.stats.to_json() | {"wall_seconds": time.perf_counter() - began, "runs": 1}
        return Selection(ranking.video, question, self.name, ranking.scorer, prefixes, stats)


class MinGapSelector:
    """MEC's own candidates by evidence alone, kept apart in time: a simple rule to measure MEC against."""

    name = "min-gap"

    def __init__(self, session: Session) -> None:
        self._session = session

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """A prefix of one order for each budget."""
        budgets = check_budgets(budgets)
        began = time.perf_counter()
        decoder = self._session.open(video)
        mec = MEC(session=self._session)
        pool = mec.discover(mec.index(decoder), question)
        order = rules.min_gap(pool.seconds, pool.evidence.astype(np.float64), max(budgets))
        prefixes = {budget: ranked_prefix(decoder, budget, pool.frames, order) for budget in budgets}
        stats = pool.stats.to_json() | {"wall_seconds": time.perf_counter() - began, "runs": 1}
        return Selection(decoder.info, question, self.name, pool.scorer, prefixes, stats)


class UniformSelector:
    """K frames spread evenly, both ends included; looks at nothing."""

    name = "uniform"

    def __init__(self, session: Session) -> None:
        self._session = session

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """The same frames whatever the question."""
        began = time.perf_counter()
        decoder = self._session.open(video)
        total = decoder.info.num_frames
        prefixes = {
            budget: prefix_of(decoder, budget, probe_grid(0, total - 1, min(budget, total)))
            for budget in check_budgets(budgets)
        }
        stats = {"candidates": 0, "runs": len(prefixes), "wall_seconds": time.perf_counter() - began}
        return Selection(decoder.info, question, self.name, "none", prefixes, stats)


class TopKSelector(RuleSelector):
    """The K most relevant frames of a 1 fps grid."""

    name = "top-k"
    ranks = True

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return rules.top_k(scored.scores, budget)


class AksSelector(RuleSelector):
    """Adaptive Keyframe Sampling, its depth capped at ⌊log2 K⌋, topped up to exactly K."""

    name = "aks"
    grid = staticmethod(whole_seconds)

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return rules.aks(scored.scores, budget, depth=min(5, int(math.log2(budget))))


class AksReleasedSelector(AksSelector):
    """Adaptive Keyframe Sampling as published: depth 5, lists as short as they come."""

    name = "aks-released"
    exact = False
    short_because = (
        "as published, a video whose best frames do not stand out is cut into 32 parts, and each gives "
        "⌊K/32⌋ frames, none below K = 32; the selector aks always gives K"
    )

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return rules.aks(scored.scores, budget)


class WaveletSelector(RuleSelector):
    """WFS-SB: clips between wavelet boundaries, marginal relevance inside.

    As released, a video with fewer candidates than K gives K frames spread evenly over all its frames,
    whatever their scores.
    """

    name = "wfs-sb"
    without_vectors = "distance in time"

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return wfs_sb(scored.scores, budget, scored.vectors)

    def _prefix(self, decoder: Decoder, scored: ScoredCandidates, order: Ints | None, budget: int) -> Prefix:
        total = decoder.info.num_frames
        if len(scored.frames) < budget:
            return prefix_of(decoder, budget, even_frames(total, min(budget, total)))
        return super()._prefix(decoder, scored, order, budget)


class BoltSelector(RuleSelector):
    """BOLT: inverse transform sampling of the relevance."""

    name = "bolt"
    grid = staticmethod(nearest_seconds)

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return rules.bolt(scored.scores, budget)


class Mdp3Selector(RuleSelector):
    """MDP3 with the whole video as one segment."""

    name = "mdp3"
    grid = staticmethod(thinned_seconds)
    needs_vectors = True
    ranks = True

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        assert scored.vectors is not None
        assert scored.text is not None
        return rules.mdp3(scored.vectors, scored.text, budget)


class Mdp3SegmentsSelector(RuleSelector):
    """MDP3 as its authors' own release has it: segments of 32 candidates, of 128 for K above 32."""

    name = "mdp3-segments"
    grid = staticmethod(thinned_seconds)
    needs_vectors = True

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        assert scored.vectors is not None
        assert scored.text is not None
        return rules.mdp3_segments(scored.vectors, scored.text, budget, 32 if budget <= 32 else 128)


class FacilityLocationSelector(RuleSelector):
    """Relevance plus how well the chosen frames stand for all of them, greedily."""

    name = "facility-location"
    grid = staticmethod(thinned_seconds)
    without_vectors = "thumbnails"
    ranks = True

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        found = appearance.encode(scored.thumbnails) if scored.vectors is None else scored.vectors
        looks = found.astype(np.float64)
        return rules.facility_location(scored.scores, looks @ looks.T, budget, alpha=0.5, beta=1.0)
