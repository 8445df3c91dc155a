"""lmms-eval tasks per selector and budget."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import framenest
from framenest.cache.directory import DirectoryStore
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest
from framenest.errors import ConfigError, MissingExtra
from framenest.evaluation.benchmarks import READERS, QueryText
from framenest.evaluation.lmms_eval.hook import (
    VideoManifest,
    ending_the_run,
    is_hooked,
    manifest_reader,
    pictures_of,
)
from framenest.lmm.times import Pairing, marker
from framenest.selectors import check_selector

ON_ERROR = ("stop", "uniform")
AS = ("video", "frames", "images")
NATIVE = "native"
"""The whole video, read as the model itself reads it: for comparison, with the same prompt."""
PAIRINGS = ("pairs", "auto", "duplicate")


@dataclass(frozen=True)
class TaskSettings:
    """One field per key below `framenest:` in a task's yaml; $FRAMENEST_<FIELD> where the yaml is silent.

    benchmark: whose rows they are. selector: "mec", "mec:no-zoom", "aks", …, "native". preset: of MEC.
    scorer: by name. query: the text that relevance is scored for, also by selector
    ("question,wfs-sb=question+options"). on_error: "stop" ends the run with a message, "uniform" takes
    evenly spread frames instead and counts it. pairing: Qwen3-VL and Qwen3.5 fuse two frames under one
    time; "duplicate" sends each twice, so that each keeps its own. frames_as: "video" leaves decoding to
    the reader in qwen-vl-utils, which takes K from the model's own argument; "frames" and "images" put
    `frames` pictures into the message, for models that read videos otherwise.
    scorer: by name. query: the text that relevance is scored for. on_error: "stop" ends the run with a
    message, "uniform" takes evenly spread frames instead and counts it. pairing: Qwen3-VL and Qwen3.5
    fuse two frames under one time, all of them with "pairs", as in the paper; "auto" only those within two
    seconds; "duplicate" sends each twice, so that each keeps its own. frames_as:
    "video" leaves decoding to the reader in qwen-vl-utils, which takes K from the model's own argument;
    "frames" and "images" put `frames` pictures into the message, for models that read videos otherwise.
    """

    benchmark: str
    selector: str = "mec"
    preset: str = ""
    scorer: str = "auto"
    query: str = "question"
    on_error: str = "stop"
    pairing: Pairing = "pairs"
    frames_as: str = "video"
    frames: int = 0

    @classmethod
    def of_task(cls, kwargs: Mapping[str, Any] | None) -> TaskSettings:
        """From `lmms_eval_specific_kwargs`; what the yaml says comes before the environment.

        >>> TaskSettings.of_task({"framenest": {"benchmark": "videomme", "selector": "aks"}}).selector
        'aks'
        """
        given = dict((kwargs or {}).get("framenest") or {})
        names = [entry.name for entry in fields(cls)]
        unknown = set(given) - set(names)
        if unknown:
            raise ConfigError(f"framenest has no setting {sorted(unknown)[0]!r}; choose from {names}")
        for name in names[1:]:
            value = os.environ.get(f"FRAMENEST_{name.upper()}")
            if value and name not in given:
                given[name] = value
        return cls(**given)

    def __post_init__(self) -> None:
        for name, allowed in (
            ("benchmark", tuple(READERS)),
            ("on_error", ON_ERROR),
            ("pairing", PAIRINGS),
            ("frames_as", AS),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} = {getattr(self, name)!r}; it must be one of {', '.join(allowed)}")
        QueryText.parse(self.query)
        try:
            object.__setattr__(self, "frames", int(self.frames))
        except ValueError as error:
            raise ConfigError(f"frames = {self.frames!r}; it must be a whole number") from error
        if self.frames_as != "video" and self.frames < 1:
            raise ConfigError(f"frames_as = {self.frames_as} needs the budget: set FRAMENEST_FRAMES=K")
        if self.selector != NATIVE:
            check_selector(self.full_selector)

    @property
    def full_selector(self) -> str:
        """The selector with MEC's preset."""
        name, _, own = self.selector.partition(":")
        if not self.preset or name != "mec":
            return self.selector
        return "mec:" + "+".join(filter(None, (self.preset, own)))


Row = Mapping[str, Any]
Messages = list[dict[str, Any]]
DURATIONS = ("short", "medium", "long")


@ending_the_run()
def messages(doc: Row, lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> Messages:
    """`doc_to_messages`: the frames' manifest and the question, as one turn of the user."""
    kwargs = lmms_eval_specific_kwargs
    settings = TaskSettings.of_task(kwargs)
    question = READERS[settings.benchmark](doc)
    manifest = VideoManifest(
        video=_video(doc, kwargs),
        text=question.query(QueryText.parse(settings.query), settings.selector),
        selector=settings.full_selector,
        scorer=settings.scorer,
        on_error=settings.on_error,
        pairing=settings.pairing,
    )
    if settings.selector == NATIVE:
        shown = [{"type": "video", "url": manifest.video}]
    elif settings.frames_as != "video":
        shown = _pictures(manifest, settings.frames, settings.frames_as)
    elif is_hooked():
        shown = [{"type": "video", "url": str(manifest.write())}]
    else:
        raise SystemExit(f"framenest: {MissingExtra('lmms-eval', 'qwen-vl-utils')}")
    return [{"role": "user", "content": [*shown, {"type": "text", "text": question.prompt}]}]


def _video(doc: Row, kwargs: Mapping[str, Any] | None) -> str:
    """Where lmms-eval keeps this row's video: its own task knows."""
    module, _, name = str((kwargs or {})["video_of"]).rpartition(".")
    (video,) = getattr(importlib.import_module(module), name)(doc)
    return str(video)


def _pictures(manifest: VideoManifest, budget: int, how: str) -> list[dict[str, Any]]:
    """The frames themselves: as one video without times, or as images, each after its second."""
    prefix = manifest_reader().frames(manifest, budget)
    pictures = pictures_of(prefix, manifest.video)
    if how == "frames":
        return [{"type": "video", "url": pictures}]
    shown: list[dict[str, Any]] = []
    for second, picture in zip(prefix.seconds.tolist(), pictures, strict=True):
        shown += [{"type": "text", "text": marker(second)}, {"type": "image", "url": picture}]
    return shown


def text(doc: Row, lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> str:
    """`doc_to_text`: question, choices and the paper's post-prompt."""
    return READERS[TaskSettings.of_task(lmms_eval_specific_kwargs).benchmark](doc).prompt


def no_visual(_doc: Row) -> list[Any]:
    """`doc_to_visual` is what models without chat messages use: they would see other frames."""
    raise SystemExit("framenest: this task needs a chat model; leave out --force_simple")


def short(dataset: Any) -> Any:
    """`process_docs`: Video-MME's short videos."""
    return _only(dataset, "short")


def medium(dataset: Any) -> Any:
    """`process_docs`: Video-MME's medium videos."""
    return _only(dataset, "medium")


def long(dataset: Any) -> Any:
    """`process_docs`: Video-MME's long videos."""
    return _only(dataset, "long")


def _only(dataset: Any, part: str) -> Any:
    return dataset.filter(lambda row: row["duration"] == part)


def videomme_results(doc: Row, results: list[Any]) -> dict[str, Any]:
    """`process_results` of Video-MME: lmms-eval's own, kept for each duration as well."""
    made: dict[str, Any] = dict(_videomme().videomme_process_results(doc, results))
    (score,) = made.values()
    return made | {f"videomme_{part}": score for part in DURATIONS}


def videomme_short(results: list[Mapping[str, Any]]) -> float:
    """Aggregation: lmms-eval's own, over the short videos."""
    return _of_duration(results, "short")


def videomme_medium(results: list[Mapping[str, Any]]) -> float:
    """Aggregation over the medium videos."""
    return _of_duration(results, "medium")


def videomme_long(results: list[Mapping[str, Any]]) -> float:
    """Aggregation over the long videos."""
    return _of_duration(results, "long")


def _of_duration(results: list[Mapping[str, Any]], part: str) -> float:
    return float(_videomme().videomme_aggregate_results([r for r in results if r["duration"] == part]))


def _videomme() -> Any:
    return importlib.import_module("lmms_eval.tasks.videomme.utils")


ROWS = "framenest.evaluation.lmms_eval.tasks"
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
