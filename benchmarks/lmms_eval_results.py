"""Results of lmms-eval: scores of Framenest's tasks, how many answers they rest on, and how they were run.

Scores are lmms-eval's own. Answers are counted in its file of samples, beside the result file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from framenest.errors import ConfigError, StoreError
from framenest.evaluation.lmms_eval.hook import REQUEST_FAILED
from framenest.evaluation.lmms_eval.tasks import DURATIONS, NATIVE, READERS, TASKS, TaskSettings

RESULT_FILES = "*_results.json"
BUDGETS = ("max_num_frames", "num_frames", "nframes", "max_frames", "codec_target_canvas")
"""Names of the argument K among lmms-eval's models."""
MODELS = ("pretrained", "model_version", "model")
"""Names of the argument that is the model."""
THINKING = ("enable_thinking", "enable_thinking_kwarg")
METRICS: dict[str, dict[str, tuple[str, float]]] = {
    "videomme": {
        "Overall": ("videomme_perception_score", 1),
        **{part.capitalize(): (f"videomme_{part}", 1) for part in DURATIONS},
    },
    "videomme-v2": {
        "Non-Lin.": ("videomme_v2_overall_score", 1),
        "Micro Acc.": ("videomme_v2_overall_acc", 1),
    },
    "longvideobench": {"LVB": ("lvb_acc", 100)},
    "mlvu": {"MLVU": ("mlvu_percetion_score", 1)},  # lmms-eval's spelling
}
"""Columns of the main table by benchmark: lmms-eval's name, and the factor that makes it percent."""
QUESTIONS = {
    "videomme": 2700,
    **{f"videomme_{part}": 900 for part in DURATIONS},
    "videomme_v2": 3200,
    "longvideobench_val": 1337,
    "mlvu_dev": 2174,
    "mlvu_test": 502,
}
"""Questions of a task as lmms-eval loads them; of MLVU's dev set those with options."""
DEFAULTS = {entry.name: entry.default for entry in fields(TaskSettings)[1:]} | {"version": None}
"""Of settings that somebody's own yaml leaves out."""


@dataclass(frozen=True)
class TaskRun:
    """One task of a result file.

    scores: in percent, by column of the main table. answered, failed: questions with an answer, and those
    that failed or were answered with nothing, which lmms-eval scores as wrong. questions: how many there are.
    way: all else that defines the run, by name.
    """

    file: Path
    task: str
    model: str
    thinking: bool
    selector: str
    budget: int
    scores: Mapping[str, float]
    answered: int
    failed: int
    questions: int
    way: Mapping[str, str]


def read_result_files(path: str | Path) -> list[TaskRun]:
    """Our tasks in a result file of lmms-eval, or in all below a folder.

    Raises:
        StoreError: There is no such file, none in the folder, or no file of samples beside it.
        ConfigError: It is not a result file of lmms-eval.
    """
    place = Path(path)
    files = sorted(place.rglob(RESULT_FILES)) if place.is_dir() else [place]
    if not files:
        raise StoreError(f"{path}: no result files of lmms-eval in this folder ({RESULT_FILES})")
    return [run for file in files for run in _read_runs(file)]


def _read_runs(file: Path) -> Iterator[TaskRun]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        config, results, configs = data["config"], data["results"], data["configs"]
        arguments = config["model_args"] or ""
        if not isinstance(arguments, Mapping):
            arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: not a result file of lmms-eval ({error!r})") from error
    model = next((str(arguments[name]) for name in MODELS if arguments.get(name)), str(config["model"]))
    said = [str(arguments[name]).lower() == "true" for name in THINKING if arguments.get(name) is not None]
    local = "model_version" not in arguments  # a server's settings are not known
    by_default = config["model"] == "qwen3_5" or (local and "qwen3.5" in model.lower())
    thinking = any(said) if said else by_default
    others = {k: v for k, v in arguments.items() if k not in (*BUDGETS, *MODELS, *THINKING)}
    for task, numbers in results.items():
        settings = DEFAULTS | _settings(configs.get(task, {}).get("lmms_eval_specific_kwargs"))
        benchmark = settings.get("benchmark")
        if benchmark not in READERS:
            continue
        budgets = {int(arguments[name]) for name in BUDGETS if arguments.get(name)}
        budgets |= {settings["frames"]} if settings["frames"] else set()
        if len(budgets) != 1:
            raise ConfigError(f"{file}: {task} names no single number of frames: {sorted(budgets)}")
        plain = {name.partition(",")[0]: value for name, value in numbers.items()}
        named = [one.name for one in TASKS if one.benchmark == benchmark]
        name = max((name for name in named if f"_{name}" in f"_{task}"), key=len, default=named[0])
        part = name.rpartition("_")[2]
        scores = {
            (part.capitalize() if part in DURATIONS and column == "Overall" else column): factor
            * plain[metric]
            for column, (metric, factor) in METRICS[benchmark].items()
            if isinstance(plain.get(metric), (int, float))
        }
        answered, failed = _count_answers(file, task, thinking)
        way = {"model": model, "backend": config["model"], "generation": config.get("gen_kwargs")}
        way |= {"lmms-eval": data.get("lmms_eval_version"), "framenest": settings["version"]}
        way |= {name: settings[name] for name in ("pairing", "frames_as")}
        if settings["scorer"]:
            way |= {name: settings[name] for name in ("scorer", "query")}
        if settings["selector"] != NATIVE:  # which may read a codec stream
            way["model arguments"] = ",".join(f"{name}={value}" for name, value in sorted(others.items()))
        if benchmark == "mlvu":
            way["MLVU's set"] = part
        yield TaskRun(
            file, task, model, thinking, settings["selector"], budgets.pop(), scores, answered, failed,
            QUESTIONS[name], {name: str(value) for name, value in way.items()},
        )  # fmt: skip


def _count_answers(file: Path, task: str, thinking: bool) -> tuple[int, int]:
    """(questions with an answer, failed ones) of a task's samples. Thinking may end without an answer."""
    samples = file.with_name(f"{file.name.removesuffix('_results.json')}_samples_{task}.jsonl")
    try:
        lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError as error:
        raise StoreError(f"{samples}: missing; run lmms-eval with --log_samples") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{samples}: cannot be read ({error})") from error
    answers = {line["doc_id"]: line["filtered_resps"] for line in lines}
    texts = [
        str(answer[0]) if isinstance(answer, list) and answer else str(answer) for answer in answers.values()
    ]
    failed = sum(text.startswith(REQUEST_FAILED) or not (thinking or text.strip()) for text in texts)
    return len(texts) - failed, failed


def _settings(kwargs: Any) -> dict[str, Any]:
    """The settings below `framenest` in our task's yaml, wherever lmms-eval put them."""
    if not isinstance(kwargs, Mapping):
        return {}
    if isinstance(kwargs.get("framenest"), Mapping):
        return dict(kwargs["framenest"])
    return next((inner for value in kwargs.values() if (inner := _settings(value))), {})
