"""framenest select, framenest compare."""

from __future__ import annotations

from pathlib import Path

import rich_click as click
from rich import box
from rich.markup import escape
from rich.table import Table

from framenest import extract as extraction
from framenest.cli import options
from framenest.cli.files import check_picture, check_writable
from framenest.cli.terminal import Bars, note, out, print_prefix, short_path
from framenest.config import ScorerConfig
from framenest.evaluation.recall import largest_gap
from framenest.frames import ImageSpec
from framenest.protocols import Store
from framenest.report.compare import comparison
from framenest.selectors import load_selector, selector_names
from framenest.session import Session
from framenest.video import open_video

NAMES = ", ".join(selector_names()) + ", or file:PATH for a list of AKS or WFS-SB"


@click.command()
@click.argument("video")
@click.argument("question")
@click.option("--selector", default="mec", show_default=True, metavar="NAME", help=f"One of {NAMES}.")
@click.option(
    "-k", "--budget", "budgets", type=options.Budgets(), multiple=True, required=True, help="8,16,32"
)
@click.option("-o", "--output", metavar="FILE", help="Write the selection here as JSON.")
@options.video
@options.scorer
@options.common
def select(
    video: str,
    question: str,
    selector: str,
    budgets: tuple[list[int], ...],
    output: str | None,
    fps: float | None,
    stream: int | None,
    decoder: str,
    scorer: str,
    scoring: ScorerConfig,
    cache: Store,
    quiet: bool,
) -> None:
    """Select frames of VIDEO for QUESTION with any selector, one list per budget.

    Most selectors do not rank: each budget is chosen anew. For one ranking that serves every budget use
    `framenest rank`.

    \b
    framenest select kiln.mp4 "What happens after firing?" --selector aks -k 8,16 -o aks.json
    """
    if output is not None:
        check_writable(Path(output))
    bars = Bars(quiet)
    space = Session(scorer, store=cache, progress=bars, scoring=scoring)
    chosen = load_selector(selector, space)
    with bars:
        opened = open_video(video, fps=fps, stream=stream, decoder=decoder, store=cache)
        made = chosen.select(opened, question, options.flat(budgets))
    out.print(
        f"[dim]selector[/] {escape(made.selector)}  [dim]scorer[/] {escape(made.scorer)}", soft_wrap=True
    )
    if "diversity" in made.stats:
        note(f"{selector} compares frames by {made.stats['diversity']}")
    for prefix in made.prefixes.values():
        print_prefix(prefix)
        if len(prefix) < prefix.budget:
            note(f"{selector} gives {len(prefix)} frames for a budget of {prefix.budget}")
    if output is not None:
        made.save(output)
        out.print(f"[dim]written to[/] {escape(output)}", soft_wrap=True)


@click.command()
@click.argument("video")
@click.argument("question")
@click.option(
    "--selectors", default="mec,uniform,top-k,aks,wfs-sb,bolt", show_default=True, help=f"Of {NAMES}."
)
@click.option(
    "-k", "--budget", type=int, default=16, show_default=True, help="Frames that each selector gets."
)
@click.option(
    "-o", "--output", default="comparison.png", show_default=True, metavar="FILE", help="The picture."
)
@options.video
@options.scorer
@options.common
def compare(
    video: str,
    question: str,
    selectors: str,
    budget: int,
    output: str,
    fps: float | None,
    stream: int | None,
    decoder: str,
    scorer: str,
    scoring: ScorerConfig,
    cache: Store,
    quiet: bool,
) -> None:
    """Compare what selectors choose for QUESTION: one table, one picture.

    \b
    framenest compare kiln.mp4 "What happens after firing?" --selectors mec,uniform,aks -k 16
    """
    check_picture(Path(output))
    bars = Bars(quiet)
    space = Session(scorer, store=cache, progress=bars, scoring=scoring)
    names = options.names(selectors)
    ready = [load_selector(name, space) for name in names]
    short = [selector.name for selector in ready]
    labels = [name if short.count(own) > 1 else own for name, own in zip(names, short, strict=True)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("selector")
    for heading in ("frames", "looked at", "seconds", "largest gap", "shared with the first"):
        table.add_column(heading, justify="right")
    prefixes, thumbnails = {}, {}
    with bars:
        opened = open_video(video, fps=fps, stream=stream, decoder=decoder, store=cache)
        for label, selector in zip(labels, ready, strict=True):
            made = selector.select(opened, question, [budget])
            prefix = made.prefixes[budget]
            prefixes[label] = prefix
            pictures = extraction.read_prefix(opened, prefix, ImageSpec.short_side(120))
            thumbnails[label] = [p for batch in pictures for p in batch.pixels[0]][:8]
            first = set(prefixes[labels[0]].frames.tolist())
            table.add_row(
                label,
                str(len(prefix)),
                f"{made.stats.get('candidates', 0):,}",
                f"{made.stats.get('wall_seconds', 0.0):.2f}",
                f"{100 * largest_gap(prefix.seconds, opened.info.duration):.0f} %",
                f"{len(first & set(prefix.frames.tolist()))}",
            )
    out.print(table)
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    comparison(prefixes, thumbnails, title=question).save(output)
    out.print(
        f"[dim]{short_path(opened.info.path)}, K={budget}; picture in[/] {escape(output)}", soft_wrap=True
    )
