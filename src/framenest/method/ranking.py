"""Ranking: what a user keeps. A ranking file serves any budget without the video or a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from framenest.cache.archive import write_atomic
from framenest.config import MECConfig
from framenest.errors import BudgetError, ConfigError, IndexMismatch, StoreError
from framenest.frames import VideoInfo
from framenest.method.discovery import CandidatePool, Candidates
from framenest.method.greedy import Greedy
from framenest.method.prefix import Prefix

FORMAT = 1
_STATS = ("candidates", "probes", "zoom", "largest_gap_seconds", "substitutes", "decoded", "seconds")

_PER_RANK = {
    "frames": np.int64,
    "seconds": np.float64,
    "is_zoom": np.bool_,
    "relevance": np.float32,
    "change": np.float32,
    "observability": np.float32,
    "evidence": np.float32,
    "coverage": np.float64,
    "diversity": np.float64,
    "utility": np.float64,
}
_MEASURES = list(_PER_RANK)[3:]
_PER_CANDIDATE = {name: _PER_RANK[name] for name in list(_PER_RANK)[:7]}


@dataclass(frozen=True, eq=False)
class Ranking:
    """One ranking of a video's frames for a question; every budget is a prefix of it.

    Arrays go by rank, best first, all (M,): frames int64, seconds float64, relevance, change,
    observability, evidence float32, coverage, diversity, utility float64, is_zoom bool.
    `pool` holds all candidates with their cues; `stats` counts and stage seconds; `options` the answers
    to choose from, where there are some; `text` (M,) float32 the match of text on screen, where it was read.

    >>> ranking.prefix(8).frames                       # doctest: +SKIP
    array([  12,  480, ...])
    """

    video: VideoInfo
    question: str | None
    scorer: str
    config: MECConfig
    frames: NDArray[np.int64]
    seconds: NDArray[np.float64]
    is_zoom: NDArray[np.bool_]
    relevance: NDArray[np.float32]
    change: NDArray[np.float32]
    observability: NDArray[np.float32]
    evidence: NDArray[np.float32]
    coverage: NDArray[np.float64]
    diversity: NDArray[np.float64]
    utility: NDArray[np.float64]
    pool: Candidates
    stats: dict[str, Any]
    options: tuple[str, ...] = ()
    text: NDArray[np.float32] | None = None

    @classmethod
    def from_greedy(
        cls, pool: CandidatePool, greedy: Greedy, config: MECConfig, stats: dict[str, Any]
    ) -> Ranking:
        by_rank = {name: getattr(pool, name)[greedy.order] for name in _PER_CANDIDATE}
        return cls(
            video=pool.video,
            question=pool.question,
            scorer=pool.scorer,
            config=config,
            coverage=greedy.coverage,
            diversity=greedy.diversity,
            utility=greedy.utility,
            pool=pool.candidates,
            stats=stats,
            options=pool.options,
            text=None if pool.text is None else pool.text[greedy.order],
            **by_rank,
        )

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        return (
            f"Ranking({self.video.path!r}, question={self.question!r}, scorer={self.scorer!r}, "
            f"frames={self.frames.shape}, pool={len(self.pool)})"
        )

    def prefix(self, budget: int) -> Prefix:
        """The first `budget` ranks, in time order."""
        if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 1:
            raise BudgetError(f"a frame budget must be a whole number, 1 or more, not {budget!r}")
        everything = len(self) == len(self.pool)
        if budget > len(self) and not everything:
            raise BudgetError(
                f"this ranking has {len(self)} ranks, too few for a budget of {budget}; "
                f"rank again with horizon={budget} (--horizon {budget})"
            )
        chosen = np.argsort(self.frames[:budget], kind="stable")
        return Prefix(
            video=self.video,
            budget=int(budget),
            frames=self.frames[chosen],
            seconds=self.seconds[chosen],
            ranks=chosen.astype(np.int64) + 1,
            complete=budget > len(self),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": "ranking",
            "video": self.video.to_json(),
            "question": self.question,
            "options": list(self.options),
            "scorer": self.scorer,
            "config": self.config.to_json(),
            "stats": self.stats,
            "ranks": _rows(self),
            "pool": _columns(self.pool, _PER_CANDIDATE | _cues(self.pool.text))
            | {"active": list(self.pool.active), "anchors": list(self.pool.anchors)},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ranking:
        pool, read = data["pool"], _cues(data["pool"].get("text"))
        return cls(
            video=VideoInfo.from_json(data["video"]),
            question=data["question"],
            options=tuple(data.get("options", ())),
            scorer=data["scorer"],
            config=MECConfig.from_json(data["config"]),
            pool=Candidates(
                active=tuple(pool["active"]),
                anchors=tuple(pool["anchors"]),
                **_arrays(pool, _PER_CANDIDATE | read),
            ),
            stats={name: data["stats"][name] for name in _STATS} | data["stats"],
            **_arrays(_from_rows(data["ranks"], [*_MEASURES, *read]), _PER_RANK | read),
        )

    def save(self, path: str | Path) -> None:
        """Write the ranking as JSON."""
        write_atomic(Path(path), self.dumps().encode(errors="surrogatepass"))

    def dumps(self) -> str:
        """The ranking as JSON text."""
        return json.dumps(self.to_json(), ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Ranking:
        """Read a ranking written by `save`."""
        return load_file(path, "ranking", cls.from_json)


def _rows(ranking: Ranking) -> list[dict[str, Any]]:
    """One object per rank, for people and scripts that read the file."""
    read = _cues(ranking.text)
    columns = _columns(ranking, _PER_RANK | read)
    return [
        {
            "rank": i + 1,
            "frame": columns["frames"][i],
            "seconds": columns["seconds"][i],
            "from": "zoom" if columns["is_zoom"][i] else "probe",
            **{name: columns[name][i] for name in (*_MEASURES, *read)},
        }
        for i in range(len(ranking))
    ]


def _cues(text: object) -> dict[str, Any]:
    """The columns that only some rankings have."""
    return {} if text is None else {"text": np.float32}


def _from_rows(rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> dict[str, list[Any]]:
    return {
        "frames": [row["frame"] for row in rows],
        "seconds": [row["seconds"] for row in rows],
        "is_zoom": [row["from"] == "zoom" for row in rows],
    } | {name: [row[name] for row in rows] for name in measures}


def _columns(source: object, names: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {name: _plain(getattr(source, name)) for name in names}


def _plain(array: NDArray[Any]) -> list[Any]:
    """JSON values that read back bit for bit; float32 in its own shortest digits."""
    if array.dtype == np.float32:
        return [float(str(value)) for value in array]
    values: list[Any] = array.tolist()
    return values


def _arrays(data: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    arrays = {name: np.array(data[name], dtype=kind) for name, kind in names.items()}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) != 1 or any(array.ndim != 1 for array in arrays.values()):
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    return arrays


Result = TypeVar("Result")


def load_file(path: str | Path, kind: str, make: Callable[[Mapping[str, Any]], Result]) -> Result:
    """What `make` makes of a result file of this kind; a clear error where it is none."""
    data = read_file(path)
    if data.get("kind") != kind:
        raise StoreError(f"{path}: not a {kind} file")
    if data.get("format") != FORMAT:
        raise IndexMismatch(
            f"{path}: this {kind} has format {data.get('format')}, "
            f"this version of Framenest reads format {FORMAT}"
        )
    try:
        return make(data)
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise StoreError(f"{path}: damaged {kind} file ({error!r})") from error


def read_file(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file; empty where it holds something else."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass"))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not a ranking file ({error})") from error
    return data if isinstance(data, dict) else {}
