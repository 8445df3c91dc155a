"""framenest show."""

from __future__ import annotations

import csv
from typing import Any

import rich_click as click

from framenest.cli import options
from framenest.cli.common_options import Common
from framenest.cli.options import argument, option
from framenest.cli.ranking_printer import print_facts, print_prefix, print_ranks
from framenest.cli.terminal import out, say_labelled
from framenest.method.ranking import Ranking
from framenest.selectors.selection import Selection, load_result


@click.command()
@options.from_parameters
def show(
    *,
    ranking: str = argument(),
    budget: int | None = option("How many ranks to show. [default: 16, or all if fewer]", short="-k"),
    as_csv: bool = option(
        "Print CSV instead: rank, frame, seconds and what each was ranked by; all ranks unless -k is given.",
        flag="--csv",
    ),
    common: Common,
) -> None:
    """Show a RANKING file: the first ranks, their times and why they were chosen.

    \b
    framenest show kiln.json -k 32
    framenest show kiln.json --csv > kiln.csv
    """
    loaded = load_result(ranking)
    if as_csv:
        _print_csv(loaded, budget)
        return
    if isinstance(loaded, Selection):
        say_labelled("selector", loaded.selector, "scorer", loaded.scorer)
        for chosen in loaded.prefixes.values() if budget is None else [loaded.prefix(budget)]:
            print_prefix(chosen)
        return
    prefix = loaded.prefix(min(16, len(loaded)) if budget is None else budget)
    print_facts(loaded)
    print_ranks(loaded, len(prefix))
    print_prefix(prefix)


def _print_csv(result: Ranking | Selection, budget: int | None) -> None:
    write = csv.writer(out.file, lineterminator="\n").writerow
    if isinstance(result, Selection):
        write(["budget", "rank", "frame", "seconds"])
        for chosen in result.prefixes.values() if budget is None else [result.prefix(budget)]:
            for rank, second, frame in chosen:
                write([chosen.budget, rank, frame, f"{second:.3f}"])
        return
    columns: dict[str, Any] = {"evidence": result.evidence, **result.cues, **result.terms}
    write(["rank", "frame", "seconds", "from", *columns])
    for i in range(len(result) if budget is None else len(result.prefix(budget))):
        where = [i + 1, int(result.frames[i]), f"{result.seconds[i]:.3f}"]
        values = (f"{float(column[i]):.6g}" for column in columns.values())
        write([*where, "zoom" if result.is_zoom[i] else "probe", *values])
