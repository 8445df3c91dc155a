"""The functions that task yamls name: from a row of a benchmark to a message, and scores by duration."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from framenest.errors import MissingExtra
from framenest.evaluation.benchmarks import READERS
from framenest.evaluation.lmms_eval.hook import ending_the_run, is_hooked, pictures_of
from framenest.evaluation.lmms_eval.task_settings import NATIVE, TaskSettings
from framenest.evaluation.lmms_eval.video_manifest import VideoManifest, manifest_reader
from framenest.evaluation.query_text import QueryText
from framenest.lmm.times import marker

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
