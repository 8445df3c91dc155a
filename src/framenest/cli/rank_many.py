"""`framenest rank --manifest`: the questions of many videos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from framenest.cache.directory import local_directory
from framenest.cli.common_options import Common
from framenest.cli.many_options import ManyVideos
from framenest.cli.many_videos import batch_job, run
from framenest.cli.output_files import check_writable_folder
from framenest.cli.terminal import confirm, short_path
from framenest.cli.video_options import VideoOptions
from framenest.corpus.batch_job import BatchJob
from framenest.corpus.manifest import ranking_groups
from framenest.corpus.run_report import write_rankings
from framenest.errors import ConfigError


def rank_many(
    manifest: Path,
    output: str | None,
    many: ManyVideos,
    common: Common,
    how: VideoOptions,
    scorer: str | None,
    settings: Mapping[str, Any],
) -> int:
    """Rank every video of a list for its questions; the exit code."""
    job = batch_job(common, how, scorer, **settings)
    if output is None or output == "-":
        raise ConfigError("--manifest needs a folder for the rankings; give -o FOLDER")
    folder = check_writable_folder(Path(output)).absolute()
    groups = ranking_groups(manifest, folder, _identity(job), no_question=job.scorer is None)
    report = run(job, groups, many, common, "rankings")
    confirm("listed in", short_path(str(write_rankings(folder, groups))))
    return int(report.counts["failed"] > 0)


def _identity(job: BatchJob) -> list[Any]:
    """All that a ranking depends on beside video and question; not what only makes it faster."""
    scoring = {k: v for k, v in asdict(job.scoring).items() if k not in ("device", "batch")}
    file = Path((job.scorer or "").partition(":")[2])
    content = local_directory(job.store()).fingerprint(str(file)) if file.is_file() else None
    return [job.config.to_json(), job.scorer, content, scoring]
