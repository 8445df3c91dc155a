"""Every selector by name: mec, uniform and the rivals."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import IndexConfig, MECConfig
from framenest.errors import ScorerError
from framenest.frames import Pixels
from framenest.method import cues
from framenest.method.discovery import LookFor
from framenest.method.index import probe_grid
from framenest.method.mec import MEC
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.protocols import Decoder, Embedder, FrameEmbedder
from framenest.selectors import rules
from framenest.selectors.rules import wfs_sb
from framenest.selectors.selection import Selection, check_budgets, prefix_of, ranked_prefix
from framenest.session import Session, Video, scorer_name

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


THUMBNAIL = IndexConfig().thumbnail


class RuleSelector(ABC):
    """A published rule on scored candidates."""

    name: str
    grid: Callable[[int, float], Ints] = staticmethod(every_second)
    """Which frames are candidates, by the video's number of frames and its frame rate."""
    needs_vectors = False
    """Whether the rule needs a scorer with vectors of frames and text."""
    without_vectors = ""
    """For rules that compare frames by vectors where there are some: by what they do so without."""
    exact = True
    """Whether duplicates are removed and the choice topped up to exactly K."""
    short_because = ""
    """For rules that are not topped up: why they give fewer than K."""
    ranks = False
    """Whether the rule takes frames one after the other, each budget extending the smaller."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @abstractmethod
    def rule(self, scored: ScoredCandidates, budget: int) -> Ints:
        """Positions among the candidates."""

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """Score the candidates and apply the rule: once where it ranks, else for each budget."""
        budgets = check_budgets(budgets)
        began = time.perf_counter()
        scorer = self._session.scorer_for(question)
        if scorer is None or question is None:
            raise ScorerError(f"{self.name} chooses by relevance and needs a question")
        if self.needs_vectors and not isinstance(scorer, Embedder):
            raise ScorerError(
                f"{self.name} needs frame and text vectors, which scorer {scorer.name!r} has not"
            )
        decoder = self._session.open(video)
        cache = self._session.features(decoder, scorer, THUMBNAIL)
        before = cache.decoded
        with self._session.showing():
            seen = cache.see(self.grid(decoder.info.num_frames, decoder.info.fps), "candidates")
        scores = cache.relevance(seen, question, seen)
        vectors: Floats | None = None
        text: Floats | None = None
        if (self.needs_vectors or self.without_vectors) and isinstance(scorer, FrameEmbedder):
            vectors = np.asarray(scorer.frame_vectors(seen.encoded), dtype=np.float64)
        if self.needs_vectors and isinstance(scorer, Embedder):
            text = np.asarray(scorer.text_vector(question), dtype=np.float64)
        scored = ScoredCandidates(seen.frames, scores.astype(np.float64), seen.thumbnails, vectors, text)
        order = self.rule(scored, max(budgets)) if self.ranks else None
        prefixes = {budget: self._prefix(decoder, scored, order, budget) for budget in budgets}
        stats: dict[str, Any] = {
            "candidates": len(seen.frames),
            "decoded": cache.decoded - before,
            "runs": 1 if self.ranks else len(prefixes),
            "wall_seconds": time.perf_counter() - began,
        }
        if self.without_vectors:
            instead = f"{self.without_vectors}, since the scorer has no vectors"
            stats["diversity"] = instead if vectors is None else "the scorer's frame vectors"
        return Selection(decoder.info, question, self.name, scorer_name(scorer), prefixes, stats)

    def _prefix(self, decoder: Decoder, scored: ScoredCandidates, order: Ints | None, budget: int) -> Prefix:
        if order is not None and len(order) >= budget:
            return ranked_prefix(decoder, budget, scored.frames, order)
        # Where the candidates of a ranking run out, what is added has no rank.
        positions = self.rule(scored, budget) if order is None else order
        if not self.exact:
            return prefix_of(decoder, budget, scored.frames[positions], why=self.short_because)
        return prefix_of(decoder, budget, exactly(positions, scored, budget, decoder.info.num_frames))


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
        found = cues.encode(scored.thumbnails) if scored.vectors is None else scored.vectors
        looks = found.astype(np.float64)
        return rules.facility_location(scored.scores, looks @ looks.T, budget, alpha=0.5, beta=1.0)
