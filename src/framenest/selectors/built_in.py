"""The selectors that come with Framenest: mec, min-gap, uniform and the published rivals."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from framenest.config import NOT_NEGATIVE, CheckedSettings, IndexConfig, MECConfig, setting
from framenest.errors import ScorerError
from framenest.frames import Doubles, Ints, Pixels
from framenest.method import cues
from framenest.method.index import probe_grid
from framenest.method.mec import MEC
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.protocols import Embedder, FrameEmbedder
from framenest.rank_request import Budget
from framenest.selectors import published_rules as rules
from framenest.selectors.selection import Selection, Selector, prefix_of, ranked_prefix
from framenest.session import Session, scorer_name
from framenest.video.decoder import Decoder
from framenest.video.opening import Video

MAX_CANDIDATES = 1000  # of the greedy selectors
THUMBNAIL = IndexConfig().thumbnail

Chosen = tuple[dict[int, Prefix], str, dict[str, Any]]  # prefixes by budget, the scorer's name, and stats


class BuiltInSelector(Selector, ABC):
    """A selector that comes with Framenest."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        sizes, began = Budget.ladder(budgets), time.perf_counter()
        decoder = self.session.open(video)
        prefixes, scorer, stats = self.choose(decoder, question, sizes)
        stats = {"runs": 1} | stats | {"wall_seconds": time.perf_counter() - began}
        return Selection(decoder.info, question, self.name, scorer, prefixes, stats)

    @abstractmethod
    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        """Choose frames of an open video. budgets: ascending."""


class MecSelector(BuiltInSelector):
    """MEC, by default with the paper's settings: ranked once, every budget a prefix."""

    name = "mec"
    ranks = True
    settings = MECConfig()

    def __init__(self, session: Session, settings: MECConfig = settings) -> None:
        super().__init__(session)
        self.settings = settings
        self._mec = MEC(settings, session=session)

    def rank(self, video: Video, question: str | None) -> Ranking:
        return self._mec.rank(video, question)

    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        ranking = self.rank(decoder, question)
        prefixes = {budget: ranking.prefix(budget) for budget in budgets}
        return prefixes, ranking.scorer, ranking.stats.to_json() | {"notes": [*ranking.notes]}


class MinGapSelector(BuiltInSelector):
    """MEC's candidates by evidence only, kept apart in time: a simple baseline for MEC."""

    name = "min-gap"
    ranks = True

    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        ranking = MEC(session=self.session).rank(decoder, question)
        pool = ranking.pool
        order = rules.min_gap(pool.seconds, pool.evidence.astype(np.float64), max(budgets))
        prefixes = {budget: ranked_prefix(decoder, budget, pool.frames, order) for budget in budgets}
        return prefixes, ranking.scorer, ranking.stats.to_json() | {"notes": [*ranking.notes]}


class UniformSelector(BuiltInSelector):
    """K evenly spaced frames, both ends included: the same for every question. Scores no frames."""

    name = "uniform"
    needs_scorer = False

    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        total = decoder.info.num_frames
        prefixes = {k: prefix_of(decoder, k, probe_grid(0, total - 1, min(k, total))) for k in budgets}
        return prefixes, "none", {"candidates": 0, "runs": len(budgets)}


@dataclass(frozen=True, eq=False)
class ScoredCandidates:
    """Candidates that decoded, with the data that a rule may use."""

    frames: Ints  # (n,), ascending
    scores: Doubles  # (n,) relevance
    thumbnails: Pixels  # (n, h, w, 3)
    vectors: Doubles | None = None  # (n, d), of the frames
    text: Doubles | None = None  # (d,), of the question


def every_second(num_frames: int, fps: float) -> Ints:
    """Candidates of WFS-SB and top-k: every ⌊fps⌋-th frame, starting with the first."""
    return np.arange(0, num_frames, max(1, int(fps)), dtype=np.int64)


def thinned_seconds(num_frames: int, fps: float) -> Ints:
    """Candidates of MDP3 and facility location: the same, evenly thinned to at most MAX_CANDIDATES."""
    frames = every_second(num_frames, fps)
    return frames if len(frames) <= MAX_CANDIDATES else frames[probe_grid(0, len(frames) - 1, MAX_CANDIDATES)]


def whole_seconds(num_frames: int, fps: float) -> Ints:
    """Candidates of AKS: every ⌊fps⌋-th frame, as many as whole steps fit."""
    return every_second(num_frames, fps)[: max(1, num_frames // max(1, int(fps)))]


def nearest_seconds(num_frames: int, fps: float) -> Ints:
    """Candidates of BOLT: the frame nearest to each whole second."""
    count = max(1, int(num_frames / fps)) if fps > 0 else 1
    return np.unique(np.floor(np.arange(count) * fps + 0.5).astype(np.int64).clip(0, num_frames - 1))


def exactly(positions: Ints, scored: ScoredCandidates, count: int, num_frames: int) -> Ints:
    """Frame numbers of a rule's choice without duplicates, topped up to `count`, ascending.

    First come the best candidates not chosen (ties to the earlier), then evenly spaced frames of the video.
    Fewer only if the video has fewer frames.
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


@dataclass(frozen=True, eq=False)
class PublishedRule:
    """A published rule; called with a session, it makes the selector, which has its traits."""

    name: str
    positions: Callable[..., Ints]  # among the candidates, for a budget, and its settings by name
    grid: Callable[[int, float], Ints] = every_second  # candidates by number of frames and frame rate
    ranks: bool = False
    settings: CheckedSettings | None = None
    needs_vectors: bool = False  # of frames and of the question
    without_vectors: str = ""  # how a rule that prefers to compare frames by vectors compares them otherwise
    short_because: str = ""  # why a rule may return fewer than K frames; all others are topped up to K
    even_if_few: bool = False  # with fewer candidates than K, evenly spaced frames, whatever the scores
    needs_scorer: ClassVar[bool] = True

    def __call__(self, session: Session, settings: CheckedSettings | None = None) -> RuleSelector:
        return RuleSelector(session, self, settings or self.settings)


class RuleSelector(BuiltInSelector):
    """Scores candidates and applies a published rule: once if it ranks, otherwise for each budget."""

    def __init__(self, session: Session, rule: PublishedRule, settings: CheckedSettings | None) -> None:
        super().__init__(session)
        self.rule, self.ranks, self.settings = rule, rule.ranks, settings
        self._values = vars(settings) if settings else {}
        usual = vars(rule.settings) if rule.settings else {}
        changed = [f"{name}={value:g}" for name, value in self._values.items() if value != usual[name]]
        self.name = rule.name + ":" * bool(changed) + "+".join(changed)

    def positions(self, scored: ScoredCandidates, budget: int) -> Ints:
        return self.rule.positions(scored, budget, **self._values)

    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        rule, scorer = self.rule, self.session.scorer_for(question)
        if scorer is None or question is None:
            raise ScorerError(f"{self.name} chooses by relevance and needs a question")
        if rule.needs_vectors and not isinstance(scorer, Embedder):
            raise ScorerError(
                f"{self.name} needs frame and text vectors, which scorer {scorer.name!r} does not have"
            )
        features = self.session.features(decoder, scorer, THUMBNAIL)
        before = features.decoded
        with self.session.showing():
            candidates = features.get(rule.grid(decoder.info.num_frames, decoder.info.fps), "candidates")
        scores = features.relevance(candidates, question, candidates).astype(np.float64)
        vectors = text = None
        if (rule.needs_vectors or rule.without_vectors) and isinstance(scorer, FrameEmbedder):
            vectors = np.asarray(scorer.frame_vectors(candidates.encoded), dtype=np.float64)
        if rule.needs_vectors and isinstance(scorer, Embedder):
            text = np.asarray(scorer.text_vector(question), dtype=np.float64)
        scored = ScoredCandidates(candidates.frames, scores, candidates.thumbnails, vectors, text)
        order = self.positions(scored, max(budgets)) if rule.ranks else None
        prefixes = {budget: self._prefix(decoder, scored, order, budget) for budget in budgets}
        stats: dict[str, Any] = {"candidates": len(scores), "decoded": features.decoded - before}
        if not rule.ranks:
            stats["runs"] = len(budgets)
        if rule.without_vectors:
            instead = f"{rule.without_vectors}, since the scorer has no vectors"
            stats["diversity"] = instead if vectors is None else "the scorer's frame vectors"
        return prefixes, scorer_name(scorer), stats

    def _prefix(self, decoder: Decoder, scored: ScoredCandidates, order: Ints | None, budget: int) -> Prefix:
        total = decoder.info.num_frames
        if order is not None and len(order) >= budget:
            return ranked_prefix(decoder, budget, scored.frames, order)
        if self.rule.even_if_few and len(scored.frames) < budget:
            even = np.linspace(0, total - 1, min(budget, total), dtype=np.int64)  # rounds down
            return prefix_of(decoder, budget, even)
        # If a ranking runs out of candidates, the frames that top it up have no rank.
        positions = self.positions(scored, budget) if order is None else order
        if self.rule.short_because:
            return prefix_of(decoder, budget, scored.frames[positions], why=self.rule.short_because)
        return prefix_of(decoder, budget, exactly(positions, scored, budget, total))


def _mdp3(scored: ScoredCandidates, budget: int, *, segments: bool = False) -> Ints:
    assert scored.vectors is not None
    assert scored.text is not None
    if segments:
        return rules.mdp3_segments(scored.vectors, scored.text, budget, 32 if budget <= 32 else 128)
    return rules.mdp3(scored.vectors, scored.text, budget)


def _facility_location(scored: ScoredCandidates, budget: int) -> Ints:
    vectors = cues.encode(scored.thumbnails) if scored.vectors is None else scored.vectors
    looks = vectors.astype(np.float64)
    return rules.facility_location(scored.scores, looks @ looks.T, budget, alpha=0.5, beta=1.0)


@dataclass(frozen=True)
class BoltSettings(CheckedSettings):
    power: float = setting(
        3.0, "Relevance is raised to it: as released, 2.5 for LongVideoBench.", NOT_NEGATIVE
    )


top_k = PublishedRule("top-k", lambda scored, budget: rules.top_k(scored.scores, budget), ranks=True)
aks = PublishedRule(
    "aks",
    lambda scored, budget: rules.aks(scored.scores, budget, depth=min(5, int(math.log2(budget)))),
    grid=whole_seconds,
)
"""Its depth is capped at ⌊log2 K⌋, so that it gives exactly K."""
aks_released = PublishedRule(
    "aks-released",
    lambda scored, budget: rules.aks(scored.scores, budget),
    grid=whole_seconds,
    short_because="as published, a video whose best frames do not stand out is cut into 32 parts, and each "
    "gives ⌊K/32⌋ frames, none below K = 32; the selector aks always gives K",
)
wfs_sb = PublishedRule(
    "wfs-sb",
    lambda scored, budget: rules.wfs_sb(scored.scores, budget, scored.vectors),
    without_vectors="distance in time",
    even_if_few=True,
)
bolt = PublishedRule(
    "bolt",
    lambda scored, budget, power: rules.bolt(scored.scores, budget, power=power),
    grid=nearest_seconds,
    settings=BoltSettings(),
)
mdp3 = PublishedRule("mdp3", _mdp3, grid=thinned_seconds, ranks=True, needs_vectors=True)
mdp3_segments = PublishedRule(
    "mdp3-segments", partial(_mdp3, segments=True), grid=thinned_seconds, needs_vectors=True
)
facility_location = PublishedRule(
    "facility-location", _facility_location, grid=thinned_seconds, ranks=True, without_vectors="thumbnails"
)
