"""framenest demo: two free videos, a question about each, and evenly spaced frames beside the chosen ones."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from contextlib import suppress
from html import escape
from importlib import resources
from pathlib import Path

import numpy as np
import rich_click as click
from PIL import Image

from framenest import models
from framenest.cache.files import write_atomic
from framenest.cli import exports, many_videos, rank
from framenest.cli import options as opt
from framenest.cli.machine import write_video
from framenest.cli.options import command, option
from framenest.cli.printing import confirm, note, out, say
from framenest.errors import NotFetched, ScorerError
from framenest.images import data_url
from framenest.models import PackageFile
from framenest.report.page import plain_page
from framenest.scorers import choose
from framenest.selectors.selection import load_result
from framenest.video.opening import reopen

BUDGET = 8
PHOTOS = ("astronaut", "rocket", "coffee", "chelsea", "hubble_deep_field")
"""For the slideshow; in the public domain: NASA, SpaceX, R. Michetti and S. van der Walt."""
PHOTO_SECONDS, PHOTO_FPS = 6, 5
_NASA = "https://raw.githubusercontent.com/ranfysvalle02/cinematlas/60a62a5101b3d4090d7762fa6ffa5a69a58102c6"
_BLENDER = "https://raw.githubusercontent.com/Zulko/moviepy/f515b100e1fd069da6f29d5b01b1d42b52d8068d"
_FILMS = "docs/_static/medias/getting_started/moviepy_10_minutes/moviepy_10_minutes.zip"
_BUNNY = "moviepy_10_minutes/resources/bbb.mp4"
CLIPS = (
    (PackageFile(
        "x59_quiet_crew.mp4", "The X-59's crew", 866_968, (
            ("cinematlas-0.16.3.tar.gz", "cinematlas-0.16.3/tests/fixtures/x59_quiet_crew.mp4"),
            (f"{_NASA}/tests/fixtures/x59_quiet_crew.mp4", "")),
        "531af1e2db2baaa832a677672001461e229d5d21f9f2833bf30ea1dfb2e44103", "public domain", "demo"),
     "a glass of beer", "NASA, public domain"),
    (PackageFile(
        "big_buck_bunny.mp4", "Big Buck Bunny", 50_195_281, (
            ("moviepy-2.2.1.tar.gz", f"moviepy-2.2.1/{_FILMS}/{_BUNNY}"),
            (f"{_BLENDER}/{_FILMS}", _BUNNY)),
        "475fbbf34c4c367998f80c29ea03b15a743941179b12da3373fc6706e68621d0", "CC BY 3.0", "demo"),
     "Who directed the film?", "© Blender Foundation, CC BY 3.0, www.bigbuckbunny.org"),
)  # fmt: skip
"""Videos, with a question about each and whom to credit."""


@command()
def demo(
    *, folder: opt.OutputFolder = option("Where to write.", "--to", default="demo"), common: opt.Common
) -> None:
    """Fetch two free videos, ask a question about each, search both: 60 MB, four minutes.

    Prints the commands that it runs. DIR/report.html has the chosen frames above as many evenly spaced ones.
    """
    shared = ["-q"] * common.quiet + (["--cache", common.cache_location] if common.cache_location else [])
    try:
        choose(common.local)
    except ScorerError:
        if not models.CATALOGUE["tags"].installed():
            raise
        with common.bars() as bars:
            models.fetch("tags", common.local, bars)
    body, videos = "", list(_videos(folder, common))
    for video, question, credit in videos:
        stem = str(folder / video.stem)
        ranking, uniform, report = (f"{stem}{end}" for end in (".json", "-even.json", ".html"))
        _run(rank.rank, video, question, "-k", BUDGET, "-o", ranking, *shared)
        _run(rank.select, video, question, "--selector", "uniform", "-k", BUDGET, "-o", uniform, *shared)
        _run(exports.report, ranking, uniform, "-o", report, *shared)
        link = f'<a href="{video.stem}.html">{video.name}: all budgets, and why</a>'
        body += f'<h2>{escape(question)}</h2><p class="facts"><span>{escape(credit)}</span>{link}</p>'
        titles = f"{BUDGET} frames that Framenest chose for “{question}”", f"{BUDGET} evenly spaced frames"
        for file, title in zip((ranking, uniform), titles, strict=True):
            prefix, sheet = load_result(file).prefix(BUDGET), Path(file).with_suffix(".webp")
            shown = reopen(prefix.video, store=common.cache)
            exports.write_frames(prefix, shown, common, None, sheet, title=title)
            url = data_url(sheet.read_bytes(), "image/webp")
            body += f'<div class="sheet"><img src="{url}" alt="{escape(title)}"></div>'
    query, paths = videos[0][1], [path for path, *_ in videos]
    _run(many_videos.search, query, *paths, "-n", 3, "--sheet", folder / "search.png", *shared)
    body += f'<p><a href="search.png">Moments of all videos that match “{escape(query)}”</a></p>'
    write_atomic(folder / "report.html", plain_page("Framenest’s demo", body).encode())
    confirm("everything on one page:", str(folder / "report.html"))


def _videos(folder: Path, common: opt.Common) -> Iterator[tuple[Path, str, str]]:
    """(path, question, credit) of each video: the clips, or a slideshow if they cannot be fetched."""
    try:
        with common.bars() as bars:
            for file, *_ in CLIPS:
                file.fetch(common.local, bars)
    except NotFetched as error:
        note(f"{error}; the demo shows a slideshow of photographs instead")
        yield _slideshow(folder / "slideshow.mp4"), "a cup of espresso", "NASA, SpaceX and others"
        return
    for file, question, credit in CLIPS:
        confirm(file.what, credit)
        path, link = file.path(common.local).absolute(), folder / file.name
        with suppress(OSError):  # without links, the commands name the file in the cache
            folder.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(path)
        yield link if link.exists() else path, question, credit


def _slideshow(path: Path) -> Path:
    folder = resources.files("framenest.cli") / "photos"
    photos = [np.asarray(Image.open(io.BytesIO((folder / f"{name}.jpg").read_bytes()))) for name in PHOTOS]
    return write_video(path, [photo for photo in photos for _ in range(PHOTO_SECONDS * PHOTO_FPS)], PHOTO_FPS)


def _run(called: click.Command, *arguments: object) -> None:
    """Print a command as one would type it, and run it."""
    words = [str(argument) for argument in arguments]
    if not out.brief:
        say(f"\n$ framenest {called.name} {shlex.join(words)}")
    called.main(words, standalone_mode=False)
