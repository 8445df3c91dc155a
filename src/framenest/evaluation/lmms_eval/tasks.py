"""lmms-eval tasks: the questions in rows, the settings, the yaml, and the functions that it names."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import framenest
from framenest.cache.directory import DirectoryStore
from framenest.cache.files import write_atomic
from framenest.cache.hashes import digest
from framenest.config import NAME, CheckedSettings, RelevanceText, one_of, optional, setting, whole
from framenest.errors import ConfigError, MissingExtra
from framenest.evaluation.lmms_eval.hook import VideoManifest, ending_the_run, hook_readers, selected_frames
from framenest.lmm.prompt import DIRECTLY, Pairing, marker
from framenest.method.mec import with_options
from framenest.selectors import FILE, check_selector, needs_scorer

Row = Mapping[str, Any]
TaskPairing = Literal["pairs", "auto", "duplicate"]
FramesAs = Literal["video", "frames", "images"]
NATIVE = "native"  # the whole video, read by the model's own code: for comparison, with the same prompt
SELECTORS = ("mec", "uniform", "aks", "wfs-sb", NATIVE)
DURATIONS = ("short", "medium", "long")


@dataclass(frozen=True)
class BenchmarkQuestion:
    """One multiple-choice question.

    question: without its options. asked: with its options, as shown to the model. with_options: with its
    options, as WFS-SB's released code scores it.
    """

    question: str
    asked: str
    with_options: str


def _videomme(row: Row) -> BenchmarkQuestion:
    """Both Video-MME: the options start with their letters; in Video-MME-v2 they are one string."""
    listed, question = row["options"], str(row["question"])
    options = listed.strip().split("\n") if isinstance(listed, str) else [str(option) for option in listed]
    return BenchmarkQuestion(question, "\n".join([question, *options]), with_options(question, options))


def _longvideobench(row: Row) -> BenchmarkQuestion:
    """LongVideoBench: option0 to option4, with "N/A" for those that a question lacks."""
    question = str(row["question"])
    options = [str(row[name]) for i in range(5) if row.get(name := f"option{i}") not in (None, "N/A")]
    lettered = (f"{letter}. {text}" for letter, text in zip("ABCDE", options, strict=False))
    return BenchmarkQuestion(question, "\n".join([question, *lettered]), with_options(question, options))


def _mlvu(row: Row) -> BenchmarkQuestion:
    """MLVU: the question has its options as lines "(A) …"."""
    asked = str(row["question"])
    first = re.search(r"^[ \t]*\([A-J]\)", asked, re.M)
    if first is None:
        raise ValueError(f"no options (A), (B), … in the question {asked!r}")
    return BenchmarkQuestion(asked[: first.start()].strip(), asked, asked.removesuffix("\n") + "\n")


READERS: dict[str, Callable[[Row], BenchmarkQuestion]] = {
    "videomme": _videomme,
    "videomme-v2": _videomme,
    "longvideobench": _longvideobench,
    "mlvu": _mlvu,
}


@dataclass(frozen=True)
class TaskSettings(CheckedSettings):
    """Settings of a task: the keys below `framenest:` in its yaml, which lmms-eval copies into its results.

    pairing: Qwen3-VL and Qwen3.5 fuse two frames under one time: always with "pairs", as in the paper, only
    within two seconds with "auto", never with "duplicate". frames_as: "video" leaves decoding to the reader
    in qwen-vl-utils, which takes K from the model's own argument; "frames" and "images" put K images into
    the message, for other models.
    """

    benchmark: str = setting("", "Whose rows the task has.", one_of(Literal[tuple(READERS)]))
    selector: str = setting("mec", '"mec", "mec:no-zoom", "aks", …, or "native".', NAME)
    scorer: str | None = setting(None, "By name, never auto; None for a selector without.", optional(NAME))
    query: RelevanceText = setting("question", "Relevance is scored for it.", one_of(RelevanceText))
    pairing: Pairing = setting("pairs", "Which frames are fused.", one_of(TaskPairing))
    frames_as: FramesAs = setting("video", "How the message holds frames.", one_of(FramesAs))
    frames: int = setting(0, "K, if frames_as is not video.", whole(0))
    version: str = setting(framenest.__version__, "So that answers are not reused after an update.", NAME)

    @classmethod
    def of_task(cls, kwargs: Mapping[str, Any] | None) -> TaskSettings:
        """From `lmms_eval_specific_kwargs`.

        >>> TaskSettings.of_task({"framenest": {"benchmark": "videomme", "selector": "uniform"}}).selector
        'uniform'
        """
        settings = dict((kwargs or {}).get("framenest") or {})
        names = [entry.name for entry in fields(cls)]
        if unknown := settings.keys() - names:
            raise ConfigError(f"framenest has no setting {sorted(unknown)[0]!r}; choose from {names}")
        return cls(**settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frames_as != "video" and self.frames < 1:
            raise ConfigError(f"frames_as = {self.frames_as} needs the budget: frames = K")
        if self.version != framenest.__version__:
            raise ConfigError(
                f"task files of Framenest {self.version}, not {framenest.__version__}; write them again"
            )
        if self.selector == NATIVE:
            return
        check_selector(self.selector)
        if needs_scorer(self.selector) and self.scorer in (None, "auto"):
            raise ConfigError(
                f"selector {self.selector} needs a scorer by name, such as blip2, and not auto: results must "
                "say which scorer chose the frames"
            )

    def prepare_command(self, task: str) -> str:
        """The command that selects a task's frames, but for the budgets.

        >>> TaskSettings("videomme", "mec:no-zoom", "blip2").prepare_command("TASK")
        'framenest lmms-eval prepare TASK --scorer blip2 --selectors mec:no-zoom'
        """
        words = ["framenest", "lmms-eval", "prepare", task, "--scorer", str(self.scorer)]
        words += [] if self.selector in SELECTORS else ["--selectors", self.selector]
        words += [] if self.query == "question" else ["--query", self.query]
        return shlex.join(words)


def manifest_of(doc: Row, kwargs: Mapping[str, Any]) -> VideoManifest:
    """Which frames of which video a question shows. kwargs: `lmms_eval_specific_kwargs`."""
    settings = TaskSettings.of_task(kwargs)
    question = READERS[settings.benchmark](doc)
    module, _, name = str(kwargs["video_of"]).rpartition(".")  # lmms-eval's own function knows the path
    (video,) = getattr(importlib.import_module(module), name)(doc)
    # A file of frame lists is searched by the question alone.
    scores_options = settings.query == "question+options" and not settings.selector.startswith(FILE)
    return VideoManifest(
        video=str(video),
        text=question.with_options if scores_options else question.question,
        selector=settings.selector,
        scorer=settings.scorer,
        pairing=settings.pairing,
        prepare=settings.prepare_command(str(kwargs.get("task", "TASK"))),
    )


@ending_the_run()
def messages(doc: Row, lmms_eval_specific_kwargs: Row | None = None) -> list[dict[str, Any]]:
    """`doc_to_messages`: one user turn with the frames' manifest and the question."""
    kwargs = lmms_eval_specific_kwargs or {}
    settings = TaskSettings.of_task(kwargs)
    manifest = manifest_of(doc, kwargs)
    if settings.selector == NATIVE:
        shown = [{"type": "video", "url": manifest.video}]
    elif settings.frames_as != "video":
        shown = _images(manifest, settings.frames, settings.frames_as)
    elif hook_readers():
        shown = [{"type": "video", "url": str(manifest.write())}]
    else:
        raise MissingExtra("lmms-eval", "qwen-vl-utils")
    return [{"role": "user", "content": [*shown, {"type": "text", "text": text(doc, kwargs)}]}]


def _images(manifest: VideoManifest, budget: int, frames_as: str) -> list[dict[str, Any]]:
    """The frames themselves: as one video without times, or as images, each after its time."""
    prefix = selected_frames(manifest, budget)
    images = prefix.images(video=manifest.video, progress=False)
    if frames_as == "frames":
        return [{"type": "video", "url": images}]
    shown: list[dict[str, Any]] = []
    for second, image in zip(prefix.seconds.tolist(), images, strict=True):
        shown += [{"type": "text", "text": marker(second)}, {"type": "image", "url": image}]
    return shown


def text(doc: Row, lmms_eval_specific_kwargs: Row | None = None) -> str:
    """`doc_to_text`: question, options and the paper's instruction."""
    settings = TaskSettings.of_task(lmms_eval_specific_kwargs)
    return f"{READERS[settings.benchmark](doc).asked}\n{DIRECTLY}"


def no_visual(_doc: Row) -> list[Any]:
    """`doc_to_visual` serves models without chat messages, which would see other frames."""
    raise SystemExit("framenest: this task needs a chat model; leave out --force_simple")


def _only(part: str) -> Callable[[Any], Any]:
    return lambda dataset: dataset.filter(lambda row: row["duration"] == part)


short, medium, long = map(_only, DURATIONS)  # `process_docs`: Video-MME's short, medium and long videos


def videomme_results(doc: Row, results: list[Any]) -> dict[str, Any]:
    """`process_results` of Video-MME: lmms-eval's own result, repeated for each duration."""
    made: dict[str, Any] = dict(_theirs().videomme_process_results(doc, results))
    (score,) = made.values()
    return made | {f"videomme_{part}": score for part in DURATIONS}


def _mean_of(part: str) -> Callable[[list[Row]], Any]:
    return lambda rows: _theirs().videomme_aggregate_results([r for r in rows if r["duration"] == part])


videomme_short, videomme_medium, videomme_long = map(_mean_of, DURATIONS)
"""Aggregations: lmms-eval's own, over the videos of one duration."""


def _theirs() -> Any:
    return importlib.import_module("lmms_eval.tasks.videomme.utils")


@dataclass(frozen=True)
class Task:
    """A task of lmms-eval with our frames.

    name: ours is framenest_<name>. file: lmms-eval's yaml; the module `utils` beside it has `video_of`, the
    function from a row to the video. only: a function of this module that keeps part of the dataset.
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
    """The task's name in lmms-eval.

    >>> task_name(TASKS[0], "mec"), task_name(TASKS[-1], "wfs-sb")
    ('framenest_videomme', 'framenest_mlvu_test_wfs_sb')
    """
    if selector == "mec":
        return f"framenest_{task.name}"
    return f"framenest_{task.name}_{''.join(c if c.isalnum() else '_' for c in selector)}"


def task_yaml(task: Task, settings: TaskSettings, upstream: Path) -> str:
    """The yaml of one task. JSON is valid yaml, so values are written as JSON."""
    lines = [
        f"task: {task_name(task, settings.selector)}",
        f"include: {json.dumps(str(upstream / task.file))}",
        f"doc_to_messages: !function {__name__}.messages",
        f"doc_to_text: !function {__name__}.text",
        f"doc_to_visual: !function {__name__}.no_visual",
        "lmms_eval_specific_kwargs:",
        "  default:",
        f"    task: {task_name(task, settings.selector)}",
        f"    video_of: lmms_eval.tasks.{Path(task.file).parent}.utils.{task.video_of}",
        f"    framenest: {json.dumps(asdict(settings))}",
    ]
    if task.only:
        lines.append(f"process_docs: !function {__name__}.{task.only}")
    elif task.benchmark == "videomme":  # one run, all four columns of the paper
        own = "lmms_eval.tasks.videomme.utils.videomme_aggregate_results"
        metrics = {"videomme_perception_score": own}
        metrics |= {f"videomme_{part}": f"{__name__}.videomme_{part}" for part in DURATIONS}
        lines += [f"process_results: !function {__name__}.videomme_results", "metric_list:"]
        for name, aggregation in metrics.items():
            lines += [f"  - metric: {name}", f"    aggregation: !function {aggregation}"]
            lines.append("    higher_is_better: true")
    return "\n".join(lines) + "\n"


def write_tasks(
    store: DirectoryStore,
    selectors: Sequence[str] = SELECTORS,
    *,
    scorer: str | None = None,
    **settings: Any,
) -> Path:
    """Write all tasks into the cache; returns the folder for lmms-eval's --include_path.

    scorer, settings: as in `TaskSettings`, for every task; a selector that needs no scorer names none.
    """
    package = importlib.util.find_spec("lmms_eval")
    if package is None or not package.submodule_search_locations:
        raise MissingExtra("lmms-eval", "lmms-eval")
    upstream = Path(next(iter(package.submodule_search_locations))).resolve() / "tasks"
    yamls = {}
    for selector in selectors:
        named = scorer if selector != NATIVE and needs_scorer(selector) else None
        for task in TASKS:
            own = TaskSettings(task.benchmark, selector, named, **settings)
            yamls[task_name(task, selector)] = task_yaml(task, own, upstream)
    folder = store.root / "lmms-eval-tasks" / digest(version("lmms-eval"), yamls)[:12]
    for name, yaml in yamls.items():
        write_atomic(folder / f"{name}.yaml", yaml.encode(), follow=False)
    return folder
