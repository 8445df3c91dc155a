"""framenest report."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from framenest import extract as extraction
from framenest.cache.archive import write_atomic
from framenest.cli import options
from framenest.cli.files import check_writable
from framenest.cli.terminal import Bars, out
from framenest.protocols import Store
from framenest.report import figure
from framenest.report.document import document
from framenest.report.page import page
from framenest.report.thumbnails import embed, read_pictures
from framenest.selectors.selection import load_result
from framenest.text import size_text


@click.command()
@click.argument("rankings", nargs=-1, required=True, metavar="RANKING...")
@click.option("-o", "--output", metavar="FILE", help="The page. [default: report.html]")
@click.option("--png", metavar="FILE", help="Draw the paper's figure instead: budgets 8, 16 and 32.")
@click.option("--svg", metavar="FILE", help="The same figure as SVG.")
@click.option("--video", metavar="PATH", help="Where the video is now, if it has moved.")
@options.common
def report(
    rankings: tuple[str, ...],
    output: str | None,
    png: str | None,
    svg: str | None,
    video: str | None,
    cache: Store,
    quiet: bool,
) -> None:
    """Write a page to look at RANKINGS: timeline, budget slider, frames, and why each was chosen.

    One HTML file that needs nothing else and sends nothing anywhere. Several rankings or selections of
    one video stand side by side on one time axis.

    \b
    framenest report kiln.json -o kiln.html
    framenest report mec.json aks.json uniform.json -o compared.html
    framenest report kiln.json --png kiln.png --svg kiln.svg
    """
    results = [load_result(ranking) for ranking in rankings]
    figures = {kind: Path(file) for kind, file in (("png", png), ("svg", svg)) if file is not None}
    target = Path(output or "report.html") if output is not None or not figures else None
    for file in (*figures.values(), *([target] if target else [])):
        check_writable(file)
    made = document(results, names=[Path(ranking).stem for ranking in rankings])
    decoder = extraction.reopen(results[0].video, path=video, store=cache)
    if figures:
        frames = figure.figure_frames(results)
        with Bars(quiet) as bars:
            _, pictures = read_pictures(decoder, frames, set(frames), bars)
        for kind, file in figures.items():
            _write(file, getattr(figure, kind)(results, pictures), "figure")
    if target is not None:
        with Bars(quiet) as bars:
            urls = embed(decoder, results, progress=bars)
        _write(target, page(made, urls).encode("utf-8", "replace"), f"report with {len(urls)} frames")


def _write(file: Path, data: bytes, what: str) -> None:
    write_atomic(file, data)
    out.print(f"{what} in {file} ({size_text(len(data))})", soft_wrap=True, markup=False)
