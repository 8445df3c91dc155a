"""Plot recall over budgets and over the frames that were scored.

framenest evaluate recall qa.json --scorer tags --json recall.json
python benchmarks/recall_plot.py recall.json recall.png      # or .svg, .pdf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw(result: dict[str, Any], path: str | Path) -> None:
    """Recall over budgets with its 95 % band, and its mean over the frames scored. result: from --json."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    by_budget, by_cost = figure.subplots(1, 2)
    for name, summary in result["selectors"].items():
        budgets = [int(k) for k in summary if k != "all"]
        hits, low, high = ([summary[str(k)][m] for k in budgets] for m in ("hit", "hit_low", "hit_high"))
        (line,) = by_budget.plot(budgets, hits, marker="o", markersize=4, label=name)
        by_budget.fill_between(budgets, low, high, color=line.get_color(), alpha=0.08)
        at = (summary["all"]["candidates"], summary["all"]["objective"])
        by_cost.scatter(*at, color=line.get_color(), s=40)
        by_cost.annotate(name, at, xytext=(5, 4), textcoords="offset points", fontsize=8)
    by_budget.set_xscale("log", base=2)
    by_budget.set_xticks(budgets, [str(k) for k in budgets])
    by_budget.set(xlabel="frame budget K", ylabel="questions with a frame in an interval", ylim=(0, 1.02))
    by_budget.legend(fontsize=8)
    by_budget.grid(alpha=0.3)
    by_cost.set(xlabel="frames scored per question, all budgets", ylabel="mean over budgets", ylim=(0, 1.02))
    by_cost.grid(alpha=0.3)
    figure.suptitle(f"Evidence recall over {result['questions']} questions")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2])
