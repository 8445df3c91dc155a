"""The selections that tasks of lmms-eval need, made before any model is loaded, video by video."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from framenest.errors import BudgetError, ConfigError, VideoError
from framenest.evaluation.lmms_eval.hook import VideoManifest
from framenest.evaluation.lmms_eval.tasks import NATIVE, manifest_of
from framenest.evaluation.selection_cache import SelectionCache
from framenest.processes import process_memory
from framenest.scorers.feature_store import LargeFeatures
from framenest.selectors import check_selector

PROGRESS_SECONDS = 60  # between two lines of progress, at least
Manifests = dict[str, dict[VideoManifest, None]]  # by video, in the order of the benchmarks, each once


def prepare(
    tasks: Sequence[str],
    folder: Path,
    budgets: Sequence[int],
    *,
    part: tuple[int, int] = (1, 1),
    limit: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Make the selections of tasks that are not in the cache, at all budgets, video by video.

    A video's frames are decoded and encoded once for all its questions and selectors, also where its features
    are too large for the cache. A video that is missing or cannot be read does not end the work.

    folder: with the tasks' files. part: (i, n) for every n-th video, beginning with the i-th; n processes
    share half of the memory. limit: of questions of each task. tell: called with a line about each selector
    that does not serve all budgets, and about the progress. Returns {"videos": n, "selected": n,
    "present": n, "seconds": s, "failures": [line, …]}: selections that were made, and that were there.
    """
    first, step = part[0] - 1, part[1]
    manifests, missing = _task_manifests(tasks, folder, limit)
    mine, failures = dict(islice(manifests.items(), first, None, step)), missing[first::step]
    for selector in dict.fromkeys(one.selector for wanted in mine.values() for one in wanted):
        try:
            check_selector(selector, max(budgets))
        except BudgetError as error:  # a note, since it may serve the others
            tell(str(error))
    memory = process_memory() // (2 * step)
    cache_of = cache(lambda scorer: SelectionCache(scorer, memory))
    selected = present = 0
    start = told = time.monotonic()
    for done, (video, wanted) in enumerate(mine.items()):
        if done and time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            hours = (told - start) / done * (len(mine) - done) / 3600
            tell(f"{done:,} of {len(mine):,} videos, about {hours:.1f} hours left")
        try:
            for one in wanted:
                selections = cache_of(one.scorer)
                before = selections.misses
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", LargeFeatures)
                    selections.select(video, one.text, one.selector, budgets)
                selected += selections.misses - before
                present += selections.misses == before
        except VideoError as error:
            failures.append(str(error))
    counts = {"videos": len(mine), "selected": selected, "present": present}
    return counts | {"seconds": time.monotonic() - start, "failures": failures}


def _task_manifests(tasks: Sequence[str], folder: Path, limit: int | None) -> tuple[Manifests, list[str]]:
    """What the questions need, and what lmms-eval says of missing videos. It downloads what is not here."""
    importlib.import_module("loguru").logger.disable("lmms_eval.tasks")  # lines on files that are no tasks
    lmms_eval = importlib.import_module("lmms_eval.tasks")
    manager = lmms_eval.TaskManager(include_path=str(folder))
    unknown = sorted(set(tasks) - set(manager.all_tasks))
    if unknown:
        raise ConfigError(f"lmms-eval has no task {unknown[0]}, and {folder} neither")
    manifests: Manifests = {}
    missing: dict[str, None] = {}
    for name, task in lmms_eval.get_task_dict(list(tasks), manager, "chat").items():
        kwargs = task.lmms_eval_specific_kwargs or {}
        if "framenest" not in kwargs:
            raise ConfigError(f"task {name} is not one of Framenest's")
        for row in islice(task.eval_docs_no_media, limit):
            try:
                manifest = manifest_of(row, kwargs)
            except SystemExit as end:  # of lmms-eval's own function, which knows the path
                missing[str(end)] = None
                continue
            if manifest.selector != NATIVE:
                manifests.setdefault(manifest.video, {})[manifest] = None
    return manifests, list(missing)
