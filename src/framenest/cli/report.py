"""framenest report."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from framenest.cache.atomic_file import write_atomic
from framenest.cli import options
from framenest.cli.common_options import Common
from framenest.cli.options import argument, option
from framenest.cli.output_files import OutputFile, check_writable
from framenest.cli.terminal import confirm
from framenest.cli.video_options import KnownVideo
from framenest.report import figure
from framenest.report.document import document
from framenest.report.page import page
from framenest.report.thumbnails import embed, read_pictures
from framenest.selectors.selection import load_result
from framenest.text import size_text


@click.command()
@options.from_parameters
def report(
    *,
    rankings: tuple[str, ...] = argument(nargs=-1, required=True, metavar="RANKING..."),
    output: Path | None = option("The page. [default: report.html]", short="-o", type=OutputFile()),
    png: Path | None = option("Draw the paper's figure instead: budgets 8, 16 and 32.", type=OutputFile()),
    svg: Path | None = option("The same figure as SVG.", type=OutputFile()),
    known: KnownVideo,
    common: Common,
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
    figures = {draw: file for draw, file in ((figure.png, png), (figure.svg, svg)) if file is not None}
    if output is None and not figures:
        output = check_writable(Path("report.html"))
    made = document(results, names=[Path(ranking).stem for ranking in rankings])
    decoder = known.reopen(results[0].video, common)
    if figures:
        frames = figure.figure_frames(results)
        with common.bars() as bars:
            _, pictures = read_pictures(decoder, frames, set(frames), bars)
        for draw, file in figures.items():
            _write(file, draw(results, pictures), "figure")
    if output is not None:
        with common.bars() as bars:
            urls = embed(decoder, results, progress=bars)
        _write(output, page(made, urls).encode("utf-8", "replace"), f"report with {len(urls)} frames")


def _write(file: Path, data: bytes, what: str) -> None:
    write_atomic(file, data)
    confirm(f"{what} in", f"{file} ({size_text(len(data))})")
