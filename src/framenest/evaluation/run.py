"""Selectors over a question set: outcomes, summaries, the paper's ablations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from framenest.config import PRESETS, MECConfig
from framenest.evaluation import recall
from framenest.evaluation.questions import GroundedQuestion
from framenest.evaluation.truth import NoisyTruthScorer
from framenest.method import appearance
from framenest.method.prefix import Prefix
from framenest.protocols import Progress, Selector
from framenest.selectors import load_selector
from framenest.selectors.published import THUMBNAIL, MecSelector
from framenest.selectors.selection import Selection
from framenest.session import Session

Make = Callable[[Session], Selector]

COMPONENTS = (
    "uniform",
    "paper",
    "static-weights",
    "evidence-only",
    "no-coverage",
    "no-diversity",
    "no-zoom",
    "no-change",
    "no-observability",
)
SCHEDULES = (
    "uniform",
    "paper",
    "static-weights",
    "static-coverage-heavy",
    "static-balanced",
    "back-loaded",
    "front-loaded",
    "reverse",
    "high-to-mid",
    "mid-to-low",
)
HORIZONS = (8, 16, 32, 64, 128, 256)


def evaluate(
    questions: Sequence[GroundedQuestion],
    selectors: Sequence[str],
    budgets: Sequence[int],
    session: Session,
    *,
    snr: float | None = None,
    seed: int = 0,
    weights: Mapping[int, float] | None = None,
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """{"questions": n, "selectors": {name: summary}}. With `snr`, relevance is noisy truth."""
    makers: dict[str, Make] = {name: _named(name) for name in selectors}
    outcomes = collect(questions, makers, budgets, session, snr=snr, seed=seed, progress=progress)
    return {
        "questions": len(questions),
        "selectors": {name: recall.summarise(rows, weights) for name, rows in outcomes.items()},
    }


def _named(name: str) -> Make:
    return lambda session: load_selector(name, session)


def collect(
    questions: Sequence[GroundedQuestion],
    makers: Mapping[str, Make],
    budgets: Sequence[int],
    session: Session,
    *,
    snr: float | None = None,
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> dict[str, list[recall.Outcome]]:
    """Every selector on every question, in the order of the questions."""
    outcomes: dict[str, list[recall.Outcome]] = {name: [] for name in makers}
    ready = {name: make(session) for name, make in makers.items()} if snr is None else {}
    for done, entry in enumerate(questions):
        progress("questions", done, len(questions))
        if snr is not None:
            space = session.with_scorer(NoisyTruthScorer(entry.intervals, snr, seed))
            ready = {name: make(space) for name, make in makers.items()}
        else:
            space = session
        for name, selector in ready.items():
            began = time.perf_counter()
            selection = selector.select(entry.video, entry.question, budgets)
            spent = time.perf_counter() - began
            outcomes[name].append(judge(selection, entry, space, spent))
    progress("questions", len(questions), len(questions))
    return outcomes


def judge(selection: Selection, entry: GroundedQuestion, session: Session, spent: float) -> recall.Outcome:
    """All measures of one selection."""
    outcome = recall.Outcome(candidates=selection.stats.get("candidates", 0), seconds=spent)
    looks = _looks(selection, session)
    largest: Prefix | None = None
    for budget, prefix in selection.prefixes.items():
        there = np.searchsorted(looks[0], prefix.frames[np.isin(prefix.frames, looks[0])])
        half = selection.prefixes.get(budget // 2)
        outcome.by_budget[budget] = {
            "hit": float(recall.hit(prefix.seconds, entry.intervals)),
            "covered": recall.covered(prefix.seconds, entry.intervals),
            "largest_gap": recall.largest_gap(prefix.seconds, selection.video.duration),
            "redundancy": recall.redundancy(looks[1][there]),
            "nesting": recall.nesting(half.frames, prefix.frames) if half is not None and len(half) else None,
            "frames": float(len(prefix)),
        }
        largest = prefix
    if largest is not None and largest.ranks is not None:
        outcome.ranked = True
        by_rank = largest.seconds[np.argsort(largest.ranks)]
        outcome.first_hit = recall.first_hit(by_rank, entry.intervals)
    return outcome


def _looks(selection: Selection, session: Session) -> tuple[Any, Any]:
    """(frames, appearance) of everything selected."""
    frames = np.unique(np.concatenate([p.frames for p in selection.prefixes.values()]))
    cache = session.features(session.open(selection.video.path), None, THUMBNAIL)
    seen = cache.see(frames, "selected frames")
    return seen.frames, appearance.encode(seen.thumbnails)


def _preset(name: str, horizon: int | None = None) -> Make:
    """MEC at a preset, as a selector."""

    def make(session: Session) -> Selector:
        if name == "uniform":
            return load_selector(name, session)
        settings = dict(PRESETS[name]) | ({"horizon": horizon} if horizon else {})
        return MecSelector(session, MECConfig().with_settings(settings))

    return make


def ablations(
    questions: Sequence[GroundedQuestion],
    session: Session,
    *,
    snr: float | None = None,
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """The paper's component, schedule and horizon tables, with hit@K in place of accuracy."""
    budgets = [k for group in recall.REGIMES.values() for k in group]
    names = dict.fromkeys((*COMPONENTS, *SCHEDULES))
    outcomes = collect(
        questions, {name: _preset(name) for name in names}, budgets, session, snr=snr, progress=progress
    )
    rows = {name: _row(recall.summarise(found), budgets) for name, found in outcomes.items()}
    horizons: dict[str, dict[str, float]] = {}
    for horizon in HORIZONS:
        fitting = [k for k in budgets if k <= horizon]
        makers = {"paper": _preset("paper", horizon)}
        found = collect(questions, makers, fitting, session, snr=snr, progress=progress)["paper"]
        summary = recall.summarise(found)
        horizons[str(horizon)] = {str(k): summary[str(k)]["hit"] for k in fitting}
    return {
        "questions": len(questions),
        "components": {name: rows[name] for name in COMPONENTS},
        "schedules": {name: rows[name] for name in SCHEDULES},
        "horizons": horizons,
    }


def _row(summary: dict[str, Any], budgets: Sequence[int]) -> dict[str, float]:
    whole = summary["all"]
    average = float(np.mean([summary[str(k)]["hit"] for k in budgets]))
    return {"low": whole["low"], "medium": whole["medium"], "high": whole["high"], "average": average}
