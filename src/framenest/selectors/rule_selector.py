"""RuleSelector: candidates, their scores, a rule, exactly K frames."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from framenest.config import IndexConfig
from framenest.errors import ScorerError
from framenest.method.prefix import Prefix
from framenest.protocols import Decoder, Embedder, FrameEmbedder
from framenest.selectors.scored_candidates import Floats, Ints, ScoredCandidates, every_second, exactly
from framenest.selectors.selection import Selection, check_budgets, prefix_of, ranked_prefix
from framenest.session import Session, Video, scorer_name

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
