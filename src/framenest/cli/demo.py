"""framenest demo: two free videos, a question about each, and evenly spaced frames beside the chosen ones."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import av
import numpy as np
import rich_click as click
from PIL import Image

from framenest import models
from framenest.cache.files import write_atomic
from framenest.cli import exports, many_videos, rank
from framenest.cli import options as opt
from framenest.cli.options import command, option
from framenest.cli.printing import confirm, note, out, say
from framenest.errors import ScorerError, StoreError
from framenest.frames import ImageSpec
from framenest.images import encode_image
from framenest.models import PackageFile
from framenest.report.figure import contact_sheet
from framenest.report.page import GallerySection, gallery_page
from framenest.scorers import choose
from framenest.selectors.selection import load_result
from framenest.text import clock
from framenest.video.opening import reopen

BUDGET = 8
PHOTOS = ("astronaut", "rocket", "coffee", "chelsea", "hubble_deep_field")
"""For the slideshow; in the public domain: NASA, SpaceX, R. Michetti and S. van der Walt."""
PHOTO_SECONDS, PHOTO_FPS = 6, 5


@dataclass(frozen=True)
class Clip:
    """A video of the demo: where it comes from, who made it, and what to ask."""

    file: PackageFile
    credit: str
    question: str


CLIPS = (
    Clip(
        PackageFile(
            "x59_quiet_crew.mp4", "“The X-59's crew”", 866_968, "cinematlas-0.16.3.tar.gz",
            "cinematlas-0.16.3/tests/fixtures/x59_quiet_crew.mp4",
            "531af1e2db2baaa832a677672001461e229d5d21f9f2833bf30ea1dfb2e44103", "public domain", "demo"),
        "NASA, public domain",
        "a glass of beer",
    ),
    Clip(
        PackageFile(
            "big_buck_bunny.mp4", "“Big Buck Bunny”", 50_195_281, "moviepy-2.2.1.tar.gz",
            "moviepy-2.2.1/docs/_static/medias/getting_started/moviepy_10_minutes/moviepy_10_minutes.zip/"
            "moviepy_10_minutes/resources/bbb.mp4",
            "475fbbf34c4c367998f80c29ea03b15a743941179b12da3373fc6706e68621d0", "CC BY 3.0", "demo"),
        "© Blender Foundation, CC BY 3.0, www.bigbuckbunny.org",
        "Who directed the film?",
    ),
)  # fmt: skip


@command()
def demo(
    *, folder: opt.OutputFolder = option("Where to write.", "--to", default="demo"), common: opt.Common
) -> None:
    """Fetch two free videos, ask a question about each, and search both: 60 MB and two minutes.

    Shows the commands that it runs. Writes for each video a contact sheet of the chosen frames and of evenly
    spaced ones, and a report; DIR/report.html shows everything.
    """
    shared = ["-q"] * common.quiet + (["--cache", common.cache_location] if common.cache_location else [])
    try:
        choose(common.local)
    except ScorerError:
        with common.bars() as bars:
            models.fetch("tags", common.local, bars)
    sections: list[GallerySection] = []
    videos = dict(_videos(folder, common))
    for video, (question, credit) in videos.items():
        stem = folder / video.stem
        ranking, uniform, page = (f"{stem}{end}" for end in (".json", "-uniform.json", ".html"))
        _run(rank.rank, video, question, "-k", BUDGET, "-o", ranking, *shared)
        _run(rank.select, video, question, "--selector", "uniform", "-k", BUDGET, "-o", uniform, *shared)
        _run(exports.report, ranking, uniform, "-o", page, *shared)
        sheets = []
        for file, title in ((ranking, f"Framenest: {question}"), (uniform, "Evenly spaced")):
            prefix = load_result(file).prefix(BUDGET)
            decoder = reopen(prefix.video, str(video), store=common.cache)
            read = prefix.batches(decoder, ImageSpec.short_side(240))
            pixels = [image for batch in read for image in batch.pixels[0]]
            sheets.append(contact_sheet(prefix, pixels, title=title))
            names = ["" if rank is None else f"rank {rank}" for rank, _, _ in prefix]
            captions = [
                f"{clock(second)}  {name}" for name, second in zip(names, prefix.seconds, strict=True)
            ]
            pictures = [Image.fromarray(one) for one in pixels]
            sections.append(
                GallerySection(title, [*zip(pictures, captions, strict=True)], credit, f"{video.stem}.html")
            )
        sheet = Image.new("RGB", (sheets[0].width, sum(one.height for one in sheets)))
        sheet.paste(sheets[0], (0, 0))
        sheet.paste(sheets[1], (0, sheets[0].height))
        write_atomic(Path(f"{stem}.png"), encode_image(sheet, "png"))
        confirm("both, as a contact sheet, in", f"{stem}.png")
    query = next(iter(videos.values()))[0]
    _run(many_videos.search, query, *videos, "-n", 3, *shared)
    write_atomic(folder / "report.html", gallery_page("Framenest's demo", sections).encode())
    confirm("everything on one page:", str(folder / "report.html"))


def _videos(folder: Path, common: opt.Common) -> Iterator[tuple[Path, tuple[str, str]]]:
    """(path, (question, credit)) of each video: the clips, or a slideshow if they cannot be fetched."""
    try:
        with common.bars() as bars:
            for clip in CLIPS:
                clip.file.fetch(common.local, bars)
    except StoreError as error:
        note(f"{error}; the demo shows a slideshow of photographs instead")
        yield _slideshow(folder / "slideshow.mp4"), ("a cup of coffee", "NASA, SpaceX and others")
        return
    for clip in CLIPS:
        confirm(clip.file.what, clip.credit)
        cached, link = clip.file.path(common.local), folder / clip.file.name
        with suppress(OSError):  # without links, the commands name the file in the cache
            link.unlink(missing_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
            link.symlink_to(cached.absolute())
        yield link if link.exists() else cached, (clip.question, clip.credit)


def _slideshow(path: Path) -> Path:
    """Write a video of photographs."""
    content = io.BytesIO()
    with av.open(content, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=PHOTO_FPS)
        for name in PHOTOS:
            data = (resources.files("framenest.cli") / "photos" / f"{name}.jpg").read_bytes()
            pixels = np.asarray(Image.open(io.BytesIO(data)))
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, "yuv420p"
            for _ in range(PHOTO_SECONDS * PHOTO_FPS):
                container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    write_atomic(path, content.getvalue())
    return path


def _run(called: click.Command, *arguments: object) -> None:
    """Print a command as one would type it, and run it."""
    words = [str(argument) for argument in arguments]
    if not out.brief:
        say(f"\n$ framenest {called.name} {shlex.join(words)}")
    called.main(words, standalone_mode=False)
