"""The selectors that come with Framenest: mec, min-gap, uniform and the published rivals."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from framenest.protocols import Embedder, FrameEmbedder
from framenest.selectors import published_rules as rules
from framenest.selectors.selection import Selection, check_budgets, prefix_of, ranked_prefix
from framenest.session import Session, scorer_name
from framenest.video.decoder import Decoder
from framenest.video.opening import Video

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POOL = 1000
"""The maximum number of candidates of the greedy selectors."""
THUMBNAIL = IndexConfig().thumbnail


Chosen = tuple[dict[int, Prefix], str, dict[str, Any]]
"""Prefixes by budget, the scorer's name, and stats."""


class BuiltInSelector(ABC):
    """A selector that comes with Framenest."""

    name: str

    def __init__(self, session: Session) -> None:
        self.session = session

    def select(self, video: Video, question: str | None, budgets: Sequence[int]) -> Selection:
        """Choose frames of a video for a question; a Selection with a Prefix for each budget."""
        sizes, began = check_budgets(budgets), time.perf_counter()
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

    def __init__(self, session: Session, config: MECConfig | None = None) -> None:
        super().__init__(session)
        self._mec = MEC(config, session=session)

    def rank(self, video: Video, question: str | None, look_for: LookFor | Sequence[str] = ()) -> Ranking:
        """The ranking that serves every budget."""
        return self._mec.rank(video, question, look_for=look_for)

    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        ranking = self.rank(decoder, question)
        prefixes = {budget: ranking.prefix(budget) for budget in budgets}
        return prefixes, ranking.scorer, ranking.stats.to_json()


class MinGapSelector(BuiltInSelector):
    """MEC's candidates by evidence only, kept apart in time: a simple baseline for MEC."""

    name = "min-gap"

    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        ranking = MEC(session=self.session).rank(decoder, question)
        pool = ranking.pool
        order = rules.min_gap(pool.seconds, pool.evidence.astype(np.float64), max(budgets))
        prefixes = {budget: ranked_prefix(decoder, budget, pool.frames, order) for budget in budgets}
        return prefixes, ranking.scorer, ranking.stats.to_json()


class UniformSelector(BuiltInSelector):
    """K evenly spaced frames, both ends included: the same for every question. Scores no frames."""

    name = "uniform"

    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        last = decoder.info.num_frames - 1
        grids = {budget: probe_grid(0, last, min(budget, last + 1)) for budget in budgets}
        prefixes = {budget: prefix_of(decoder, budget, frames) for budget, frames in grids.items()}
        return prefixes, "none", {"candidates": 0, "runs": len(budgets)}


@dataclass(frozen=True, eq=False)
class ScoredCandidates:
    """Candidates that decoded, with the data that a rule may use.

    Attributes:
        frames: (n,) int64, ascending.
        scores: (n,) float64 relevance.
        thumbnails: (n, h, w, 3) uint8.
        vectors: (n, d) frame vectors; None if the scorer has none.
        text: (d,) vector of the question; None if the scorer has none.
    """

    frames: Ints
    scores: Floats
    thumbnails: Pixels
    vectors: Floats | None = None
    text: Floats | None = None


def every_second(num_frames: int, fps: float) -> Ints:
    """Candidates of WFS-SB and top-k: every ⌊fps⌋-th frame, starting with the first."""
    return np.arange(0, num_frames, max(1, int(fps)), dtype=np.int64)


def thinned_seconds(num_frames: int, fps: float) -> Ints:
    """Candidates of MDP3 and facility location: the same, evenly thinned to at most POOL."""
    frames = every_second(num_frames, fps)
    return frames if len(frames) <= POOL else frames[probe_grid(0, len(frames) - 1, POOL)]


def whole_seconds(num_frames: int, fps: float) -> Ints:
    """Candidates of AKS: every ⌊fps⌋-th frame, as many as whole steps fit."""
    step = max(1, int(fps))
    return np.arange(max(1, num_frames // step), dtype=np.int64) * step


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
class RuleSelector(BuiltInSelector):
    """Scores candidates and applies a published rule: once if it ranks, otherwise for each budget.

    Attributes:
        name: the selector's name.
        positions: the rule: positions among the candidates for a budget.
        grid: which frames are candidates, from the video's number of frames and its frame rate.
        ranks: the rule takes frames one after another, so each budget extends the smaller ones.
        needs_vectors: the rule needs a scorer with vectors of frames and text.
        without_vectors: for rules that prefer to compare frames by vectors: how they compare them otherwise.
        short_because: why a rule may return fewer than K frames. All others are topped up to K.
        even_if_few: with fewer candidates than K, return evenly spaced frames, whatever the scores.
    """

    session: Session
    name: str
    positions: Callable[[ScoredCandidates, int], Ints]
    grid: Callable[[int, float], Ints] = every_second
    ranks: bool = False
    needs_vectors: bool = False
    without_vectors: str = ""
    short_because: str = ""
    even_if_few: bool = False

    def choose(self, decoder: Decoder, question: str | None, budgets: list[int]) -> Chosen:
        scorer = self.session.scorer_for(question)
        if scorer is None or question is None:
            raise ScorerError(f"{self.name} chooses by relevance and needs a question")
        if self.needs_vectors and not isinstance(scorer, Embedder):
            raise ScorerError(
                f"{self.name} needs frame and text vectors, which scorer {scorer.name!r} does not have"
            )
        cache = self.session.features(decoder, scorer, THUMBNAIL)
        before = cache.decoded
        with self.session.showing():
            seen = cache.get(self.grid(decoder.info.num_frames, decoder.info.fps), "candidates")
        scores = cache.relevance(seen, question, seen).astype(np.float64)
        vectors: Floats | None = None
        text: Floats | None = None
        if (self.needs_vectors or self.without_vectors) and isinstance(scorer, FrameEmbedder):
            vectors = np.asarray(scorer.frame_vectors(seen.encoded), dtype=np.float64)
        if self.needs_vectors and isinstance(scorer, Embedder):
            text = np.asarray(scorer.text_vector(question), dtype=np.float64)
        scored = ScoredCandidates(seen.frames, scores, seen.thumbnails, vectors, text)
        order = self.positions(scored, max(budgets)) if self.ranks else None
        prefixes = {budget: self._prefix(decoder, scored, order, budget) for budget in budgets}
        stats: dict[str, Any] = {"candidates": len(seen.frames), "decoded": cache.decoded - before}
        if not self.ranks:
            stats["runs"] = len(budgets)
        if self.without_vectors:
            instead = f"{self.without_vectors}, since the scorer has no vectors"
            stats["diversity"] = instead if vectors is None else "the scorer's frame vectors"
        return prefixes, scorer_name(scorer), stats

    def _prefix(self, decoder: Decoder, scored: ScoredCandidates, order: Ints | None, budget: int) -> Prefix:
        total = decoder.info.num_frames
        if order is not None and len(order) >= budget:
            return ranked_prefix(decoder, budget, scored.frames, order)
        if self.even_if_few and len(scored.frames) < budget:
            even = np.linspace(0, total - 1, min(budget, total), dtype=np.int64)  # rounds down
            return prefix_of(decoder, budget, even)
        # If a ranking runs out of candidates, the frames that top it up have no rank.
        positions = self.positions(scored, budget) if order is None else order
        if self.short_because:
            return prefix_of(decoder, budget, scored.frames[positions], why=self.short_because)
        return prefix_of(decoder, budget, exactly(positions, scored, budget, total))


def _aks_positions(scored: ScoredCandidates, budget: int) -> Ints:
    return rules.aks(scored.scores, budget, depth=min(5, int(math.log2(budget))))


def _mdp3_positions(scored: ScoredCandidates, budget: int, segment: int | None = None) -> Ints:
    assert scored.vectors is not None
    assert scored.text is not None
    if segment is None:
        return rules.mdp3(scored.vectors, scored.text, budget)
    return rules.mdp3_segments(scored.vectors, scored.text, budget, segment)


def _facility_positions(scored: ScoredCandidates, budget: int) -> Ints:
    found = cues.encode(scored.thumbnails) if scored.vectors is None else scored.vectors
    looks = found.astype(np.float64)
    return rules.facility_location(scored.scores, looks @ looks.T, budget, alpha=0.5, beta=1.0)


def bolt(session: Session, power: float = 3.0) -> RuleSelector:
    """BOLT. power: as released, 3 for Video-MME and MLVU, 2.5 for LongVideoBench."""
    return RuleSelector(
        session,
        name="bolt" if power == 3.0 else f"bolt:power={power:g}",
        positions=lambda scored, budget: rules.bolt(scored.scores, budget, power=power),
        grid=nearest_seconds,
    )


top_k = partial(
    RuleSelector,
    name="top-k",
    positions=lambda scored, budget: rules.top_k(scored.scores, budget),
    ranks=True,
)
aks = partial(RuleSelector, name="aks", positions=_aks_positions, grid=whole_seconds)
"""Its depth is capped at ⌊log2 K⌋, so that it gives exactly K."""
aks_released = partial(
    RuleSelector,
    name="aks-released",
    positions=lambda scored, budget: rules.aks(scored.scores, budget),
    grid=whole_seconds,
    short_because="as published, a video whose best frames do not stand out is cut into 32 parts, and each "
    "gives ⌊K/32⌋ frames, none below K = 32; the selector aks always gives K",
)
wfs_sb = partial(
    RuleSelector,
    name="wfs-sb",
    positions=lambda scored, budget: rules.wfs_sb(scored.scores, budget, scored.vectors),
    without_vectors="distance in time",
    even_if_few=True,
)
mdp3 = partial(
    RuleSelector, name="mdp3", positions=_mdp3_positions, grid=thinned_seconds, ranks=True, needs_vectors=True
)
mdp3_segments = partial(
    RuleSelector,
    name="mdp3-segments",
    positions=lambda scored, budget: _mdp3_positions(scored, budget, 32 if budget <= 32 else 128),
    grid=thinned_seconds,
    needs_vectors=True,
)
facility_location = partial(
    RuleSelector,
    name="facility-location",
    positions=_facility_positions,
    grid=thinned_seconds,
    ranks=True,
    without_vectors="thumbnails",
)
