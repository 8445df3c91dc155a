"""The selections that tasks of lmms-eval need, made before any model is loaded, video by video."""

from __future__ import annotations

import importlib
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

from framenest.errors import BudgetError, ConfigError, VideoError
from framenest.evaluation.lmms_eval.hook import VideoManifest
from framenest.evaluation.lmms_eval.tasks import NATIVE, manifest_of
from framenest.evaluation.selection_cache import SelectionCache
from framenest.processes import process_memory
from framenest.scorers.feature_store import LargeFeatures

Manifests = Mapping[str, Sequence[VideoManifest]]
"""By video, in the order of the benchmarks."""


@dataclass
class Preparation:
    """What was done.

    selected, present: selections that were made, and that were there. failures: (video, question, reason).
    """

    videos: int
    selected: int = 0
    present: int = 0
    seconds: float = 0.0
    failures: list[tuple[str, str, str]] = field(default_factory=list)


def task_manifests(tasks: Sequence[str], folder: Path, limit: int | None = None) -> Manifests:
    """What the questions of tasks need; lmms-eval loads them, and downloads what is not here.

    folder: with the tasks' files. limit: only so many questions of each task. ConfigError if a task is not
    there, or not one of ours.
    """
    importlib.import_module("loguru").logger.disable("lmms_eval.tasks")  # lines on files that are no tasks
    lmms_eval = importlib.import_module("lmms_eval.tasks")
    manager = lmms_eval.TaskManager(include_path=str(folder))
    unknown = sorted(set(tasks) - set(manager.all_tasks))
    if unknown:
        raise ConfigError(f"lmms-eval has no task {unknown[0]}, and {folder} neither")
    by_video: dict[str, dict[VideoManifest, None]] = {}
    for name, task in lmms_eval.get_task_dict(list(tasks), manager, "chat").items():
        kwargs = task.lmms_eval_specific_kwargs or {}
        if "framenest" not in kwargs:
            raise ConfigError(f"task {name} is not one of Framenest's")
        for row in islice(task.eval_docs_no_media, limit):
            manifest = manifest_of(row, kwargs)
            if manifest.selector != NATIVE:
                by_video.setdefault(manifest.video, {})[manifest] = None
    return {video: list(manifests) for video, manifests in by_video.items()}


def part_of(manifests: Manifests, part: str) -> Manifests:
    """Every n-th video, for n processes.

    >>> list(part_of({"a.mp4": [], "b.mp4": [], "c.mp4": []}, "1/2"))
    ['a.mp4', 'c.mp4']
    """
    match = re.fullmatch(r"(\d+)/(\d+)", part)
    if match is None or not 1 <= (number := int(match[1])) <= (parts := int(match[2])):
        raise ConfigError(f"part {part!r} must be i/n, such as 1/8 for the first of eight")
    return dict(islice(manifests.items(), number - 1, None, parts))


def prepare(
    manifests: Manifests,
    budgets: Sequence[int],
    *,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Preparation:
    """Make the selections that are not in the cache, at all budgets, video by video.

    A video's frames are decoded and encoded once for all its questions and selectors, also where its features
    are too large for the cache. A video that cannot be used does not end the work.

    processes: how many do such work on this machine; they share half of its memory. progress: called with
    the number of videos done, and of all videos.
    """
    report, start = Preparation(len(manifests)), time.perf_counter()
    memory = process_memory() // (2 * processes)
    cache_of = cache(lambda scorer: SelectionCache(scorer, memory))
    for done, (video, wanted) in enumerate(manifests.items()):
        progress(done, len(manifests))
        for one in wanted:
            selections = cache_of(one.scorer)
            before = selections.misses
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", LargeFeatures)
                    selections.select(video, one.text, one.selector, budgets)
            except (VideoError, BudgetError) as error:
                report.failures.append((video, f"{one.selector}: {one.text}", str(error)))
            else:
                report.selected += selections.misses - before
                report.present += selections.misses == before
    progress(len(manifests), len(manifests))
    report.seconds = time.perf_counter() - start
    return report
