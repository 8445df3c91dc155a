"""The paper's tables beside one's own numbers, with the differences, its summary figures and figure 1(b).

    python benchmarks/reproduce.py --run benchmarks/plan.toml [--only main,ablation] [--estimate | --dry-run]
    python benchmarks/reproduce.py results/ --efficiency seconds.json --figure plot.png -o tables.md

The first runs a plan: it tells the GPU hours of each table, starts and ends servers, selects frames, asks
models, goes on where it was interrupted, and writes tables.md and tradeoff.png into the plan's folder
(run_plan.py). The second draws tables from results alone.

RESULTS are result files of lmms-eval, or folders of these, with their files of samples beside them. All
tables are printed; -o also writes them into a file. The paper's numbers are in benchmarks/paper.json.

Behind ± is the standard error of a proportion, which Video-MME-v2's Non-Lin. and MLVU's mean of types are
not; in brackets the number of answers. A score over fewer answers than there are questions is in no mean and
no difference. All runs of a model must be alike but for selector and K.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmms_eval_results import TaskRun, read_result_files
from run_plan import Plan, run_plan

from framenest.errors import ConfigError, FramenestError
from framenest.evaluation.recall import REGIMES

HERE = Path(__file__).parent
PAPER = json.loads((HERE / "paper.json").read_text())
COLUMNS = ("Short", "Medium", "Long", "Overall", "Non-Lin.", "Micro Acc.", "LVB", "MLVU")
"""Of the main table."""
BUDGETS = (8, 16, 32, 64, 128, 256)
FINE = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FIVE = BUDGETS[:5]
NINE = "Qwen3.5-9B"
MODELS = ("Qwen3.5-4B", NINE, "Qwen3.5-35B-A3B", "LLaVA-OneVision-2", "InternVL3_5")
AVERAGED = ("Overall", "Micro Acc.", "LVB", "MLVU")
COSTS = ("Candidates", "Preprocessing s", "Selection s", "Frames s", "Model s", "End to end s")
PARTS = ("decode", "encode", "match", "rule", "frames", "model", "end_to_end")
TITLES = {
    "runs": "Your runs",
    "summary": "What the abstract and the introduction say",
    "main": "Main table: Qwen3.5-9B, thinking off",
    "llava": "LLaVA-OneVision-2, a figure without numbers in the paper",
    "internvl": "InternVL3.5, a figure without numbers in the paper",
    "ablation": "Components: Video-MME Overall, means of K = 8, 16; 32, 64; 128, 256",
    "schedules": "Schedules, likewise (the paper's average for front-loaded is not the mean of its parts)",
    "horizons": "Horizons: Video-MME Overall",
    "scales": "Sizes of Qwen3.5: Video-MME Overall",
    "budgets": "Eleven budgets: Video-MME Overall",
    "thinking": "Thinking on: Video-MME Overall",
    "efficiency": "Efficiency: seconds a question, Video-MME Long",
    "parts": "The parts of these seconds",
}


class Score(float):
    """A score in percent. error: its standard error, if it is a proportion. whole: it rests on answers to all
    questions. answers: how many these are, in words."""

    def __new__(cls, value: float, run: TaskRun, column: str) -> Score:
        score = super().__new__(cls, value)
        score.whole = run.answered == run.questions
        part = 3 if column in ("Short", "Medium", "Long") and "Overall" in run.scores else 1
        more = f"{run.answered:,} of {run.questions:,}"
        score.answers = f"{run.answered // part:,}" if score.whole else more
        proportion = column not in ("Non-Lin.", "MLVU") and score.whole
        score.error = max(0.0, value * (100 - value) * part / run.answered) ** 0.5 if proportion else None
        return score

    error: float | None
    whole: bool
    answers: str


Numbers = Sequence[float | None]


def cell(value: Any) -> str:
    """A number with two decimals, as in the paper; empty for None."""
    if isinstance(value, Score):
        error = "" if value.error is None else f" ± {value.error:.2f}"
        return f"{value:.2f}{error} ({value.answers})"
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def whole(value: float | None) -> float | None:
    """None for a score over fewer answers than there are questions."""
    return None if isinstance(value, Score) and not value.whole else value


def refuse_mixed(runs: Sequence[TaskRun]) -> None:
    """Refuse runs of a model that differ in more than selector and K."""
    ways: dict[tuple[str, bool, str], TaskRun] = {}
    for run in runs:
        model = next((name for name in MODELS if name in run.model), run.model)
        for name, value in run.way.items():
            first = ways.setdefault((model, run.thinking, name), run)
            if first.way[name] != value:
                raise ConfigError(
                    f"{model}: {name} is {first.way[name]!r} in {first.file} ({first.task}) and {value!r} in "
                    f"{run.file} ({run.task}); one table needs one way of running"
                )


class Own:
    """One's own scores, by model and whether it thought, and seconds (a file of efficiency.py)."""

    def __init__(self, files: Sequence[str] = (), efficiency: str | None = None) -> None:
        self.runs = [run for file in files for run in read_result_files(file)]
        refuse_mixed(self.runs)
        self.seconds: dict[str, Any] = {} if efficiency is None else json.loads(Path(efficiency).read_text())

    def score(
        self, column: str, selector: str, budget: int, model: str = NINE, thinking: bool = False
    ) -> float | None:
        """In percent, of the run with the most answers; two such runs must agree."""
        wanted = (thinking, selector, budget)
        fitting = [
            run
            for run in self.runs
            if (run.thinking, run.selector, run.budget) == wanted
            and model in run.model
            and column in run.scores
        ]
        if not fitting:
            return None
        most = max(run.answered / run.questions for run in fitting)
        best, *others = [run for run in fitting if run.answered / run.questions == most]
        for other in others:
            if other.scores[column] != best.scores[column]:
                raise ConfigError(
                    f"{best.file} ({best.task}) and {other.file} ({other.task}) have different scores "
                    f"for {column} of {selector} at K = {budget}; give one of them"
                )
        return Score(best.scores[column], best, column)

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
    """None if one is missing or partial: an average over fewer would be another number."""
    there = [value for value in map(whole, values) if value is not None]
    return sum(there) / len(there) if there and len(there) == len(values) else None


def minus(a: Numbers, b: Numbers) -> Numbers:
    """None if one is missing or partial."""
    both = zip(map(whole, a), map(whole, b), strict=True)
    return [None if x is None or y is None else x - y for x, y in both]


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
    return float(PAPER["main"][str(budget)][selector][COLUMNS.index(column)])


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


def runs_table(runs: Sequence[TaskRun]) -> str:
    """A row for each task of each run: how many answers its scores rest on."""
    lines = ["| Model | Task | K | Answered | Questions | Failed | Scorer |", "|" + "---|" * 7]
    for run in runs:
        model = f"{run.model}, thinking" if run.thinking else run.model
        counts = f"{run.answered:,} | {run.questions:,} | {run.failed:,}"
        lines.append(f"| {model} | {run.task} | {run.budget} | {counts} | {run.way.get('scorer', '')} |")
    return "\n".join(lines) if runs else ""


def tables(own: Own) -> dict[str, str]:
    """Markdown, by name."""
    regimes, budgets = ["Low", "Med.", "High", "Avg."], [str(k) for k in BUDGETS]
    main = PAPER["main"]
    made = {
        "runs": runs_table(own.runs),
        "summary": pairs(["Figure"], ["Value"], summary(own)),
        "main": pairs(
            ["K", "Selector"],
            list(COLUMNS),
            [
                ([k, name], numbers, [own.score(column, name, int(k)) for column in COLUMNS])
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
    for name, key in (("ablation", "components"), ("schedules", "schedules")):
        rows = [([f"`{s}`"], numbers, own.regimes(s)) for s, numbers in PAPER[key].items()]
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
    place = COLUMNS.index("Overall")
    made["budgets"] = pairs(["Selector"], [str(k) for k in FINE], [
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
        mine = [(str(k), seconds, score) for k, seconds, score in both if whole(score) is not None]
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
    parser.add_argument("results", nargs="*", help="result files of lmms-eval, or folders of them")
    parser.add_argument("--run", metavar="PLAN", help="run what a plan says, such as benchmarks/plan.toml")
    parser.add_argument("--only", default="", metavar="TABLE,…", help="with --run: these tables alone")
    parser.add_argument("--estimate", action="store_true", help="with --run: tell the GPU hours, and stop")
    parser.add_argument("--dry-run", action="store_true", help="with --run: print the commands alone")
    parser.add_argument("--efficiency", help="a file of benchmarks/efficiency.py")
    parser.add_argument("--figure", help="draw figure 1(b), accuracy over latency, here")
    parser.add_argument("-o", "--output", help="write the tables into this Markdown file")
    given = parser.parse_args(arguments)
    only = [name.strip() for name in given.only.split(",") if name.strip()]
    if given.run:
        plan = Plan(given.run, only, given.dry_run)
        Own(plan.results())  # refuses two ways of running before a third
        if not run_plan(plan, stop_after_estimate=given.estimate):
            return
        given.results = plan.results()
        if (plan.folder / "efficiency.json").exists():
            given.efficiency = str(plan.folder / "efficiency.json")
            given.figure = str(plan.folder / "tradeoff.png")
        given.output = str(plan.folder / "tables.md")
    own = Own(given.results, given.efficiency)
    wanted = [*only, "runs"] if only else TITLES
    shown = {name: table for name, table in tables(own).items() if table and name in wanted}
    page = "\n\n".join(f"## {TITLES[name]}\n\n{table}" for name, table in shown.items())
    print(page)
    if given.figure:
        draw(tradeoff(own), given.figure)
        print(given.figure)
    if given.output:
        Path(given.output).write_text(page + "\n")
        print(given.output)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FramenestError as error:
        sys.exit(f"error: {error}")
