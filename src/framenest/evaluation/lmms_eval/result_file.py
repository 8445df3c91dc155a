"""Result files of lmms-eval: the scores of our tasks, by model, selector and budget."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framenest.errors import ConfigError, StoreError
from framenest.evaluation.benchmarks import READERS
from framenest.evaluation.lmms_eval.tasks import DURATIONS

NAMES = "*_results.json"
BUDGETS = ("max_num_frames", "num_frames", "nframes", "max_frames", "codec_target_canvas")
"""The arguments by which lmms-eval's models are told K."""
METRICS: dict[str, dict[str, tuple[str, float]]] = {
    "videomme": {
        "overall": ("videomme_perception_score", 1),
        **{part: (f"videomme_{part}", 1) for part in DURATIONS},
    },
    "videomme-v2": {
        "nonlinear": ("videomme_v2_overall_score", 1),
        "micro": ("videomme_v2_overall_acc", 1),
    },
    "longvideobench": {"overall": ("lvb_acc", 100)},
    "mlvu": {"macro": ("mlvu_percetion_score", 1)},  # so lmms-eval spells it
}
"""Our scores by benchmark: lmms-eval's name, and what makes it percent."""


@dataclass(frozen=True)
class ResultFileScores:
    """One task of a result file: scores in percent, by the names of `benchmark_scores`."""

    model: str
    thinking: bool
    selector: str
    budget: int
    dataset: str
    scores: Mapping[str, float]


def read_result_files(path: str | Path) -> list[ResultFileScores]:
    """The scores in a result file, or in all below a folder, the latest first where runs were repeated.

    Tasks that are not Framenest's are left out. The selector is the task's own: one that was set in the
    environment ($FRAMENEST_SELECTOR, $FRAMENEST_PRESET) is not in lmms-eval's file.

    Raises:
        StoreError: There is no such file, or no result file in the folder.
        ConfigError: It is not a result file of lmms-eval.
    """
    place = Path(path)
    files = (
        sorted(place.rglob(NAMES), key=lambda file: file.name, reverse=True) if place.is_dir() else [place]
    )
    if not files:
        raise StoreError(f"{path}: no result files of lmms-eval in this folder ({NAMES})")
    return [scores for file in files for scores in _read(file)]


def _read(file: Path) -> Iterator[ResultFileScores]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        arguments = _arguments(data["config"]["model_args"])
        results, configs = data["results"], data["configs"]
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: not a result file of lmms-eval ({error!r})") from error
    budget = next((int(arguments[name]) for name in BUDGETS if arguments.get(name)), None)
    for task, numbers in results.items():
        settings = _settings(configs.get(task, {}).get("lmms_eval_specific_kwargs"))
        dataset = settings.get("benchmark")
        if dataset not in READERS or budget is None:
            continue
        plain = {name.partition(",")[0]: value for name, value in numbers.items()}
        part = next((part for part in DURATIONS if f"_videomme_{part}" in f"_{task}"), None)
        found = {
            (part if part and score == "overall" else score): factor * plain[metric]
            for score, (metric, factor) in METRICS[dataset].items()
            if isinstance(plain.get(metric), (int, float))
        }
        thinking = str(arguments.get("enable_thinking", False)).lower() == "true"
        model = str(arguments.get("pretrained") or arguments.get("model") or data["config"]["model"])
        yield ResultFileScores(model, thinking, settings.get("selector", "mec"), budget, dataset, found)


def _arguments(given: Any) -> dict[str, Any]:
    """The model's arguments: "a=1,b=2", or an object."""
    if isinstance(given, Mapping):
        return dict(given)
    return dict(part.split("=", 1) for part in str(given or "").split(",") if "=" in part)


def _settings(kwargs: Any) -> Mapping[str, Any]:
    """What our task's yaml says below `framenest`, wherever lmms-eval put it."""
    if not isinstance(kwargs, Mapping):
        return {}
    if isinstance(kwargs.get("framenest"), Mapping):
        found: Mapping[str, Any] = kwargs["framenest"]
        return found
    return next((inner for value in kwargs.values() if (inner := _settings(value))), {})
