"""What the report view draws, as one JSON document without the pictures. docs/report.md describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig
from framenest.errors import ConfigError
from framenest.frames import VideoInfo
from framenest.method.candidate_pool import CandidatePool
from framenest.method.index import segments
from framenest.method.ordering import RULES
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.selectors.selection import Selection

REPORT_FORMAT = 1
Result = Ranking | Selection
NO_SCORER = "none"
LONGEST_NAME = 48
"""Characters of a description beside its curve."""


def document(results: Sequence[Result], *, names: Sequence[str] = ()) -> dict[str, Any]:
    """The document of rankings and selections of one video.

    Args:
        results: at least one, all of the same video.
        names: labels for results that differ in nothing else.

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
    labels = _labels(results, names or [f"ranking {i + 1}" for i in range(len(results))])
    return {
        "format": REPORT_FORMAT,
        "video": _video(results[0].video),
        "rankings": [
            {"label": label} | (_ranking(result) if isinstance(result, Ranking) else _selection(result))
            for result, label in zip(results, labels, strict=True)
        ],
    }


def _video(video: VideoInfo) -> dict[str, Any]:
    wanted = ("num_frames", "duration", "fps", "constant_rate", "width", "height", "codec")
    facts = {name: getattr(video, name) for name in wanted}
    return {"name": Path(video.path).name} | facts | {"notes": list(video.notes)}


def _ranking(ranking: Ranking) -> dict[str, Any]:
    preset, changed = preset_of(ranking.config, asked=ranking.question is not None)
    settings, pool = ranking.config.discovery, ranking.pool
    probes = pool.seconds[~pool.is_zoom]
    return {
        "kind": "ranking",
        "selector": "mec",
        "question": ranking.question,
        "options": list(ranking.options),
        "scorer": ranking.scorer,
        "preset": preset,
        "changed": changed,
        "window": _window(ranking),
        "rule": _rule(ranking),
        "ranks": _columns(ranking),
        "pool": _places(pool),
        "curves": _curves(ranking),
        "active": _active(probes, pool.active, settings.segment_length),
        "anchors": list(pool.anchors),
        "stats": _stats(ranking.stats.to_json()),
    } | ({"said": [ranking.said(i + 1) for i in range(len(ranking))]} if ranking.transcript else {})


def _window(ranking: Ranking) -> list[float] | None:
    """[start, end] in seconds if only a part of the video was ranked."""
    index = ranking.config.index
    if index.start == 0 and index.end is None:
        return None
    return [
        index.start,
        ranking.video.duration if index.end is None else min(index.end, ranking.video.duration),
    ]


def _selection(selection: Selection) -> dict[str, Any]:
    return {
        "kind": "selection",
        "selector": selection.selector,
        "question": selection.question,
        "options": [],
        "scorer": selection.scorer,
        "budgets": {str(k): _prefix(prefix) for k, prefix in sorted(selection.prefixes.items())},
        "stats": _stats(selection.stats),
    }


def _prefix(prefix: Prefix) -> dict[str, Any]:
    return {
        "frames": prefix.frames.tolist(),
        "seconds": _rounded(prefix.seconds),
        "ranks": None if prefix.ranks is None else prefix.ranks.tolist(),
    }


def _curves(ranking: Ranking) -> list[dict[str, Any]]:
    """What the timeline draws over time, a value per candidate: {name, weight, values}, and perhaps `about`.

    weight: in the evidence, null for what is no part of it. `about` explains a name that the page does not
    know. A curve with a weight has a column of its name among the ranks.
    """
    pool, settings = ranking.pool, ranking.config.discovery
    cues = [
        {"name": name, "weight": getattr(settings, f"{name}_weight"), "values": _rounded(values)}
        for name, values in pool.cues.items()
    ]
    cues += [
        {
            "name": text[:LONGEST_NAME],
            "weight": None,
            "values": _rounded(values),
            "about": f"Relevance of: {text}",
        }
        for text, values in pool.matches.items()
    ]
    return [{"name": "evidence", "weight": None, "values": _rounded(pool.evidence)}, *cues]


def _places(source: Ranking | CandidatePool) -> dict[str, Any]:
    return {
        "frames": source.frames.tolist(),
        "seconds": _rounded(source.seconds),
        "zoom": source.is_zoom.astype(int).tolist(),
    }


def _columns(ranking: Ranking) -> dict[str, Any]:
    measures: dict[str, NDArray[Any]] = {**ranking.cues, "evidence": ranking.evidence, **ranking.terms}
    return _places(ranking) | {name: _rounded(values) for name, values in measures.items()}


def _rounded(values: NDArray[Any]) -> list[float]:
    """Rounded to four digits: more than a page shows, and shorter."""
    return [round(float(value), 4) for value in values]


def _rule(ranking: Ranking) -> dict[str, Any]:
    """What the rule says about itself and about every rank; without parts if the file lacks its terms."""
    config, terms = ranking.config.ranking, ranking.terms
    rule = RULES[config.rule]
    named = {term.name: term for term in rule.terms if term.name in terms}
    told = {"name": rule.name, "joins": rule.joins, "terms": [asdict(term) for term in named.values()]}
    if len(named) < len(rule.terms):
        return told | {"parts": [], "because": []}
    parts = rule.parts(ranking.evidence.astype(np.float64), terms, config)
    asked = ranking.config.discovery.relevance_weight > 0
    later = [rule.because(parts, terms, rank, asked) for rank in range(2, len(ranking) + 1)]
    return told | {
        "parts": [
            {
                "name": part.name,
                "about": part.about,
                "values": _rounded(part.values),
                "weights": None if part.weights is None else _rounded(part.weights),
            }
            for part in parts
        ],
        "because": ["First, because it has the most evidence.", *later],
    }


def _active(probes: NDArray[np.float64], active: Sequence[int], length: int) -> list[list[float]]:
    """[start, end] seconds of the active segments; a segment reaches half-way to its neighbours' probes."""
    middles = (probes[:-1] + probes[1:]) / 2
    edges = np.concatenate([probes[:1], middles, probes[-1:]])
    parts = segments(len(probes), length)
    return [[round(float(edges[parts[j].start]), 3), round(float(edges[parts[j].stop]), 3)] for j in active]


def _stats(stats: Mapping[str, Any]) -> dict[str, Any]:
    kept = (
        "candidates",
        "probes",
        "zoom",
        "largest_gap_seconds",
        "decoded",
        "wall_seconds",
        "seconds",
        "match",
    )
    told = {name: stats[name] for name in kept if name in stats}
    return told | {"substitutes": len(stats.get("substitutes", ()))}


def preset_of(config: MECConfig, *, asked: bool = True) -> tuple[str, dict[str, Any]]:
    """The preset nearest to a configuration, and the settings that differ from it.

    The time window is ignored, as are the settings of other rules, and without a question the weight of
    relevance.

    >>> preset_of(MECConfig.preset("no-zoom").with_settings({"horizon": 64}))
    ('no-zoom', {'horizon': 64})
    """
    whole = IndexConfig()
    plain = config.with_settings({"start": whole.start, "end": whole.end})
    if not asked:
        plain = plain.with_settings({"relevance_weight": DiscoveryConfig().relevance_weight})
    differences = {name: _difference(plain, MECConfig.preset(name)) for name in PRESETS}
    name = min(differences, key=lambda preset: len(differences[preset]))
    return name, differences[name]


def _difference(config: MECConfig, other: MECConfig) -> dict[str, Any]:
    mine, theirs = asdict(config), asdict(other)
    own = RULES[config.ranking.rule].settings
    unused = {name for rule in RULES.values() for name in rule.settings if name not in own}
    return {
        name: value
        for part, settings in mine.items()
        for name, value in settings.items()
        if value != theirs[part][name] and name not in unused
    }


def _labels(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    """Labels from the parts in which the results differ; their names where they do not."""
    parts = [_parts(result) for result in results]
    differing = [part for part in parts[0] if len({p[part] for p in parts} - {NO_SCORER}) > 1]
    labels = [" · ".join(p[part] for part in differing if p[part]) for p in parts]
    return labels if len(set(labels)) == len(labels) else list(names)


def _parts(result: Result) -> dict[str, str]:
    if isinstance(result, Selection):
        method, window = result.selector, ""
    else:
        preset, changed = preset_of(result.config, asked=result.question is not None)
        settings = [f"{name} {value}" for name, value in changed.items()]
        method = ", ".join(["mec" if preset == "paper" else f"mec {preset}", *settings])
        index = result.config.index
        whole = index.start == 0 and index.end is None
        window = "" if whole else f"{index.start:g}–{'end' if index.end is None else f'{index.end:g}'} s"
    asked = result.question if result.question is not None else "(no question)"
    return {"question": asked, "method": method, "scorer": result.scorer, "window": window}
