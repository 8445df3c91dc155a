"""Recall runs: selectors over grounded questions, and their tables and plots."""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import PRESETS
from framenest.errors import ConfigError, MissingExtra, StoreError
from framenest.evaluation.grounded_questions import GroundedQuestion
from framenest.evaluation.noisy_truth import NoisyTruthScorer
from framenest.evaluation.recall import (
    REGIMES,
    RecallOutcome,
    covered,
    first_hit,
    hit,
    largest_gap,
    most_similar,
    near_duplicates,
    nesting,
    redundancy,
    summarise,
)
from framenest.method import cues
from framenest.method.prefix import Prefix
from framenest.protocols import Decoder, Progress, Scorer
from framenest.selectors import load_selector, needs_scorer
from framenest.selectors.by_name import THUMBNAIL
from framenest.selectors.selection import Selection
from framenest.session import Session

_NO = [name for name in PRESETS if name.startswith("no-")]


COMPONENTS = ("uniform", "paper", "static-weights", "evidence-only", *_NO)


SCHEDULES = ("uniform", *(name for name in PRESETS if name not in (*_NO, "evidence-only", "residual")))
"""The rows of the paper's two ablation tables."""


HORIZONS = (8, 16, 32, 64, 128, 256)


def evaluate(
    questions: Sequence[GroundedQuestion],
    selectors: Sequence[str],
    budgets: Sequence[int],
    session: Session,
    *,
    weights: Mapping[int, float] | None = None,
    seeds: int = 1,
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Evidence recall of selectors on a question set.

    Args:
        questions: Questions with known intervals (`load_questions`).
        selectors: As `load_selector` takes them: "mec", "mec:no-zoom", "aks", "file:PATH", …
        budgets: Numbers of frames.
        session: With the scorer; `noisy-truth:SNR` is told each question's intervals.
        weights: How much each budget counts in the objective, by default all the same.
        seeds: Draws of the noise of `noisy-truth`, averaged for each question.
        progress: Called as progress(stage, done, total).

    Returns:
        {"questions": n, "seeds": n, "selectors": {name: summary}}; `summarise` says what each has.

    Example:
        >>> asked = GroundedQuestion("kiln.mp4", "What is fired?", ((7.0, 8.5),))
        >>> found = evaluate([asked], ["mec", "aks"], [8, 16], Session("noisy-truth:4"))
        >>> found["selectors"]["mec"]["8"]["hit"]
        1.0
    """
    specs = {name: name for name in selectors}
    outcomes = collect(questions, specs, budgets, session, seeds=seeds, progress=progress)
    return {
        "questions": len(questions),
        "seeds": seeds,
        "selectors": {name: summarise(rows, weights, seeds) for name, rows in outcomes.items()},
    }


def ablations(
    questions: Sequence[GroundedQuestion], session: Session, *, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """The paper's component, schedule and horizon tables, with hit@K in place of accuracy."""
    budgets = [k for group in REGIMES.values() for k in group]
    specs = {"uniform": "uniform"} | {name: f"mec:{name}" for name in PRESETS if name != "residual"}
    outcomes = collect(questions, specs, budgets, session, progress=progress)
    rows = {name: _row(summarise(found), budgets) for name, found in outcomes.items()}
    horizons: dict[str, dict[str, float]] = {}
    for horizon in HORIZONS:
        fitting = [k for k in budgets if k <= horizon]
        one = {"mec": f"mec:horizon={horizon}"}
        found = collect(questions, one, fitting, session, progress=progress)["mec"]
        summary = summarise(found)
        horizons[str(horizon)] = {str(k): summary[str(k)]["hit"] for k in fitting}
    return {
        "questions": len(questions),
        "components": {name: rows[name] for name in COMPONENTS},
        "schedules": {name: rows[name] for name in SCHEDULES},
        "horizons": horizons,
    }


def _row(summary: dict[str, Any], budgets: Sequence[int]) -> dict[str, float]:
    average = float(np.mean([summary[str(k)]["hit"] for k in budgets]))
    return {name: summary["all"][name] for name in REGIMES} | {"average": average}


def collect(
    questions: Sequence[GroundedQuestion],
    specs: Mapping[str, str],
    budgets: Sequence[int],
    session: Session,
    *,
    seeds: int = 1,
    progress: Progress = lambda *_: None,
) -> dict[str, list[RecallOutcome]]:
    """What every selector did on every question.

    Args:
        questions: Questions with known intervals.
        specs: Selectors by label.
        budgets: Numbers of frames.
        session: With the scorer.
        seeds: Draws of the noise of `noisy-truth`.
        progress: Called as progress(stage, done, total).

    Returns:
        By label, question by question in their order, each with all its seeds.

    Raises:
        ConfigError: Several seeds for a scorer that draws nothing, or a timeline for one that needs pictures.
    """
    outcomes: dict[str, list[RecallOutcome]] = {name: [] for name in specs}
    scorer = session.scorer if any(needs_scorer(spec) for spec in specs.values()) else None
    noisy = scorer if isinstance(scorer, NoisyTruthScorer) else None
    if seeds > 1 and noisy is None:
        raise ConfigError("several seeds are for noisy truth: --scorer noisy-truth:SNR")
    if scorer is not noisy and any(asked.duration is not None for asked in questions):
        raise ConfigError("a timeline has no pictures to score: --scorer noisy-truth:SNR")
    ready = {name: load_selector(spec, session) for name, spec in specs.items()}
    before: str | None = None
    for done, asked in enumerate(questions):
        progress("questions", done, len(questions))
        if asked.duration is not None and asked.video != before:
            session.forget()  # a timeline is made anew faster than hundreds are kept
        before = asked.video
        video = session.open(asked.source)
        entry = replace(asked, intervals=asked.intervals_in(video), moments=())
        for seed in range(seeds):
            if noisy is not None:
                noisy.learn(entry.intervals, seed)
            for name, selector in ready.items():
                began = time.perf_counter()
                selection = selector.select(video, entry.question, budgets)
                spent = time.perf_counter() - began
                seen_by = scorer if needs_scorer(specs[name]) else None  # then its frames are decoded already
                looks = None if asked.duration is not None else _Looks(selection, video, session, seen_by)
                outcomes[name].append(_judge(selection, entry, looks, spent))
    progress("questions", len(questions), len(questions))
    return outcomes


def _judge(
    selection: Selection, entry: GroundedQuestion, looks: _Looks | None, spent: float
) -> RecallOutcome:
    """All measures of one selection; those of looks are None on a timeline, which has none."""
    outcome = RecallOutcome(candidates=selection.stats.get("candidates", 0), seconds=spent)
    for budget, prefix in selection.prefixes.items():
        half = selection.prefixes.get(budget // 2)
        nearest = None if looks is None else most_similar(looks.of(prefix))
        outcome.by_budget[budget] = {
            "hit": float(hit(prefix.seconds, entry.intervals)),
            "covered": covered(prefix.seconds, entry.intervals),
            "largest_gap": largest_gap(prefix.seconds, selection.video.duration),
            "redundancy": None if nearest is None else redundancy(nearest),
            "near_duplicates": None if nearest is None else near_duplicates(nearest),
            "nesting": nesting(half.frames, prefix.frames) if half is not None and len(half) else None,
            "frames": float(len(prefix)),
        }
    *_, largest = selection.prefixes.values()
    if largest.ranks is not None:
        outcome.ranked = True
        outcome.first_hit = first_hit(largest.seconds[np.argsort(largest.ranks)], entry.intervals)
    return outcome


class _Looks:
    """The appearance of every frame of a selection."""

    def __init__(self, selection: Selection, video: Decoder, session: Session, scorer: Scorer | None) -> None:
        chosen = np.unique(np.concatenate([p.frames for p in selection.prefixes.values()]))
        seen = session.features(video, scorer, THUMBNAIL).see(chosen, "selected frames")
        self._frames, self._vectors = seen.frames, cues.encode(seen.thumbnails).astype(np.float64)

    def of(self, prefix: Prefix) -> NDArray[np.float64]:
        """(K, d) unit vectors."""
        return self._vectors[np.isin(self._frames, prefix.frames)]


def write_csv(result: dict[str, Any], path: str | Path) -> None:
    """One row per selector and budget."""
    rows = [
        {"selector": name, "budget": budget, **measures}
        for name, summary in result["selectors"].items()
        for budget, measures in summary.items()
        if budget != "all"
    ]
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error


def plotting() -> Any:
    """matplotlib's pyplot; asked for before the work, where there will be something to plot."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("plots", "matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot(result: dict[str, Any], path: str | Path) -> None:
    """Recall over budgets with its confidence band, and recall over seconds; PNG, SVG or PDF by the name."""
    pyplot = plotting()

    figure, (by_budget, by_time) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, summary in result["selectors"].items():
        budgets = [int(k) for k in summary if k != "all"]
        hits = [summary[str(k)]["hit"] for k in budgets]
        (line,) = by_budget.plot(budgets, hits, marker="o", markersize=4, label=name)
        low, high = ([summary[str(k)][side] for k in budgets] for side in ("hit_low", "hit_high"))
        by_budget.fill_between(budgets, low, high, color=line.get_color(), alpha=0.08)
        whole = summary["all"]
        by_time.scatter(max(whole["seconds"], 1e-3), whole["objective"], color=line.get_color(), s=40)
        by_time.annotate(name, (max(whole["seconds"], 1e-3), whole["objective"]), xytext=(5, 4),
                         textcoords="offset points", fontsize=8)  # fmt: skip
    by_budget.set_xscale("log", base=2)
    by_budget.set_xticks(budgets, [str(k) for k in budgets])
    by_budget.set(xlabel="frame budget K", ylabel="questions with a frame in an interval", ylim=(0, 1.02))
    by_budget.legend(fontsize=8)
    by_budget.grid(alpha=0.3)
    by_time.set_xscale("log")
    by_time.set(xlabel="seconds per question, all budgets", ylabel="mean over budgets", ylim=(0, 1.02))
    by_time.grid(alpha=0.3)
    figure.suptitle(f"Evidence recall over {result['questions']} questions")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be written ({error})") from error
    finally:
        pyplot.close(figure)
