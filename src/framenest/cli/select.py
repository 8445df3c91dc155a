"""framenest select."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from framenest.cli import options
from framenest.cli.exports import OutputFile
from framenest.cli.options import Common, SelectorName, VideoOptions, argument, option
from framenest.cli.printing import note_if_short, print_prefix
from framenest.cli.scorer_options import ScorerChoice
from framenest.cli.terminal import confirm, note
from framenest.selectors import load_selector, selector_names

NAMES = ", ".join(selector_names()) + ", or file:PATH for a list of AKS or WFS-SB"


@click.command()
@options.from_parameters
def select(
    *,
    video: str = argument(),
    question: str = argument(),
    selector: str = option(f"One of {NAMES}.", type=SelectorName(), default="mec"),
    budgets: list[int] = options.budgets(
        "Frame budgets, such as 8,16,32; may be given again.", required=True
    ),
    output: Path | None = option("Write the selection here as JSON.", short="-o", type=OutputFile()),
    video_options: VideoOptions,
    scorer: ScorerChoice,
    common: Common,
) -> None:
    """Select frames of VIDEO for QUESTION with any selector, one list per budget.

    Most selectors do not rank: each budget is chosen anew. For one ranking that serves every budget use
    `framenest rank`.

    \b
    framenest select kiln.mp4 "What happens after firing?" \\
      --selector aks -k 8,16 -o aks.json
    """
    with common.bars() as bars:
        chosen = load_selector(selector, scorer.session(common, bars, [selector]))
        made = chosen.select(video_options.open(video, common), question, budgets)
    confirm("selector", made.selector, "scorer", made.scorer)
    if "diversity" in made.stats:
        note(f"{selector} compares frames by {made.stats['diversity']}")
    for prefix in made.prefixes.values():
        print_prefix(prefix)
        note_if_short(selector, prefix)
    if output is not None:
        made.save(output)
        confirm("written to", str(output))
