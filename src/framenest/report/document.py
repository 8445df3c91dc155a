"""The data of a report as one JSON document, without images. docs/report.md describes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig
from framenest.errors import ConfigError
from framenest.frames import Array
from framenest.method.index import segments
from framenest.method.ordering import RULES
from framenest.method.ranking import CandidatePool, Ranking
from framenest.selectors.selection import Selection

REPORT_FORMAT = 1
Result = Ranking | Selection
STATS = ("candidates", "probes", "zoom", "largest_gap_seconds", "decoded", "wall_seconds", "seconds", "match")
"""The stats of a result that the page shows."""
LONGEST_NAME = 48  # characters of a description that are shown beside its curve


def document(results: Sequence[Result], *, names: Sequence[str] = ()) -> dict[str, Any]:
    """The document of rankings and selections of one video.

    Args:
        results: at least one, all of the same video.
        names: labels for otherwise identical results.

    Returns:
        A JSON object; docs/report.md describes it.

    Raises:
        ConfigError: no result, or results of different videos.

    >>> document([ranking])["rankings"][0]["ranks"]["frames"] == ranking.frames.tolist()
    True
    """
    if not results:
        raise ConfigError("give at least one ranking")
    if len({result.video.fingerprint for result in results}) > 1:
        raise ConfigError("these rankings are of different videos; make one report per video")
    entries = [_ranking(result) if isinstance(result, Ranking) else _selection(result) for result in results]
    labels = _labels(entries) or names or [f"ranking {i + 1}" for i in range(len(entries))]
    return {
        "format": REPORT_FORMAT,
        "video": _video(results),
        "rankings": [{"label": label} | entry for label, entry in zip(labels, entries, strict=True)],
    }


def _video(results: Sequence[Result]) -> dict[str, Any]:
    video, notes = results[0].video, dict.fromkeys(note for result in results for note in result.notes)
    names = ("num_frames", "duration", "fps", "constant_rate", "width", "height", "codec")
    facts = {name: getattr(video, name) for name in names}
    return {"name": Path(video.path).name} | facts | {"notes": [*notes]}


def _ranking(ranking: Ranking) -> dict[str, Any]:
    preset, changed = preset_of(ranking.config, has_question=ranking.question is not None)
    pool, index = ranking.pool, ranking.config.index
    end = ranking.video.duration if index.end is None else min(index.end, ranking.video.duration)
    columns: dict[str, Array] = {**ranking.cues, "evidence": ranking.evidence, **ranking.terms}
    entry: dict[str, Any] = {
        "kind": "ranking",
        "selector": "mec",
        "question": ranking.question,
        "options": list(ranking.options),
        "look_for": list(ranking.look_for.texts) if ranking.look_for else [],
        "scorer": ranking.scorer,
        "preset": preset,
        "changed": changed,
        "window": None if index.start == 0 and index.end is None else [index.start, end],
        "rule": _rule(ranking),
        "ranks": _places(ranking) | {name: _rounded(values) for name, values in columns.items()},
        "pool": _places(pool),
        "curves": list(_curves(ranking)),
        "active": _active(ranking),
        "anchors": list(pool.anchors),
        "roles": ranking.roles,
        "reasons": ranking.reasons,
        "stats": _stats(ranking.stats.to_json()),
    }
    if ranking.stats.match is not None:
        entry["stats"]["match"]["text"] = ranking.match_text
    if ranking.transcript:
        entry["said"] = [ranking.said(i + 1) for i in range(len(ranking))]
    return entry


def _selection(selection: Selection) -> dict[str, Any]:
    return {
        "kind": "selection",
        "selector": selection.selector,
        "question": selection.question,
        "options": [],
        "scorer": selection.scorer,
        "budgets": {
            str(budget): {name: prefix.to_json()[name] for name in ("frames", "seconds", "ranks")}
            for budget, prefix in sorted(selection.prefixes.items())
        },
        "stats": _stats(selection.stats),
    }


def _curves(ranking: Ranking) -> Iterator[dict[str, Any]]:
    """The curves of the timeline, with a value per candidate: {name, weight, values}, and perhaps `about`.

    weight: its weight in the evidence; None if it is not a part of it. A curve with a weight has a column of
    the same name among the ranks. about: explains a name that the page does not know.
    """
    pool, weights = ranking.pool, ranking.config.settings()
    for name, values in {"evidence": pool.evidence, **pool.cues}.items():
        yield {"name": name, "weight": weights.get(f"{name}_weight"), "values": _rounded(values)}
    for text, values in pool.matches.items():
        about = f"Relevance of: {text}"
        yield {"name": text[:LONGEST_NAME], "weight": None, "values": _rounded(values), "about": about}


def _places(source: Ranking | CandidatePool) -> dict[str, Any]:
    return {
        "frames": source.frames.tolist(),
        "seconds": source.seconds.tolist(),
        "zoom": source.is_zoom.astype(int).tolist(),
    }


def _rounded(values: Array) -> list[float]:
    """Rounded to four digits, more than a page shows."""
    return [round(float(value), 4) for value in values]


def _rule(ranking: Ranking) -> dict[str, Any]:
    """How the rule explains itself; without parts if the file lacks its terms."""
    config, terms = ranking.config.ranking, ranking.terms
    rule = RULES[config.rule]
    named = [term for term in rule.terms if term.name in terms]
    complete = len(named) == len(rule.terms)
    parts = rule.parts(ranking.evidence.astype(np.float64), terms, config) if complete else []
    shown = []
    for part in parts:
        weights = None if part.weights is None else _rounded(part.weights)
        shown.append(part._asdict() | {"values": _rounded(part.values), "weights": weights})
    return {"name": rule.name, "joins": rule.joins, "terms": list(map(asdict, named)), "parts": shown}


def _active(ranking: Ranking) -> list[list[float]]:
    """[start, end] seconds of the active segments; a segment reaches half-way to its neighbours' probes."""
    pool = ranking.pool
    probes = pool.seconds[~pool.is_zoom]
    middles = (probes[:-1] + probes[1:]) / 2
    edges = np.concatenate([probes[:1], middles, probes[-1:]])
    parts = segments(len(probes), ranking.config.discovery.segment_length)
    return [[round(float(edges[end]), 3) for end in (parts[j].start, parts[j].stop)] for j in pool.active]


def _stats(stats: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: stats[name] for name in STATS if name in stats}
    return facts | {"substitutes": len(stats.get("substitutes", ()))}


def preset_of(config: MECConfig, *, has_question: bool = True) -> tuple[str, dict[str, Any]]:
    """The preset nearest to a configuration, and the settings that differ from it.

    The time window is ignored; so is the weight of relevance if there is no question.

    >>> preset_of(MECConfig.preset("no-zoom").with_settings({"horizon": 64}))
    ('no-zoom', {'horizon': 64})
    """
    whole = IndexConfig()
    plain = config.with_settings({"start": whole.start, "end": whole.end})
    if not has_question:
        plain = plain.with_settings({"relevance_weight": DiscoveryConfig().relevance_weight})
    differences = {}
    for preset in PRESETS:
        theirs = MECConfig.preset(preset).settings()
        differences[preset] = {k: value for k, value in plain.settings().items() if value != theirs[k]}
    return min(differences.items(), key=lambda item: len(item[1]))


def _labels(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels from the parts in which the results differ; none if they do not."""
    differing = [parts for parts in zip(*map(_parts, entries), strict=True) if len({*parts} - {"none"}) > 1]
    labels = [" · ".join(filter(None, parts)) for parts in zip(*differing, strict=True)] or [""] * len(
        entries
    )
    return labels if len(set(labels)) == len(labels) else []


def _parts(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """The question, the method, the scorer and the part of the video."""
    question, method, window = entry["question"], entry["selector"], entry.get("window")
    if entry["kind"] == "ranking":
        settings = [f"{name} {value}" for name, value in entry["changed"].items()]
        preset = "" if entry["preset"] == "paper" else f" {entry['preset']}"
        method = ", ".join([f"{method}{preset}", *settings])
    span = f"{window[0]:g}–{window[1]:g} s" if window else ""
    return "(no question)" if question is None else question, method, entry["scorer"], span
