"""framenest evaluate ablations."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from framenest.cli import options
from framenest.cli.common_options import Common
from framenest.cli.evaluate_recall import QuestionSet
from framenest.cli.options import argument, option
from framenest.cli.output_files import OutputFile, write_json
from framenest.cli.terminal import out, table
from framenest.config import ScorerConfig
from framenest.evaluation.recall_run import ablations as run_ablations


@click.command("ablations")
@options.from_parameters
def ablations(
    *,
    questions: str = argument(),
    json_file: Path | None = option("Write all numbers here.", flag="--json", type=OutputFile()),
    question_set: QuestionSet,
    scoring: ScorerConfig,
    common: Common,
) -> None:
    """The paper's component, schedule and horizon tables on QUESTIONS, with hit@K for accuracy.

    \b
    framenest evaluate ablations qa.json --scorer tags
    """
    entries = question_set.load(questions)
    with common.bars() as bars:
        session = question_set.session(scoring, common, bars)
        measured = run_ablations(entries, session, progress=bars)
    for title in ("components", "schedules"):
        rows = table("variant", "low", "medium", "high", "average", left=["variant"], title=title)
        for name, row in measured[title].items():
            rows.add_row(name, *(f"{100 * value:.2f}" for value in row.values()))
        out.print(rows)
    budgets = list(measured["horizons"]["256"])
    rows = table("M", *budgets, title="horizons (M \\ K)")
    for horizon, row in measured["horizons"].items():
        rows.add_row(horizon, *(f"{100 * row[k]:.2f}" if k in row else "–" for k in budgets))
    out.print(rows)
    write_json(json_file, {"scorer": question_set.scorer, **measured})
