"""framenest report."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from framenest import extract as extraction
from framenest.archive import write_atomic
from framenest.cli import options
from framenest.cli.files import check_writable
from framenest.cli.terminal import Bars, bytes_text, out
from framenest.report.page import document, embed, page
from framenest.selection import load_result
from framenest.store import DirectoryStore


@click.command()
@click.argument("rankings", nargs=-1, required=True, metavar="RANKING...")
@click.option("-o", "--output", metavar="FILE", help="The page. [default: report.html]")
@click.option("--video", metavar="PATH", help="Where the video is now, if it has moved.")
@options.common
def report(
    rankings: tuple[str, ...],
    output: str | None,
    video: str | None,
    cache: DirectoryStore,
    quiet: bool,
) -> None:
    """Write a page to look at RANKINGS: timeline, budget slider, frames, and why each was chosen.

    One HTML file that needs nothing else and sends nothing anywhere. Several rankings or selections of
    one video stand side by side on one time axis.

    \b
    framenest report kiln.json -o kiln.html
    framenest report mec.json aks.json uniform.json -o compared.html
    """
    results = [load_result(ranking) for ranking in rankings]
    target = Path(output or "report.html")
    check_writable(target)
    made = document(results, names=[Path(ranking).stem for ranking in rankings])
    decoder = extraction.reopen(results[0].video, path=video, store=cache)
    bars = Bars(quiet)
    with bars:
        pictures = embed(decoder, results, progress=bars)
    data = page(made, pictures).encode("utf-8", "replace")
    write_atomic(target, data)
    out.print(
        f"report with {len(pictures)} frames in {target} ({bytes_text(len(data))})",
        soft_wrap=True,
        markup=False,
    )
