"""framenest compare."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from framenest.cache.files import write_atomic
from framenest.cli import options
from framenest.cli.exports import PictureFile
from framenest.cli.options import Common, SelectorNames, VideoOptions, argument, option
from framenest.cli.printing import note_if_short
from framenest.cli.scorer_options import ScorerChoice
from framenest.cli.select import NAMES
from framenest.cli.terminal import confirm, out, short_path, table
from framenest.evaluation.recall import largest_gap
from framenest.frames import ImageSpec
from framenest.images import encode_image
from framenest.report.comparison import best, comparison
from framenest.selectors import load_selector

HEADINGS = ("selector", "frames", "looked at", "seconds", "largest gap", "also in first")


@click.command()
@options.from_parameters
def compare(
    *,
    video: str = argument(),
    question: str = argument(),
    selectors: list[str] = option(
        f"Between commas, of {NAMES}.", type=SelectorNames(), default="mec,uniform,top-k,aks,wfs-sb,bolt"
    ),
    budget: int = option("Frames that each selector gets.", short="-k", default=16),
    output: Path = option("The picture.", short="-o", type=PictureFile(), default="comparison.png"),
    video_options: VideoOptions,
    scorer: ScorerChoice,
    common: Common,
) -> None:
    """Compare what selectors choose for QUESTION: one table, one picture.

    The picture shows all frames on the time axis, and for each selector its eight best by rank; eight spread
    over its choice where it does not rank.

    \b
    framenest compare kiln.mp4 "What happens after firing?" \\
      --selectors mec,uniform,aks -k 16
    """
    rows = table(*HEADINGS, left=["selector"], wrap=["selector"], gap=0)
    prefixes, shown, thumbnails = {}, {}, {}
    with common.bars() as bars:
        session = scorer.session(common, bars, selectors)
        ready = [load_selector(name, session) for name in selectors]
        short = [selector.name for selector in ready]
        labels = [name if short.count(own) > 1 else own for name, own in zip(selectors, short, strict=True)]
        opened = video_options.open(video, common)
        for label, selector in zip(labels, ready, strict=True):
            made = selector.select(opened, question, [budget])
            prefix = prefixes[label] = made.prefixes[budget]
            shown[label] = best(prefix)
            pictures = shown[label].batches(opened, ImageSpec.short_side(120))
            thumbnails[label] = [picture for batch in pictures for picture in batch.pixels[0]]
            first = set(prefixes[labels[0]].frames.tolist())
            rows.add_row(
                label,
                str(len(prefix)),
                f"{made.stats.get('candidates', 0):,}",
                f"{made.stats.get('wall_seconds', 0.0):.2f}",
                f"{100 * largest_gap(prefix.seconds, opened.info.duration):.0f} %",
                f"{len(first & set(prefix.frames.tolist()))}",
            )
    out.print(rows)
    for label, prefix in prefixes.items():
        note_if_short(label, prefix)
    picture = comparison(prefixes, shown, thumbnails, title=question)
    write_atomic(output, encode_image(picture, output.suffix[1:].lower()))
    confirm(f"{short_path(opened.info.path)}, K={budget}; picture in", str(output))
