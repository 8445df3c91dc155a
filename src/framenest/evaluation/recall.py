"""Evidence recall: how often a selection shows the moment that answers the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import PAPER_PRESETS
from framenest.errors import ConfigError
from framenest.evaluation.grounded_questions import GroundedQuestion, Intervals, TimelineDecoder, inside
from framenest.evaluation.noisy_truth import NoisyTruthScorer
from framenest.method import cues
from framenest.protocols import Progress, Scorer
from framenest.selectors import load_selector, needs_scorer
from framenest.selectors.built_in import THUMBNAIL
from framenest.selectors.selection import Selection
from framenest.session import Session
from framenest.video.decoder import Decoder

Floats = NDArray[np.float64]

REGIMES = {"low": (8, 16), "medium": (32, 64), "high": (128, 256)}
"""Budgets over which the paper's tables average."""
HORIZONS = (8, 16, 32, 64, 128, 256)
BOOTSTRAP_DRAWS, BOOTSTRAP_SEED = 1000, 0
DUPLICATE_SIMILARITY = 0.995  # appearance similarity above which two frames are near-duplicates

# The rows of the paper's two ablation tables.
_NO = [name for name in PAPER_PRESETS if name.startswith("no-")]
COMPONENTS = ("uniform", "paper", "static-weights", "evidence-only", *_NO)
SCHEDULES = ("uniform", *(name for name in PAPER_PRESETS if name not in (*_NO, "evidence-only")))


def hit(seconds: Floats, intervals: Intervals) -> bool:
    """Whether a frame lies in an interval."""
    return bool(inside(seconds, intervals).any())


def covered(seconds: Floats, intervals: Intervals) -> float:
    """Share of the intervals that contain a frame."""
    return sum(hit(seconds, (interval,)) for interval in intervals) / len(intervals)


def first_hit(seconds_by_rank: Floats, intervals: Intervals) -> int | None:
    """Rank, from 1, of the first frame in an interval; None if there is none."""
    hits = inside(seconds_by_rank, intervals)
    return int(np.argmax(hits)) + 1 if hits.any() else None


def most_similar(appearance: NDArray[np.floating[Any]]) -> Floats:
    """(K,) similarity of each frame to the most similar other frame; 0 for a single frame.

    appearance: (K, d) unit vectors.
    """
    if len(appearance) < 2:
        return np.zeros(1)
    vectors = appearance.astype(np.float64, copy=False)
    similar = vectors @ vectors.T
    np.fill_diagonal(similar, -np.inf)
    nearest: Floats = similar.max(axis=1)
    return nearest


def near_duplicates(nearest: Floats) -> float:
    """Share of the frames that look the same as another frame. nearest: (K,) from `most_similar`."""
    return float((nearest > DUPLICATE_SIMILARITY).mean())


def nesting(smaller: NDArray[np.int64], larger: NDArray[np.int64]) -> float:
    """Share of the smaller selection's frames that the larger one contains."""
    return float(np.isin(smaller, larger).mean())


@dataclass
class RecallOutcome:
    """Measures of one selector on one question, by budget and overall."""

    by_budget: dict[int, dict[str, float | None]] = field(default_factory=dict)
    first_hit: int | None = None
    ranked: bool = False
    candidates: int = 0


def interval_of_mean(values: Floats) -> tuple[float, float]:
    """95 % bootstrap interval of a mean over questions, with a fixed seed.

    For a paired difference, pass the differences.
    """
    draws = np.random.default_rng(BOOTSTRAP_SEED).integers(0, len(values), (BOOTSTRAP_DRAWS, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def _mean(values: Sequence[float | None]) -> float | None:
    """Over the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def by_question(outcomes: Sequence[RecallOutcome], budget: int, name: str, seeds: int = 1) -> Floats:
    """(n,) a measure of each question, averaged over its seeds. outcomes: question by question."""
    values = np.array([outcome.by_budget[budget][name] for outcome in outcomes], dtype=np.float64)
    means: Floats = values.reshape(-1, seeds).mean(axis=1)
    return means


def summarise(outcomes: Sequence[RecallOutcome], seeds: int = 1) -> dict[str, Any]:
    """Means over questions: {"8": {"hit": …, "hit_low": …, "hit_high": …, …}, …, "all": {…}}.

    outcomes: question by question, each with all its seeds. Intervals are over questions.
    """
    budgets = list(outcomes[0].by_budget)
    summary: dict[str, Any] = {}
    for budget in budgets:
        rows = [outcome.by_budget[budget] for outcome in outcomes]
        means = {name: _mean([row[name] for row in rows]) for name in rows[0]}
        low, high = interval_of_mean(by_question(outcomes, budget, "hit", seeds))
        summary[str(budget)] = means | {"hit_low": low, "hit_high": high}
    hits = {budget: summary[str(budget)]["hit"] for budget in budgets}
    ranked = all(outcome.ranked for outcome in outcomes)
    ranks = [outcome.first_hit for outcome in outcomes if outcome.first_hit is not None]
    summary["all"] = {
        "objective": sum(hits.values()) / len(hits),
        **{
            name: float(np.mean([hits[k] for k in group]))
            for name, group in REGIMES.items()
            if all(k in hits for k in group)
        },
        "mean_first_hit": _mean(ranks) if ranked else None,
        "candidates": _mean([outcome.candidates for outcome in outcomes]),
    }
    return summary


def evaluate(
    questions: Sequence[GroundedQuestion],
    selectors: Sequence[str],
    budgets: Sequence[int],
    session: Session,
    *,
    seeds: int = 1,
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Evidence recall of selectors, as `load_selector` takes them; the summaries are those of `summarise`.

    seeds: noise draws of `noisy-truth`, averaged for each question.

    >>> question = GroundedQuestion("kiln.mp4", "What is fired?", ((7.0, 8.5),))
    >>> measures = evaluate([question], ["mec", "aks"], [8, 16], Session("noisy-truth:4"))
    >>> measures["selectors"]["mec"]["8"]["hit"]
    1.0
    """
    specs = {name: name for name in selectors}
    outcomes = collect(questions, specs, budgets, session, seeds=seeds, progress=progress)
    return {
        "questions": len(questions),
        "seeds": seeds,
        "selectors": {name: summarise(rows, seeds) for name, rows in outcomes.items()},
    }


def ablations(
    questions: Sequence[GroundedQuestion], session: Session, *, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """The paper's component, schedule and horizon tables, with hit@K in place of accuracy."""
    budgets = [k for group in REGIMES.values() for k in group]
    specs = {"uniform": "uniform"} | {name: f"mec:{name}" for name in PAPER_PRESETS}
    rows = {}
    for name, outcomes in collect(questions, specs, budgets, session, progress=progress).items():
        summary = summarise(outcomes)
        average = float(np.mean([summary[str(k)]["hit"] for k in budgets]))
        rows[name] = {regime: summary["all"][regime] for regime in REGIMES} | {"average": average}
    horizons: dict[str, dict[str, float]] = {}
    for horizon in HORIZONS:
        served = [k for k in budgets if k <= horizon]
        spec = {"mec": f"mec:horizon={horizon}"}
        summary = summarise(collect(questions, spec, served, session, progress=progress)["mec"])
        horizons[str(horizon)] = {str(k): summary[str(k)]["hit"] for k in served}
    return {
        "questions": len(questions),
        "components": {name: rows[name] for name in COMPONENTS},
        "schedules": {name: rows[name] for name in SCHEDULES},
        "horizons": horizons,
    }


def collect(
    questions: Sequence[GroundedQuestion],
    specs: Mapping[str, str],
    budgets: Sequence[int],
    session: Session,
    *,
    seeds: int = 1,
    progress: Progress = lambda *_: None,
) -> dict[str, list[RecallOutcome]]:
    """By label in specs: a selector's outcomes, question by question, each with all its seeds.

    ConfigError: several seeds for a scorer without noise, or a timeline for a scorer that needs images.
    """
    outcomes: dict[str, list[RecallOutcome]] = {name: [] for name in specs}
    scorer = session.scorer if any(needs_scorer(spec) for spec in specs.values()) else None
    noisy = scorer if isinstance(scorer, NoisyTruthScorer) else None
    if seeds > 1 and noisy is None:
        raise ConfigError("several seeds need noisy truth: the scorer noisy-truth:SNR")
    if scorer is not noisy and any(question.duration is not None for question in questions):
        raise ConfigError("a timeline has no images to score: use the scorer noisy-truth:SNR")
    selectors = {name: load_selector(spec, session) for name, spec in specs.items()}
    previous: str | None = None
    for done, question in enumerate(questions):
        progress("questions", done, len(questions))
        source: str | Decoder = question.video
        if question.duration is not None:
            if question.video != previous:
                session.forget()  # making a timeline again is faster than keeping hundreds
            source = TimelineDecoder(question.video, question.duration)
        previous = question.video
        video = session.open(source)
        for seed in range(seeds):
            if noisy is not None:
                noisy.learn(question.intervals, seed)
            for name, selector in selectors.items():
                selection = selector.select(video, question.question, budgets)
                encoder = scorer if needs_scorer(specs[name]) else None  # then its frames are decoded already
                outcomes[name].append(_judge(selection, question, video, session, encoder))
    progress("questions", len(questions), len(questions))
    return outcomes


def _judge(
    selection: Selection,
    question: GroundedQuestion,
    video: Decoder,
    session: Session,
    scorer: Scorer | None,
) -> RecallOutcome:
    """All measures of one selection; those of appearance are None for a timeline."""
    outcome = RecallOutcome(candidates=selection.stats.get("candidates", 0))
    if question.duration is None:
        rows = session.features(video, scorer, THUMBNAIL).get(selection.frames, "selected frames")
        looks = cues.encode(rows.thumbnails).astype(np.float64)
    for budget, prefix in selection.prefixes.items():
        half, nearest = selection.prefixes.get(budget // 2), None
        if question.duration is None:
            nearest = most_similar(looks[np.isin(rows.frames, prefix.frames)])
        outcome.by_budget[budget] = {
            "hit": float(hit(prefix.seconds, question.intervals)),
            "covered": covered(prefix.seconds, question.intervals),
            "largest_gap": prefix.largest_gap,
            "redundancy": None if nearest is None else float(nearest.mean()),
            "near_duplicates": None if nearest is None else near_duplicates(nearest),
            "nesting": nesting(half.frames, prefix.frames) if half is not None and len(half) else None,
        }
    *_, largest = selection.prefixes.values()
    if largest.ranks is not None:
        outcome.ranked = True
        outcome.first_hit = first_hit(largest.seconds[np.argsort(largest.ranks)], question.intervals)
    return outcome
