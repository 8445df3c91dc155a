"""Result files of lmms-eval: the scores of Framenest's tasks, by model, selector and budget."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framenest.errors import ConfigError, StoreError
from framenest.evaluation.benchmarks import READERS
from framenest.evaluation.lmms_eval.tasks import DURATIONS

RESULT_FILES = "*_results.json"
BUDGETS = ("max_num_frames", "num_frames", "nframes", "max_frames", "codec_target_canvas")
"""Names of the argument K among lmms-eval's models."""
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


@dataclass(frozen=True)
class ResultFileScores:
    """One task of a result file: scores in percent, by column of the main table."""

    model: str
    thinking: bool
    selector: str
    budget: int
    scores: Mapping[str, float]


def read_result_files(path: str | Path) -> list[ResultFileScores]:
    """The scores of our tasks in a result file of lmms-eval, or in all below a folder, latest first.

    The selector is the task's own: lmms-eval's file does not say what $FRAMENEST_SELECTOR was.

    Raises:
        StoreError: There is no such file, or no result file in the folder.
        ConfigError: It is not a result file of lmms-eval.
    """
    place, files = Path(path), [Path(path)]
    if place.is_dir():
        files = sorted(place.rglob(RESULT_FILES), key=lambda file: file.name, reverse=True)
    if not files:
        raise StoreError(f"{path}: no result files of lmms-eval in this folder ({RESULT_FILES})")
    return [scores for file in files for scores in _read_scores(file)]


def _read_scores(file: Path) -> Iterator[ResultFileScores]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        arguments = data["config"]["model_args"] or ""
        results, configs = data["results"], data["configs"]
        if not isinstance(arguments, Mapping):
            arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: not a result file of lmms-eval ({error!r})") from error
    budget = next((int(arguments[name]) for name in BUDGETS if arguments.get(name)), None)
    thinking = str(arguments.get("enable_thinking", False)).lower() == "true"
    model = str(arguments.get("pretrained") or arguments.get("model") or data["config"]["model"])
    for task, numbers in results.items():
        settings = _settings(configs.get(task, {}).get("lmms_eval_specific_kwargs"))
        dataset = settings.get("benchmark")
        if dataset not in READERS or budget is None:
            continue
        plain = {name.partition(",")[0]: value for name, value in numbers.items()}
        part = next((part.capitalize() for part in DURATIONS if f"_videomme_{part}" in f"_{task}"), None)
        found = {
            (part if part and column == "Overall" else column): factor * plain[metric]
            for column, (metric, factor) in METRICS[dataset].items()
            if isinstance(plain.get(metric), (int, float))
        }
        yield ResultFileScores(model, thinking, settings.get("selector", "mec"), budget, found)


def _settings(kwargs: Any) -> Mapping[str, Any]:
    """The settings below `framenest` in our task's yaml, wherever lmms-eval put them."""
    if not isinstance(kwargs, Mapping):
        return {}
    if isinstance(kwargs.get("framenest"), Mapping):
        found: Mapping[str, Any] = kwargs["framenest"]
        return found
    return next((inner for value in kwargs.values() if (inner := _settings(value))), {})
