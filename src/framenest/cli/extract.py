"""framenest extract."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from framenest import extraction
from framenest.cache.atomic_file import write_atomic
from framenest.cli import options
from framenest.cli.common_options import Common
from framenest.cli.options import argument, option
from framenest.cli.output_files import OutputFolder, PictureFile
from framenest.cli.terminal import confirm, note
from framenest.cli.video_options import KnownVideo
from framenest.errors import StoreError
from framenest.frames import ImageSpec
from framenest.images import encode_image
from framenest.report import contact_sheet
from framenest.selectors.selection import load_result


@click.command()
@options.from_parameters
def extract(
    *,
    ranking: str = argument(),
    budget: int = option("How many frames.", short="-k", required=True),
    folder: Path = option("Where the images go.", flag="--to", type=OutputFolder(), required=True),
    kind: str = option(
        "Format of the image files.", flag="--format", type=click.Choice(extraction.FORMATS), default="jpg"
    ),
    sheet: Path | None = option(
        "Also draw all frames with ranks and times on one picture.", type=PictureFile()
    ),
    force: bool = option("Write into the folder also where it holds frames of another budget or ranking."),
    known: KnownVideo,
    common: Common,
) -> None:
    """Write the K frames of a RANKING as images: original size, in time order.

    File names carry frame, seconds and rank. Refuses when the video has changed since it was ranked.

    \b
    framenest extract kiln.json -k 8 --to frames/ --sheet kiln.png
    """
    loaded = load_result(ranking)
    prefix = loaded.prefix(budget)
    others = extraction.other_frames(prefix, folder, kind)
    if others and not force:
        raise StoreError(
            f"{folder}: holds {len(others)} other frames already, as {others[0].name}; give another folder, "
            "or --force to write beside them"
        )
    decoder = known.reopen(loaded.video, common)
    with common.bars() as bars:
        files = extraction.extract(prefix, folder, format=kind, video=decoder, progress=bars)
    if prefix.complete:
        note(f"this short video has only {len(prefix)} candidate frames; all of them are here")
    confirm(f"{len(files)} frames in", str(folder))
    if sheet is not None:
        batches = prefix.batches(decoder, ImageSpec.short_side(240))
        pictures = [picture for batch in batches for picture in batch.pixels[0]]
        drawn = contact_sheet(prefix, pictures, title=loaded.question)
        write_atomic(sheet, encode_image(drawn, sheet.suffix[1:].lower()))
        confirm("contact sheet in", str(sheet))
