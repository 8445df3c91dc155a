"""framenest search."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from rich.markup import escape

from framenest.cache.files import write_atomic
from framenest.cli import options
from framenest.cli.many_videos import LIBRARY, ManyVideos, batch_job, run
from framenest.cli.option_groups import Common, ScorerChoice, VideoOptions
from framenest.cli.options import Count, ImageFile, InputFile, OutputFile, OutputFolder, argument, option
from framenest.cli.terminal import confirm, note, print_json, print_table, quiet, short_path, table
from framenest.corpus.manifest import find_videos, index_groups
from framenest.errors import VideoError
from framenest.images import encode_image
from framenest.method.prefix import Prefix
from framenest.report.figure import contact_sheet
from framenest.report.page import moments_page
from framenest.retrieval.search import UNSURE, IndexedVideo, Moment, Searcher, check_query
from framenest.session import Session
from framenest.text import clock, slug
from framenest.video.opening import Video

TOLD = 5  # videos that could not be searched and are named
TEXTS = ("video", "why")
PICTURE = 480  # most pixels of the longer side of a moment's picture


@options.command(
    usual="count as_json sheet folder report jobs failures engine name subtitles cache_location quiet"
)
def search(
    *,
    query: str = argument(),
    videos: tuple[InputFile, ...] = argument(nargs=-1),
    count: Count = option("Moments to find.", "-n", default=10),
    as_json: bool = option("Print a JSON list of moments.", "--json"),
    sheet: ImageFile | None = option("Also draw their best frames as a contact sheet."),
    folder: OutputFolder | None = option("Also write each moment as a short MP4 into this folder.", "--to"),
    report: OutputFile | None = option("Also write a page with their pictures, times and reasons."),
    many: ManyVideos,
    library: str | None = LIBRARY,
    scorer: ScorerChoice,
    common: Common,
) -> int:
    """Find the moments of many VIDEOS that match QUERY: in which video, and when.

    VIDEOS are what `framenest index` takes: files, URLs, folders and lists. Those that are not indexed yet
    are indexed first. Without VIDEOS, all videos in the cache are searched.

    A score says how surely a moment matches, from 0 to 1. It can be compared across videos.

    \b
    framenest search "a dog catches a frisbee" holidays/
    framenest search "a dog catches a frisbee" holidays/ \\
      --to clips/ --report dogs.html
    framenest search "who paid for the ships?" -n 3 --json
    """
    check_query(query)
    name, bars, failed = scorer.resolved(common), common.bars(), dict[str, str]()
    session = Session(name, store=common.cache, progress=bars, scoring=scorer.config)
    searcher = Searcher(session, library=library)
    wanted: Sequence[Video | IndexedVideo] | None = None
    if videos:
        files = find_videos(videos)
        with bars:
            wanted, missing = searcher.split(files)
        if missing:
            how = VideoOptions(fps=None, stream=None, decoder="pyav", allow_playlists=False)
            job = batch_job(common, how, name, scoring=scorer.config, library=library)
            groups = index_groups([str(video) for video in missing])
            with redirect_stdout(io.StringIO() if quiet() else sys.stderr):  # the moments alone go to stdout
                failed = run(job, groups, many, common, "videos", as_json=False).failed
            wanted = [video for video in files if video not in failed]
        if not wanted:
            raise VideoError(f"no video can be searched: {next(iter(failed.values()))}")
    moments = searcher.search(query, wanted, count)
    _print(moments, {**moments.skipped, **failed}, as_json)
    if moments and folder is not None:
        for rank, one in enumerate(moments, start=1):
            file = f"{rank:02d}_{slug(Path(one.video).stem, 'video')}_t{one.start:09.2f}s.mp4"
            one.clip(folder / file, store=common.cache)
        confirm(f"{len(moments)} clips in", str(folder))
    if moments and (sheet or report):
        _draw(query, moments, sheet, report, common)
    return int(bool(failed))


def _print(moments: Sequence[Moment], skipped: Mapping[str, str], as_json: bool) -> None:
    if skipped:
        told = [*skipped.values()][:TOLD] + [f"{len(skipped) - TOLD:,} more"] * (len(skipped) > TOLD)
        videos = "1 video" if len(skipped) == 1 else f"{len(skipped):,} videos"
        note(f"{videos} could not be searched: {'; '.join(told)}")
    if max((moment.score for moment in moments), default=0) < UNSURE:
        note("nothing clearly matches" + ("; these are the best moments" if moments else ""))
    if as_json:
        print_json([moment.to_json() for moment in moments])
        return
    rows = table("score", "from", "to", "best", *TEXTS, left=TEXTS, wrap=TEXTS)
    for one in moments:
        times = (clock(seconds) for seconds in (one.start, one.end, one.time))
        rows.add_row(f"{one.score:.2f}", *times, escape(short_path(one.video)), escape(one.why))
    print_table(rows)


def _draw(
    query: str, moments: Sequence[Moment], sheet: Path | None, report: Path | None, common: Common
) -> None:
    """Write the pictures of moments as a contact sheet and as a page."""
    pictures = [one.images(max_side=PICTURE, store=common.cache)[0] for one in moments]
    if sheet is not None:
        ranks, frames = np.arange(1, len(moments) + 1), np.array([one.frame for one in moments])
        tiles = Prefix(moments[0].info, len(ranks), frames, np.array([one.time for one in moments]), ranks)
        names = [Path(one.video).name for one in moments]
        drawn = contact_sheet(tiles, [np.asarray(one) for one in pictures], title=query, labels=names)
        write_atomic(sheet, encode_image(drawn, sheet.suffix[1:].lower()))
        confirm("contact sheet in", str(sheet))
    if report is not None:
        write_atomic(
            report,
            moments_page(query, [moment.to_json() for moment in moments], pictures).encode(
                "utf-8", "replace"
            ),
        )
        confirm("page in", str(report))
