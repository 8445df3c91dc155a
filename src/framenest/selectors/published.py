"""The selectors by name: candidates, a rule, exactly K frames."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from framenest.config import IndexConfig, MECConfig
from framenest.errors import BudgetError, ScorerError
from framenest.frames import VideoInfo
from framenest.method import appearance
from framenest.method.mec import MEC
from framenest.method.prefix import Prefix
from framenest.method.probes import probe_grid
from framenest.protocols import Decoder, Embedder
from framenest.selectors import rules
from framenest.selectors.candidates import (
    Floats,
    Ints,
    ScoredCandidates,
    every_second,
    exactly,
    nearest_seconds,
    whole_seconds,
)
from framenest.selectors.selection import Selection
from framenest.selectors.wavelet import wfs_sb
from framenest.session import Session, Video, scorer_name

THUMBNAIL = IndexConfig().thumbnail
POOL = 1000  # candidates of the greedy selectors, at the most


class MecSelector:
    """MEC, at the paper's settings unless told otherwise: ranked once, every budget a prefix."""

    name = "mec"

    def __init__(self, session: Session, config: MECConfig | None = None) -> None:
        self._mec = MEC(config, session=session)

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        began = time.perf_counter()
        ranking = self._mec.rank(video, question)
        prefixes = {budget: ranking.prefix(budget) for budget in checked(budgets)}
        stats = ranking.stats.to_json() | {"wall_seconds": time.perf_counter() - began, "runs": 1}
        return Selection(ranking.video, question, self.name, ranking.scorer, prefixes, stats)


class UniformSelector:
    """K frames spread evenly, both ends included; looks at nothing."""

    name = "uniform"

    def __init__(self, session: Session) -> None:
        self._workspace = session

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        began = time.perf_counter()
        decoder = self._workspace.open(video)
        total = decoder.info.num_frames
        prefixes = {
            budget: _prefix(decoder, budget, probe_grid(0, total - 1, min(budget, total)))
            for budget in checked(budgets)
        }
        stats = {"candidates": 0, "runs": len(prefixes), "wall_seconds": time.perf_counter() - began}
        return Selection(decoder.info, question, self.name, "none", prefixes, stats)


class RuleSelector(ABC):
    """A published rule on scored candidates."""

    name: str
    needs_vectors = False
    uses_vectors = False
    exact = True
    """Whether duplicates are removed and the choice topped up to exactly K."""
    ranks = False
    """Whether the rule takes frames one after the other, each budget extending the smaller."""

    def __init__(self, session: Session) -> None:
        self._workspace = session

    def candidates(self, video: VideoInfo) -> Ints:
        return every_second(video.num_frames, video.fps)

    def diversity(self, vectors: bool) -> str:
        """What frames are compared by, for selectors that use vectors where there are some."""
        return "the scorer's frame vectors" if vectors else "thumbnails, since the scorer has no vectors"

    @abstractmethod
    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        """Positions among the candidates."""

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        budgets = checked(budgets)
        began = time.perf_counter()
        space = self._workspace
        scorer = space.scorer_for(question)
        if scorer is None:
            raise ScorerError(f"{self.name} chooses by relevance and needs a question")
        if self.needs_vectors and not isinstance(scorer, Embedder):
            raise ScorerError(
                f"{self.name} needs frame and text vectors, which scorer {scorer.name!r} has not"
            )
        decoder = space.open(video)
        cache = space.features(decoder, scorer, THUMBNAIL)
        before = cache.decoded
        seen = cache.see(self.candidates(decoder.info), "candidates")
        scores = cache.relevance(seen, question, seen)
        vectors: Floats | None = None
        text: Floats | None = None
        if (
            isinstance(scorer, Embedder)
            and (self.needs_vectors or self.uses_vectors)
            and question is not None
        ):
            vectors = np.asarray(scorer.frame_vectors(seen.encoded), dtype=np.float64)
            text = np.asarray(scorer.text_vector(question), dtype=np.float64)
        looks = appearance.encode(seen.thumbnails)
        scored = ScoredCandidates(seen.frames, scores.astype(np.float64), looks, vectors, text)
        prefixes = self._choose(decoder, scored, budgets)
        stats: dict[str, Any] = {
            "candidates": len(seen.frames),
            "decoded": cache.decoded - before,
            "runs": 1 if self.ranks else len(prefixes),
            "wall_seconds": time.perf_counter() - began,
        }
        if self.uses_vectors:
            stats["diversity"] = self.diversity(vectors is not None)
        return Selection(decoder.info, question, self.name, scorer_name(scorer), prefixes, stats)

    def _choose(
        self, decoder: Decoder, scored: ScoredCandidates, budgets: Sequence[int]
    ) -> dict[int, Prefix]:
        if self.ranks:
            order = self.rule(scored, max(budgets))
            return {budget: self._ranked(decoder, scored, order, budget) for budget in budgets}
        return {budget: self._one(decoder, scored, self.rule(scored, budget), budget) for budget in budgets}

    def _one(self, decoder: Decoder, scored: ScoredCandidates, positions: Ints, budget: int) -> Prefix:
        if not self.exact:
            return _prefix(decoder, budget, scored.frames[positions])
        return _prefix(decoder, budget, exactly(positions, scored, budget, decoder.info.num_frames))

    def _ranked(self, decoder: Decoder, scored: ScoredCandidates, order: Ints, budget: int) -> Prefix:
        if len(order) < budget:  # the candidates ran out: what is added has no rank
            return self._one(decoder, scored, order, budget)
        place = np.argsort(order[:budget], kind="stable")
        return _prefix(decoder, budget, scored.frames[order[place]], (place + 1).tolist())


class TopKSelector(RuleSelector):
    """The K most relevant frames of a 1 fps grid."""

    name = "top-k"
    ranks = True

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return rules.top_k(scored.scores, budget)


class AksSelector(RuleSelector):
    """Adaptive Keyframe Sampling, its depth capped at ⌊log2 K⌋, topped up to exactly K."""

    name = "aks"

    def candidates(self, video: VideoInfo) -> Ints:
        return whole_seconds(video.num_frames, video.fps)

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return rules.aks(scored.scores, budget, depth=min(5, int(math.log2(budget))))


class AksReleasedSelector(AksSelector):
    """Adaptive Keyframe Sampling as published: depth 5, lists as short as they come."""

    name = "aks-released"
    exact = False

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return rules.aks(scored.scores, budget)


class WaveletSelector(RuleSelector):
    """WFS-SB: clips between wavelet boundaries, marginal relevance inside; frame vectors where there are."""

    name = "wfs-sb"
    uses_vectors = True

    def diversity(self, vectors: bool) -> str:
        return super().diversity(vectors) if vectors else "distance in time, since the scorer has no vectors"

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return wfs_sb(scored.scores, budget, scored.vectors)


class BoltSelector(RuleSelector):
    """BOLT: inverse transform sampling of the relevance."""

    name = "bolt"

    def candidates(self, video: VideoInfo) -> Ints:
        return nearest_seconds(video.num_frames, video.fps)

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        return rules.bolt(scored.scores, budget)


class Mdp3Selector(RuleSelector):
    """MDP3 with the whole video as one segment."""

    name = "mdp3"
    needs_vectors = True
    ranks = True

    def candidates(self, video: VideoInfo) -> Ints:
        return _thinned(every_second(video.num_frames, video.fps))

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        assert scored.vectors is not None
        assert scored.text is not None
        return rules.mdp3(scored.vectors, scored.text, budget)


class FacilityLocationSelector(RuleSelector):
    """Relevance plus how well the chosen frames stand for all of them, greedily."""

    name = "facility-location"
    uses_vectors = True
    ranks = True

    def candidates(self, video: VideoInfo) -> Ints:
        return _thinned(every_second(video.num_frames, video.fps))

    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        looks = scored.appearance if scored.vectors is None else scored.vectors
        similarity = looks.astype(np.float64) @ looks.astype(np.float64).T
        return rules.facility_location(scored.scores, similarity, budget, alpha=0.5, beta=1.0)


def _thinned(frames: Ints) -> Ints:
    """At most POOL candidates, evenly."""
    return frames if len(frames) <= POOL else frames[probe_grid(0, len(frames) - 1, POOL)]


def _prefix(decoder: Decoder, budget: int, frames: Ints, ranks: list[int] | None = None) -> Prefix:
    return Prefix(
        video=decoder.info,
        budget=budget,
        frames=frames,
        seconds=decoder.seconds[frames],
        ranks=None if ranks is None else np.array(ranks, dtype=np.int64),
        complete=len(frames) < budget and len(frames) == decoder.info.num_frames,
    )


def checked(budgets: Sequence[int]) -> list[int]:
    """Budgets, ascending, each once."""
    if not budgets or any(isinstance(b, bool) or int(b) != b or b < 1 for b in budgets):
        raise BudgetError(f"frame budgets must be whole numbers, 1 or more, not {list(budgets)!r}")
    return sorted({int(b) for b in budgets})
