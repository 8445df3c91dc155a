"""What an evaluation writes: CSV rows and plots."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from framenest.errors import MissingExtra, StoreError


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
