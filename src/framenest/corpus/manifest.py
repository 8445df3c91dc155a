"""Manifests: the videos and questions of a batch, from folders, URLs and lists in many formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest
from framenest.cache.remote import file_system
from framenest.corpus.batch_job import Group, WorkItem
from framenest.errors import ConfigError, StoreError
from framenest.rank_request import RankRequest
from framenest.records import SUFFIXES, read_rows
from framenest.text import one_line, slug
from framenest.video.source import VIDEO_SUFFIXES, is_remote
from framenest.video.stills import IMAGE_SUFFIXES

ANY_VIDEO = RankRequest(video="")


def find_videos(sources: Sequence[str]) -> list[str]:
    """All videos of some folders, lists, files and URLs, each once, in a stable order.

    A URL that ends in a slash is a folder. A folder of images, without videos, is one video.
    """
    paths: dict[str, None] = {}
    for source in sources:
        here = list(_videos(source))
        if not here:
            raise ConfigError(f"{source}: no videos found")
        paths.update(dict.fromkeys(here))
    return list(paths)


def _videos(source: str) -> Iterator[str]:
    path = Path(source)
    if is_remote(source):
        yield from _listed(source) if source.endswith("/") else [source]
    elif path.is_dir():
        files = (file for file in path.rglob("*") if _is_video(file.name) and file.is_file())
        has_images = any(file.suffix.lower() in IMAGE_SUFFIXES for file in path.iterdir())
        yield from sorted(map(str, files)) or [source] * has_images
    elif path.suffix.lower() in SUFFIXES:
        for row in _rows(path):
            yield _located(row["video"], path.parent)
    else:
        yield source


def _is_video(name: str) -> bool:
    return not Path(name).name.startswith(".") and Path(name).suffix.lower() in VIDEO_SUFFIXES


def _listed(url: str) -> list[str]:
    system, path = file_system(url)
    try:
        return sorted(system.unstrip_protocol(name) for name in system.find(path) if _is_video(name))
    except (OSError, ValueError) as error:
        raise StoreError(f"{url}: cannot be listed ({error})") from error


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        rows = read_rows(file, only="video")
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{file}: not a list of videos ({one_line(error)})") from error
    if rows and not all(isinstance(row.get("video"), str) and row["video"].strip() for row in rows):
        columns = ", ".join(map(str, rows[0]))
        raise ConfigError(f"{file}: every row needs a column `video`; its columns are {columns}")
    return rows


def _located(video: str, folder: Path) -> str:
    """A list's paths are relative to its own folder."""
    return video if is_remote(video) else str(folder / Path(video).expanduser())


def index_groups(videos: Iterable[str], request: RankRequest = ANY_VIDEO) -> list[Group]:
    """One group per video, to be indexed as the request says."""
    return [(WorkItem(replace(request, video=video)),) for video in videos]


def ranking_groups(
    file: Path, folder: Path, request: RankRequest = ANY_VIDEO, scores: str | None = None
) -> list[Group]:
    """(video, question) rows as groups, one per video, so that a video is opened once.

    A row without a question is ranked without one; `options` may list the answers. Rankings go to `folder`.
    Their names include the video, the question and a hash: other settings give other files. Without a scorer
    in the request, questions are ignored. scores: the content of the scorer's file, as a hash.
    """
    groups: dict[str, list[WorkItem]] = {}
    for row in _rows(file):
        video = _located(row["video"], file.parent)
        question = None if request.scorer is None else row.get("question")
        if question is not None and (not isinstance(question, str) or not question.strip()):
            raise ConfigError(f"{file}: {question!r} is not a question (video {row['video']})")
        options = row.get("options") or []
        if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
            raise ConfigError(f"{file}: {options!r} is not a list of answers (video {row['video']})")
        name = f"{slug(Path(video).stem, 'video')}-{slug(question or 'no question', 'question')}"
        row_request = replace(request, video=video, question=question, options=tuple(options))
        target = folder / f"{name}-{digest(row_request.identity(), scores)[:10]}.json"
        item = WorkItem(row_request, str(target))
        if item not in groups.setdefault(video, []):
            groups[video].append(item)
    if not groups:
        raise ConfigError(f"{file}: no rows in this file")
    return [tuple(items) for items in groups.values()]


def write_rankings(folder: Path, groups: Iterable[Group]) -> Path:
    """Which file holds which ranking: one JSON object per line, `ranking` null if there is none."""
    lines = []
    for item in (item for group in groups for item in group):
        target = Path(str(item.target))
        there = target.name if target.exists() else None
        lines.append(json.dumps({"video": item.video, "question": item.request.question, "ranking": there}))
    path = folder / "rankings.jsonl"
    write_atomic(path, ("\n".join(lines) + "\n").encode())
    return path
