"""The paper's tables with room for one's own numbers: fills docs/reproduce.md from results.

    python benchmarks/reproduce.py results.jsonl --cost cost.jsonl -o mine.md
    python benchmarks/reproduce.py                # without results: the page as it is in docs/

The paper's numbers are in benchmarks/paper.json.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from framenest.evaluation.benchmark_scores import MAIN_TABLE
from framenest.evaluation.qa_results import QaResults
from framenest.evaluation.qa_tables import Row, ScoredAnswers, cell, cost_table, regime_table

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reproduce.md"
BUDGETS = (8, 16, 32, 64, 128, 256)
FINE = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
NINE = "Qwen3.5-9B"


class Own:
    """One's own scores, by model and whether it thought. costs: of the run made to measure seconds."""

    def __init__(self, files: list[str], costs: list[str] | None = None) -> None:
        self.scored = ScoredAnswers([QaResults(file) for file in files])
        self.costs = None if costs is None else Own(costs)

    def hows(self, model: str, thinking: bool = False) -> list[str]:
        """The ways of running that fit; another set of annotations is another way."""
        return [
            how
            for how, settings in self.scored.settings.items()
            if model in settings["model"] and bool(settings["thinking"]) == thinking
        ]

    def score(
        self, column: str, selector: str, budget: int, model: str = NINE, thinking: bool = False
    ) -> float | None:
        dataset, score = MAIN_TABLE[column]
        found = (
            self.scored.scores(how, selector, budget, dataset).get(score)
            for how in self.hows(model, thinking)
        )
        return next((number for number in found if number is not None), None)

    def row(
        self, table: Callable[[ScoredAnswers], list[Row]], selector: str, columns: list[str]
    ) -> list[float | None]:
        rows = [row for how in self.hows(NINE) for row in table(self.scored.only(how))]
        found = next((row for row in rows if row["Selector"] == selector), {})
        return [found.get(column) for column in columns]

    def cost(self, selector: str, columns: list[str]) -> list[float | None]:
        return self.costs.row(cost_table, selector, columns) if self.costs else [None] * len(columns)


def pairs(first: list[str], columns: list[str], rows: list[tuple[list[str], list, list]]) -> str:
    """Two lines for each row: the paper's numbers, and one's own."""
    lines = ["| " + " | ".join([*first, "", *columns]) + " |", "|" + "---|" * (len(first) + 1 + len(columns))]
    for names, paper, own in rows:
        lines.append("| " + " | ".join([*names, "paper", *map(cell, paper)]) + " |")
        lines.append("| " + " | ".join([*[""] * len(names), "yours", *map(cell, own)]) + " |")
    return "\n".join(lines)


def tables(own: Own) -> dict[str, str]:
    """Markdown by the names that the page's markers have."""
    paper = json.loads((HERE / "paper.json").read_text())
    regimes, costs = ["Low", "Med.", "High", "Avg."], ["Candidates", "Selection s", "Answer s"]
    budgets = [str(k) for k in BUDGETS]
    nine = paper["main"]

    def overall(
        selectors: Sequence[str], model: str = NINE, thinking: bool = False, at: Sequence[int] = BUDGETS
    ) -> list[list[float | None]]:
        return [[own.score("Overall", name, k, model, thinking) for k in at] for name in selectors]

    made = {
        "main": pairs(
            ["K", "Selector"],
            list(MAIN_TABLE),
            [
                ([k, name], numbers, [own.score(column, name, int(k)) for column in MAIN_TABLE])
                for k, rows in nine.items()
                for name, numbers in rows.items()
            ],
        )
    }
    for name in ("components", "schedules"):
        rows = [
            ([f"`{s}`"], numbers, own.row(regime_table, s, regimes)) for s, numbers in paper[name].items()
        ]
        made[name] = pairs(["Variant"], regimes, rows)
    rows = [
        ([m], numbers, overall([f"mec:horizon={m}" if m != "256" else "mec"])[0])
        for m, numbers in paper["horizons"].items()
    ]
    made["horizons"] = pairs(["M \\ K"], budgets, rows)
    rows = [
        ([size, name], numbers, overall([name], f"Qwen3.5-{size}")[0])
        for size, group in paper["scales"].items()
        for name, numbers in group.items()
    ]
    made["scales"] = pairs(["Size", "Selector"], budgets, rows)
    places = [list(MAIN_TABLE).index("Overall")]
    fine = [
        (
            [s],
            [nine[str(k)][s][places[0]] if str(k) in nine else None for k in FINE],
            overall([s], at=FINE)[0],
        )
        for s in ("uniform", "mec")
    ]
    made["fine"] = pairs(["Selector"], [str(k) for k in FINE], fine)
    five = BUDGETS[:5]
    uniform, mec = overall(("uniform", "mec"), thinking=True, at=five)
    gain = [None if u is None or m is None else m - u for u, m in zip(uniform, mec, strict=True)]
    rows = [
        (["uniform"], [None] * 5, uniform),
        (["mec"], [None] * 5, mec),
        (["gain"], list(paper["thinking_gain"].values()), gain),
    ]
    made["thinking"] = pairs(["Selector"], [str(k) for k in five], rows)
    rows = [
        ([s], [numbers[0], numbers[2], 9.72], own.cost(s, costs))
        for s, numbers in paper["efficiency"].items()
    ]
    made["efficiency"] = pairs(["Selector"], costs, rows)
    return made


def filled(page: str, made: dict[str, str]) -> str:
    """The page with each table between its markers."""
    for name, table in made.items():
        pattern = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
        page, count = re.subn(pattern, lambda m, t=table: f"{m[1]}\n{t}\n\n{m[2]}", page, flags=re.S)
        assert count == 1, name
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", nargs="*", help="of `framenest evaluate qa`")
    parser.add_argument("--cost", nargs="+", help="results of the run for the efficiency table")
    parser.add_argument("-o", "--output", default=str(PAGE))
    given = parser.parse_args()
    Path(given.output).write_text(filled(PAGE.read_text(), tables(Own(given.results, given.cost))))
    print(given.output)
