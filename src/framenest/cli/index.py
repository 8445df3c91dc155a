"""framenest index."""

from __future__ import annotations

import rich_click as click

from framenest.cli import options
from framenest.cli.many_videos import MANY_PANEL, ManyVideos, batch_job, run
from framenest.cli.options import Common, VideoOptions, argument
from framenest.cli.scorer_options import FeaturesBound, ScorerChoice
from framenest.cli.terminal import fail, note, say
from framenest.config import IndexConfig, MECConfig
from framenest.corpus.batch_job import BatchJob
from framenest.corpus.manifest import find_videos, index_groups
from framenest.errors import FramenestError


@click.command()
@click.option_panel("Options")
@click.option_panel(MANY_PANEL)
@click.option_panel(options.SCORER_PANEL)
@click.option_panel(options.METHOD_PANEL)
@options.from_parameters
def index(
    *,
    videos: tuple[str, ...] = argument(nargs=-1, required=True),
    many: ManyVideos,
    video_options: VideoOptions,
    scorer: ScorerChoice,
    features: FeaturesBound,
    config: IndexConfig,
    common: Common,
) -> int:
    """Index VIDEOS once, so that questions asked later need not decode them again.

    VIDEOS are files, addresses, folders to be searched (an address ending in / too), and lists: text, CSV,
    JSON, JSON lines or Parquet with a column `video`. With --scorer none only the index is made, without
    features for a scorer.

    Each video is worked on in a process of its own. One that fails, hangs or crashes never stops the run:
    it ends in failures.jsonl. Run again to do what is missing; nothing finished is done twice. The exit
    code is 1 where a video failed.

    \b
    framenest index lectures/ --jobs 8
    framenest index films.csv more/*.mp4 --scorer none --probing keyframes \\
      --cache s3://bucket/library
    """
    found = find_videos(videos, pictures=video_options.fps is not None)
    job = batch_job(
        common, video_options, scorer.resolved(common), config=MECConfig(index=config), scoring=scorer.config
    )
    if len(found) == 1 and found[0] == videos[0] and not many.asked_for:
        _index_here(job, found[0], common)
        return 0
    report = run(job, index_groups(found), many, common, "videos")
    if report.counts["failed"]:
        fail(f"{report.counts['failed']:,} of {len(found):,} videos could not be indexed")
    return int(report.counts["failed"] > 0)


def _index_here(job: BatchJob, video: str, common: Common) -> None:
    """A single video needs no worker, and shows how far it is."""
    with common.bars() as bars:
        (outcome,) = job.open()(index_groups([video])[0], bars, tell=note)
    if outcome.status == "failed":
        raise FramenestError(outcome.text)
    for text in outcome.notes:
        note(text)
    say(f"{video}: {outcome.text}")
