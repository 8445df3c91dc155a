"""framenest show, framenest extract."""

from __future__ import annotations

from pathlib import Path

import rich_click as click
from rich.markup import escape

from framenest import extract as extraction
from framenest.cli import options
from framenest.cli.files import check_picture, check_writable_folder
from framenest.cli.terminal import Bars, note, out, print_facts, print_prefix, print_ranks
from framenest.errors import StoreError
from framenest.frames import ImageSpec
from framenest.protocols import Store
from framenest.report import contact_sheet
from framenest.selectors.selection import Selection, load_result


@click.command()
@click.argument("ranking")
@click.option("-k", "--budget", type=int, help="How many ranks to show. [default: 16, or all if fewer]")
@options.common
def show(ranking: str, budget: int | None, cache: Store, quiet: bool) -> None:
    """Show a RANKING file: the first ranks, their times and why they were chosen.

    \b
    framenest show kiln.json -k 32
    """
    loaded = load_result(ranking)
    if isinstance(loaded, Selection):
        out.print(f"[dim]selector[/] {escape(loaded.selector)}  [dim]scorer[/] {escape(loaded.scorer)}")
        for chosen in loaded.prefixes.values() if budget is None else [loaded.prefix(budget)]:
            print_prefix(chosen)
        return
    prefix = loaded.prefix(min(16, len(loaded)) if budget is None else budget)
    print_facts(loaded)
    print_ranks(loaded, len(prefix))
    print_prefix(prefix)


@click.command()
@click.argument("ranking")
@click.option("-k", "--budget", type=int, required=True, help="How many frames.")
@click.option("--to", "folder", required=True, metavar="DIR", help="Where the images go.")
@click.option("--format", "kind", type=click.Choice(extraction.FORMATS), default="jpg", show_default=True)
@click.option("--sheet", metavar="FILE", help="Also draw all frames with ranks and times on one picture.")
@click.option("--video", metavar="PATH", help="Where the video is now, if it has moved.")
@options.common
def extract(
    ranking: str,
    budget: int,
    folder: str,
    kind: str,
    sheet: str | None,
    video: str | None,
    cache: Store,
    quiet: bool,
) -> None:
    """Write the K frames of a RANKING as images: original size, in time order.

    File names carry frame, seconds and rank. Refuses when the video has changed since it was ranked.

    \b
    framenest extract kiln.json -k 8 --to frames/ --sheet kiln.png
    """
    loaded = load_result(ranking)
    prefix = loaded.prefix(budget)
    target = Path(folder)
    check_writable_folder(target)
    if sheet is not None:
        check_picture(Path(sheet))
    decoder = extraction.reopen(loaded.video, path=video, store=cache)
    bars = Bars(quiet)
    with bars:
        files = extraction.extract(decoder, prefix, target, format=kind, progress=bars)
    if prefix.complete:
        note(f"this short video has only {len(prefix)} candidate frames; all of them are here")
    out.print(f"{len(files)} frames in {folder}", soft_wrap=True, markup=False)
    if sheet is not None:
        batches = extraction.read_prefix(decoder, prefix, ImageSpec.short_side(240))
        pictures = [picture for batch in batches for picture in batch.pixels[0]]
        try:
            Path(sheet).parent.mkdir(parents=True, exist_ok=True)
            contact_sheet(prefix, pictures, title=loaded.question).save(sheet)
        except (OSError, ValueError) as error:
            raise StoreError(f"{sheet}: cannot be written ({error})") from error
        out.print(f"contact sheet in {sheet}", soft_wrap=True, markup=False)
