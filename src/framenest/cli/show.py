"""framenest show."""

from __future__ import annotations

import rich_click as click

from framenest.cli import options
from framenest.cli.options import Common, argument, option
from framenest.cli.terminal import print_facts, print_prefix, print_ranks, say_labelled
from framenest.selectors.selection import Selection, load_result


@click.command()
@options.from_parameters
def show(
    *,
    ranking: str = argument(),
    budget: int | None = option("How many ranks to show. [default: 16, or all if fewer]", short="-k"),
    common: Common,
) -> None:
    """Show a RANKING file: the first ranks, their times and why they were chosen.

    \b
    framenest show kiln.json -k 32
    """
    loaded = load_result(ranking)
    if isinstance(loaded, Selection):
        say_labelled("selector", loaded.selector, "scorer", loaded.scorer)
        for chosen in loaded.prefixes.values() if budget is None else [loaded.prefix(budget)]:
            print_prefix(chosen)
        return
    prefix = loaded.prefix(min(16, len(loaded)) if budget is None else budget)
    print_facts(loaded)
    print_ranks(loaded, len(prefix))
    print_prefix(prefix)
