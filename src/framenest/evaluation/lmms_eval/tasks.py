"""Task files for lmms-eval: each of its own tasks once more per selector, with our frames in the message.

A task of ours includes lmms-eval's and replaces what reaches the model. Data set, scoring and answer
extraction stay lmms-eval's own.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import framenest
from framenest.cache.atomic_file import write_atomic
from framenest.cache.directory import DirectoryStore
from framenest.cache.hashes import digest
from framenest.errors import MissingExtra
from framenest.evaluation.lmms_eval.task_functions import DURATIONS
from framenest.evaluation.lmms_eval.task_settings import NATIVE
from framenest.selectors import check_selector

ROWS = "framenest.evaluation.lmms_eval.task_functions"
UPSTREAM = "lmms_eval.tasks"
SELECTORS = ("mec", "uniform", "aks", "wfs-sb", NATIVE)


@dataclass(frozen=True)
class Task:
    """A task of lmms-eval with our frames.

    name: ours is framenest_<name>. file: lmms-eval's, below its tasks, in a folder whose `utils` has
    `video_of`, the function from a row to the video. only: a function of `task_functions` that keeps a
    part of the data set.
    """

    name: str
    benchmark: str
    file: str
    video_of: str
    only: str = ""


_VIDEOMME = ("videomme", "videomme/videomme.yaml", "videomme_doc_to_visual")
TASKS = (
    Task("videomme", *_VIDEOMME),
    *(Task(f"videomme_{part}", *_VIDEOMME, part) for part in DURATIONS),
    Task("videomme_v2", "videomme-v2", "videomme_v2/videomme_v2.yaml", "videomme_v2_doc_to_visual"),
    Task("longvideobench_val", "longvideobench", "longvideobench/longvideobench_val_v.yaml",
         "longvideobench_doc_to_visual_v"),
    Task("mlvu_dev", "mlvu", "mlvu/mlvu_dev.yaml", "mlvu_doc_to_visual_dev"),
    Task("mlvu_test", "mlvu", "mlvu/mlvu_test.yaml", "mlvu_doc_to_visual_test"),
)  # fmt: skip


def task_name(task: Task, selector: str) -> str:
    """What a task is called in lmms-eval.

    >>> task_name(TASKS[0], "mec"), task_name(TASKS[-1], "wfs-sb")
    ('framenest_videomme', 'framenest_mlvu_test_wfs_sb')
    """
    if selector == "mec":
        return f"framenest_{task.name}"
    return f"framenest_{task.name}_{''.join(c if c.isalnum() else '_' for c in selector)}"


def task_yaml(task: Task, selector: str, upstream: Path) -> str:
    """The yaml of one task. JSON is yaml, so every value is written as JSON."""
    settings: dict[str, Any] = {"benchmark": task.benchmark}
    if selector != "mec":  # the plain tasks are MEC's, unless the environment names another selector
        settings["selector"] = selector
    lines = [
        f"task: {task_name(task, selector)}",
        f"include: {json.dumps(str(upstream / task.file))}",
        f"doc_to_messages: !function {ROWS}.messages",
        f"doc_to_text: !function {ROWS}.text",
        f"doc_to_visual: !function {ROWS}.no_visual",
        "lmms_eval_specific_kwargs:",
        "  default:",
        f"    video_of: {UPSTREAM}.{Path(task.file).parent}.utils.{task.video_of}",
        f"    framenest: {json.dumps(settings)}",
    ]
    if task.only:
        lines.append(f"process_docs: !function {ROWS}.{task.only}")
    elif task.benchmark == "videomme":  # one run, all four columns of the paper
        lines += [f"process_results: !function {ROWS}.videomme_results", "metric_list:"]
        lines += _metric("videomme_perception_score", f"{UPSTREAM}.videomme.utils.videomme_aggregate_results")
        for part in DURATIONS:
            lines += _metric(f"videomme_{part}", f"{ROWS}.videomme_{part}")
    return "\n".join(lines) + "\n"


def _metric(name: str, aggregation: str) -> list[str]:
    return [f"  - metric: {name}", f"    aggregation: !function {aggregation}", "    higher_is_better: true"]


def write_tasks(store: DirectoryStore, selectors: Sequence[str] = SELECTORS) -> Path:
    """Write all tasks into the cache; returns the folder for lmms-eval's --include_path."""
    found = importlib.util.find_spec("lmms_eval")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("lmms-eval", "lmms-eval")
    upstream = Path(next(iter(found.submodule_search_locations))).resolve() / "tasks"
    for selector in set(selectors) - {NATIVE}:
        check_selector(selector)
    parts = (framenest.__version__, version("lmms-eval"), str(upstream), list(selectors))
    folder = store.root / "lmms-eval-tasks" / digest(parts)[:12]
    for task in TASKS:
        for selector in selectors:
            text = task_yaml(task, selector, upstream)
            write_atomic(folder / f"{task_name(task, selector)}.yaml", text.encode())
    return folder
