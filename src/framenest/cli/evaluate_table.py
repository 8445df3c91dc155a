"""framenest evaluate table."""

from __future__ import annotations

from pathlib import Path

import rich_click as click
from rich.markup import escape

from framenest.cli import options
from framenest.cli.common_options import Common
from framenest.cli.options import argument, option
from framenest.cli.output_files import OutputFile, write_json
from framenest.cli.terminal import note, out, say, table
from framenest.errors import StoreError
from framenest.evaluation.qa_results import QaResults
from framenest.evaluation.qa_tables import TABLES, Row, ScoredAnswers, cell, markdown


@click.command("table")
@options.from_parameters
def results_table(
    *,
    files: tuple[str, ...] = argument(nargs=-1, required=True),
    kind: str = option(
        "main: the paper's main table. regimes: Low, Med., High. budgets: a column each. cost: seconds.",
        type=click.Choice(list(TABLES)),
        default="main",
    ),
    as_markdown: bool = option("Print Markdown.", flag="--markdown"),
    json_file: Path | None = option("Write the rows here.", flag="--json", type=OutputFile()),
    common: Common,
) -> None:
    """Tables from the results in FILES, in percent.

    \b
    framenest evaluate table results.jsonl --markdown
    framenest evaluate table results.jsonl --kind regimes
    """
    for file in files:
        if not Path(file).is_file():
            raise StoreError(f"{file}: no such file")
    rows = TABLES[kind](ScoredAnswers([QaResults(file) for file in files]))
    if not rows:
        note(f"no answers for the table {kind!r} in {', '.join(files)}")
    if as_markdown:
        say(markdown(rows))
    else:
        print_rows(rows)
    write_json(json_file, rows)


def print_rows(rows: list[Row]) -> None:
    """One table for each way of running, under a line that says what tells it from the others."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        own = list(row)[: min(list(row).index(name) for name in ("K", "Selector") if name in row)]
        title = ", ".join(f"{name} {row[name]}" for name in own if row[name] != "")
        groups.setdefault(title, []).append({name: row[name] for name in row if name not in own})
    for title, group in groups.items():
        if title:
            out.print(f"[bold]{escape(title)}[/]")
        columns = list(dict.fromkeys(name for row in group for name in row))
        texts = [name for name in columns if any(isinstance(row.get(name), str) for row in group)]
        made = table(*columns, left=texts, wrap=["Selector"], gap=0)
        for row in group:
            made.add_row(*(cell(row.get(name)) for name in columns))
        out.print(made)
