"""framenest evaluate."""

from __future__ import annotations

import rich_click as click

from framenest.cli.evaluate_ablations import ablations
from framenest.cli.evaluate_qa import qa
from framenest.cli.evaluate_recall import recall
from framenest.cli.evaluate_table import results_table


@click.group()
def evaluate() -> None:
    """Measure selectors on question sets with known answers."""


for command in (recall, ablations, qa, results_table):
    evaluate.add_command(command)
