"""framenest select."""

from __future__ import annotations

from collections.abc import Sequence

from framenest.cli import options
from framenest.cli.option_groups import Common, ScorerChoice, VideoOptions
from framenest.cli.options import Budgets, OutputFile, SelectorNames, argument, option
from framenest.cli.printing import note_if_short, print_prefix
from framenest.cli.terminal import confirm, note, out, table
from framenest.errors import ConfigError
from framenest.evaluation.recall import largest_gap
from framenest.selectors import load_selector, selector_names
from framenest.selectors.selection import Selection

NAMES = ", ".join(selector_names()) + ", or file:PATH for a list of AKS or WFS-SB"


@options.command()
def select(
    *,
    video: str = argument(),
    question: str = argument(),
    selectors: SelectorNames = option(
        f"One of {NAMES}; several, separated by commas, are compared.", "--selector", default="mec"
    ),
    budgets: Budgets = option("Frame budgets, such as 8,16,32.", "--budget", "-k", required=True),
    output: OutputFile | None = option("Write the selection as JSON; for one selector.", "-o"),
    video_options: VideoOptions,
    scorer: ScorerChoice,
    common: Common,
) -> None:
    """Select frames of VIDEO for QUESTION with any selector, one list per budget.

    Most selectors do not rank: each budget is chosen anew. For one ranking that serves every budget use
    `framenest rank`. Several selectors are compared in a table; `framenest report` shows their files side by
    side.

    \b
    framenest select kiln.mp4 "What happens after firing?" \\
      --selector aks -k 8,16 -o aks.json
    framenest select kiln.mp4 "What happens after firing?" \\
      --selector mec,uniform,aks -k 16
    """
    if output is not None and len(selectors) > 1:
        raise ConfigError("-o writes the selection of one selector; give one at a time")
    with common.bars() as bars:
        session = scorer.session(common, bars, selectors)
        ready = [load_selector(name, session) for name in selectors]
        opened = video_options.open(video, common)
        made = [selector.select(opened, question, budgets) for selector in ready]
    own = [one.name for one in ready]
    labels = [spec if own.count(name) > 1 else name for spec, name in zip(selectors, own, strict=True)]
    if len(made) > 1:
        _print_comparison(labels, made)
    else:
        confirm("selector", made[0].selector, "scorer", made[0].scorer)
    for label, selection in zip(labels, made, strict=True):
        if "diversity" in selection.stats:
            note(f"{label} compares frames by {selection.stats['diversity']}")
        for prefix in selection.prefixes.values():
            if len(made) == 1:
                print_prefix(prefix)
            note_if_short(label, prefix)
    if output is not None:
        made[0].save(output)
        confirm("written to", str(output))


def _print_comparison(labels: Sequence[str], made: Sequence[Selection]) -> None:
    """A row for every selector and budget."""
    headings = ("selector", "K", "frames", "looked at", "seconds", "largest gap", "also in first")
    rows = table(*headings, left=["selector"], wrap=["selector"])
    for label, selection in zip(labels, made, strict=True):
        for budget, prefix in selection.prefixes.items():
            first = made[0].prefixes[budget].frames.tolist()
            rows.add_row(
                label,
                str(budget),
                str(len(prefix)),
                f"{selection.stats.get('candidates', 0):,}",
                f"{selection.stats.get('wall_seconds', 0.0):.2f}",
                f"{100 * largest_gap(prefix.seconds, selection.video.duration):.0f} %",
                str(len(set(first) & set(prefix.frames.tolist()))),
            )
    out.print(rows)
