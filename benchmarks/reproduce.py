"""The paper's tables beside one's own numbers, with the differences, its summary figures and figure 1(b).

    python benchmarks/reproduce.py results.jsonl logs/ --efficiency seconds.json --figure plot.png -o mine.md

RESULTS are files of `framenest evaluate qa` (.jsonl), result files of lmms-eval (.json), or folders of these.
All tables are printed; -o writes docs/reproduce.md with them filled in. The paper's numbers are in
benchmarks/paper.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmms_eval_results import ResultFileScores, read_result_files
from machine import filled

from framenest.evaluation.benchmarks import MAIN_TABLE
from framenest.evaluation.qa_results import QaResults, ScoredAnswers, cell
from framenest.evaluation.recall import REGIMES

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reproduce.md"
PAPER = json.loads((HERE / "paper.json").read_text())
BUDGETS = (8, 16, 32, 64, 128, 256)
FINE = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FIVE = BUDGETS[:5]
NINE = "Qwen3.5-9B"
AVERAGED = ("Overall", "Micro Acc.", "LVB", "MLVU")
COSTS = ("Candidates", "Preprocessing s", "Selection s", "Frames s", "Model s", "End to end s")
PARTS = ("decode", "encode", "match", "rule", "frames", "model", "end_to_end")
Numbers = Sequence[float | None]


def files_of(given: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Files of `evaluate qa`, and of lmms-eval."""
    lines, others = [], []
    for name in given:
        place = Path(name)
        inside = sorted(place.rglob("*.jsonl")) if place.is_dir() else [place]
        lines += [file for file in inside if file.suffix == ".jsonl" and "_samples_" not in file.name]
        if place.suffix == ".json" or (place.is_dir() and any(place.rglob("*_results.json"))):
            others.append(place)
    return lines, others


class Own:
    """One's own scores, by model and whether it thought, and seconds (a file of efficiency.py)."""

    def __init__(self, files: Sequence[str] = (), efficiency: str | None = None) -> None:
        lines, others = files_of(files)
        self.scored = ScoredAnswers([QaResults(file) for file in lines])
        self.elsewhere: list[ResultFileScores] = [s for file in others for s in read_result_files(file)]
        self.seconds: dict[str, Any] = {} if efficiency is None else json.loads(Path(efficiency).read_text())

    def score(
        self, column: str, selector: str, budget: int, model: str = NINE, thinking: bool = False
    ) -> float | None:
        """In percent; of several ways of running that fit, the first that has it."""
        hows = [
            how
            for how, settings in self.scored.settings.items()
            if model in settings["model"] and bool(settings["thinking"]) == thinking
        ]
        found = [self.scored.score(how, selector, budget, column) for how in hows]
        found += [
            other.scores.get(column)
            for other in self.elsewhere
            if model in other.model
            and (other.thinking, other.selector, other.budget) == (thinking, selector, budget)
        ]
        return next((number for number in found if number is not None), None)

    def overall(self, selector: str, budgets: Sequence[int] = BUDGETS, **how: Any) -> Numbers:
        return [self.score("Overall", selector, k, **how) for k in budgets]

    def regimes(self, selector: str) -> Numbers:
        """Low, Med., High, Avg."""
        by = {k: self.score("Overall", selector, k) for k in BUDGETS}
        return [mean([by[k] for k in group]) for group in (*REGIMES.values(), BUDGETS)]

    def row(self, selector: str) -> dict[str, Any]:
        """What a selector costs; empty if it was not measured."""
        found: dict[str, Any] = self.seconds.get("rows", {}).get(selector, {})
        return found

    def parts(self, selector: str, parts: Sequence[str] = PARTS) -> Numbers:
        return [self.row(selector).get(f"{part}_seconds") for part in parts]

    def cost(self, selector: str, place: str) -> Numbers:
        """In the order of COSTS. place: where encoding counts, "selection" or "preprocessing"."""
        row = self.row(selector)
        split = row.get(f"encode_in_{place}", {})
        pair = [split.get("preprocessing_seconds"), split.get("selection_seconds")]
        return [row.get("candidates"), *pair, *self.parts(selector, ("frames", "model", "end_to_end"))]


def mean(values: Numbers) -> float | None:
    """None where one is missing: an average over fewer would be another number."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there and len(there) == len(values) else None


def minus(a: Numbers, b: Numbers) -> Numbers:
    return [None if x is None or y is None else x - y for x, y in zip(a, b, strict=True)]


def signed(value: float | None) -> str:
    return "" if value is None else f"{round(value, 2) + 0.0:+.2f}"  # no minus before 0.00


def pairs(
    first: list[str], columns: Sequence[str], rows: Sequence[tuple[list[str], Numbers, Numbers]]
) -> str:
    """The paper's numbers, below them one's own if there are any, and the difference where both are."""
    lines = ["| " + " | ".join([*first, "", *columns]) + " |", "|" + "---|" * (len(first) + 1 + len(columns))]
    for names, paper, own in rows:
        lines.append("| " + " | ".join([*names, "paper", *map(cell, paper)]) + " |")
        if any(number is not None for number in own):
            lines.append("| " + " | ".join([*[""] * len(names), "yours", *map(cell, own)]) + " |")
        apart = [signed(value) for value in minus(own, paper)]
        if any(apart):
            lines.append("| " + " | ".join([*[""] * len(names), "difference", *apart]) + " |")
    return "\n".join(lines)


def only_own(first: str, columns: Sequence[str], rows: Sequence[tuple[str, Numbers]]) -> str:
    """For figures of which the paper prints no numbers; nothing without one's own."""
    if all(number is None for _, own in rows for number in own):
        return ""
    lines = [f"| {first} | " + " | ".join(columns) + " |", "|" + "---|" * (1 + len(columns))]
    lines += ["| " + " | ".join([f"{name}, yours", *map(cell, own)]) + " |" for name, own in rows]
    return "\n".join(lines)


def gain_over_uniform(score: Any) -> float | None:
    """Mean of four benchmarks and six budgets: MEC less uniform."""
    cells = [(column, k) for column in AVERAGED for k in BUDGETS]
    return mean(minus([score(c, "mec", k) for c, k in cells], [score(c, "uniform", k) for c, k in cells]))


def gain_over_aks(score: Any) -> float | None:
    """Mean of six budgets on Video-MME Long: MEC less AKS."""
    return mean(minus([score("Long", "mec", k) for k in BUDGETS], [score("Long", "aks", k) for k in BUDGETS]))


def paper_score(column: str, selector: str, budget: int) -> float:
    return float(PAPER["main"][str(budget)][selector][list(MAIN_TABLE).index(column)])


def time_saved(ends: dict[str, float | None], rival: str) -> float | None:
    """Share of the rival's end-to-end time, in percent."""
    mec, other = ends.get("mec"), ends.get(rival)
    return None if mec is None or not other else 100 * (1 - mec / other)


def summary(own: Own) -> list[tuple[list[str], Numbers, Numbers]]:
    """What the abstract and the introduction say."""
    paper_ends = {name: row[-1] for name, row in PAPER["efficiency"].items()}
    own_ends = {name: own.row(name).get("end_to_end_seconds") for name in PAPER["efficiency"]}
    rows = [
        ("points over uniform, four benchmarks, six budgets", gain_over_uniform(paper_score),
         gain_over_uniform(own.score)),
        ("points over AKS, Video-MME Long, six budgets", gain_over_aks(paper_score),
         gain_over_aks(own.score)),
        *((f"% of end-to-end time saved against {title}", time_saved(paper_ends, name),
           time_saved(own_ends, name)) for name, title in (("aks", "AKS"), ("wfs-sb", "WFS-SB"))),
    ]  # fmt: skip
    return [([title], [paper], [mine]) for title, paper, mine in rows]


def tables(own: Own) -> dict[str, str]:
    """Markdown by the names that the page's markers have."""
    regimes, budgets = ["Low", "Med.", "High", "Avg."], [str(k) for k in BUDGETS]
    main = PAPER["main"]
    made = {
        "summary": pairs(["Figure"], ["Value"], summary(own)),
        "main": pairs(
            ["K", "Selector"],
            list(MAIN_TABLE),
            [
                ([k, name], numbers, [own.score(column, name, int(k)) for column in MAIN_TABLE])
                for k, rows in main.items()
                for name, numbers in rows.items()
            ],
        ),
    }
    five = [str(k) for k in FIVE]
    llava = [("uniform frames", "uniform"), ("codec stream", "native"), ("MEC", "mec")]
    made["llava"] = only_own(
        "Video-MME Overall",
        five,
        [(title, own.overall(name, FIVE, model="LLaVA-OneVision-2")) for title, name in llava],
    )
    shown = [("Video-MME", "Overall"), ("LongVideoBench", "LVB")]
    made["internvl"] = only_own(
        "",
        five,
        [
            (f"{title}, {name}", [own.score(column, name, k, model="InternVL3_5") for k in FIVE])
            for title, column in shown
            for name in ("uniform", "mec")
        ],
    )
    for name in ("components", "schedules"):
        rows = [([f"`{s}`"], numbers, own.regimes(s)) for s, numbers in PAPER[name].items()]
        made[name] = pairs(["Variant"], regimes, rows)
    made["horizons"] = pairs(["M \\ K"], budgets, [
        ([m], numbers, own.overall(f"mec:horizon={m}" if m != "256" else "mec"))
        for m, numbers in PAPER["horizons"].items()
    ])  # fmt: skip
    made["scales"] = pairs(["Size", "Selector"], budgets, [
        ([size, name], numbers, own.overall(name, model=f"Qwen3.5-{size}"))
        for size, group in PAPER["scales"].items()
        for name, numbers in group.items()
    ])  # fmt: skip
    place = list(MAIN_TABLE).index("Overall")
    made["fine"] = pairs(["Selector"], [str(k) for k in FINE], [
        ([s], [main[str(k)][s][place] if str(k) in main else None for k in FINE], own.overall(s, FINE))
        for s in ("uniform", "mec")
    ])  # fmt: skip
    uniform, mec = (own.overall(s, FIVE, thinking=True) for s in ("uniform", "mec"))
    made["thinking"] = pairs(["Selector"], five, [
        (["uniform"], [None] * 5, uniform),
        (["mec"], [None] * 5, mec),
        (["gain"], list(PAPER["thinking_gain"].values()), minus(mec, uniform)),
    ])  # fmt: skip
    made["efficiency"] = pairs(["Selector", "Encoding in"], COSTS, [
        ([s, place], [*row[:3], None, PAPER["model_seconds"], row[3]], own.cost(s, place))
        for place in ("selection", "preprocessing")
        for s, row in PAPER["efficiency"].items()
    ])  # fmt: skip
    made["parts"] = only_own(
        "Selector",
        [f"{part.replace('_', ' ').capitalize()} s" for part in PARTS],
        [(name, own.parts(name)) for name in ("uniform", *PAPER["efficiency"])],
    )
    return made


def tradeoff(own: Own) -> dict[str, list[tuple[str, float, float]]]:
    """Figure 1(b): (budget, end-to-end seconds, Video-MME Long) by selector; "mean" is the star.

    The paper prints seconds of the means alone, and none of uniform; those are its stars, called "paper".
    """
    points: dict[str, list[tuple[str, float, float]]] = {}
    for name in ("uniform", *PAPER["efficiency"]):
        points[name] = []
        if name in PAPER["efficiency"]:
            average = sum(paper_score("Long", name, k) for k in BUDGETS) / len(BUDGETS)
            points[name].append(("paper", PAPER["efficiency"][name][-1], average))
        by = own.row(name).get("budgets", {})
        both = [
            (k, by[str(k)]["end_to_end_seconds"], own.score("Long", name, k)) for k in BUDGETS if str(k) in by
        ]
        mine = [(str(k), seconds, score) for k, seconds, score in both if score is not None]
        points[name] += mine
        if len(mine) == len(BUDGETS):
            points[name].append(("mean", *(sum(p[i] for p in mine) / len(mine) for i in (1, 2))))
    return {name: found for name, found in points.items() if found}


def draw(points: dict[str, list[tuple[str, float, float]]], path: str) -> None:
    """Accuracy over latency: filled markers are one's own, hollow stars the paper's means."""
    from matplotlib.figure import Figure  # only --figure needs it

    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (name, own) in enumerate(points.items()):
        colour = f"C{number}"
        line = [point for point in own if point[0] not in ("paper", "mean")]
        axes.plot([p[1] for p in line], [p[2] for p in line], "o-", color=colour, label=name)
        for label, seconds, score in own:
            if label in ("paper", "mean"):
                face = colour if label == "mean" else "none"
                axes.plot(seconds, score, "*", markersize=14, color=colour, markerfacecolor=face)
            else:
                axes.annotate(label, (seconds, score), textcoords="offset points", xytext=(4, 4), fontsize=8)
    axes.set(xlabel="end to end, seconds a question", ylabel="Video-MME Long, %")
    axes.set_title("filled: yours (star: mean of six budgets); hollow stars: the paper's means", fontsize=9)
    axes.legend()
    figure.savefig(path, dpi=160)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", nargs="*", help="of `framenest evaluate qa` or lmms-eval")
    parser.add_argument("--efficiency", help="a file of benchmarks/efficiency.py")
    parser.add_argument("--figure", help="draw figure 1(b), accuracy over latency, here")
    parser.add_argument("-o", "--output", help="write docs/reproduce.md with the tables filled in here")
    given = parser.parse_args(arguments)
    own = Own(given.results, given.efficiency)
    made = tables(own)
    for name, table in made.items():
        print(f"\n{name}\n\n{table}")
    if given.figure:
        draw(tradeoff(own), given.figure)
        print(given.figure)
    if given.output:
        Path(given.output).write_text(filled(PAGE.read_text(), made))
        print(given.output)


if __name__ == "__main__":
    main(sys.argv[1:])
