"""Ranking: what a user keeps. A ranking file serves any budget without the video or a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.atomic_file import write_atomic
from framenest.config import MECConfig
from framenest.errors import BudgetError
from framenest.frames import VideoInfo
from framenest.method.candidate_pool import CandidatePool, Cues
from framenest.method.look_for import LookFor
from framenest.method.prefix import Prefix
from framenest.method.result_fields import check_ranking
from framenest.method.result_loading import load_file
from framenest.method.stats import Stats
from framenest.transcript.transcript import REACH, Transcript

RANKING_FORMAT = 1
_POOL_COLUMNS = {"frames": np.int64, "seconds": np.float64, "is_zoom": np.bool_, "evidence": np.float32}


@dataclass(frozen=True, eq=False)
class Ranking:
    """One ranking of a video's frames for a question; every budget is a prefix of it.

    Attributes:
        pool: all candidates with their cues, and what they belong to: video, question, scorer, settings,
            stats.
        order: (M,) int64 positions in the pool, best first.
        terms: (M,) float64 arrays by name: what each choice saw (coverage, diversity, utility).

    Everything else is derived, by rank: `frames` (M,) int64, `seconds` (M,) float64, `is_zoom` (M,) bool,
    `evidence` (M,) float32 and `cues`, (M,) float32 each.

    >>> small, large = ranking.prefix(8).frames, ranking.prefix(64).frames
    >>> len(large), set(small) <= set(large)
    (64, True)
    """

    pool: CandidatePool
    order: NDArray[np.int64]
    terms: Mapping[str, NDArray[np.float64]]

    @property
    def video(self) -> VideoInfo:
        return self.pool.video

    @property
    def question(self) -> str | None:
        return self.pool.question

    @property
    def options(self) -> tuple[str, ...]:
        return self.pool.options

    @property
    def scorer(self) -> str:
        return self.pool.scorer

    @property
    def config(self) -> MECConfig:
        return self.pool.config

    @property
    def stats(self) -> Stats:
        return self.pool.stats

    @property
    def look_for(self) -> LookFor | None:
        return self.pool.look_for

    @property
    def transcript(self) -> Transcript | None:
        return self.pool.transcript

    def said(self, rank: int) -> str:
        """What is said while the frame of a rank, from 1, is on; empty where nothing is, or not known.

        >>> ranking.said(1)
        ''
        """
        lines = self.transcript.around(float(self.seconds[rank - 1]), REACH) if self.transcript else []
        return " ".join(line.text for line in lines)

    @property
    def frames(self) -> NDArray[np.int64]:
        return self.pool.frames[self.order]

    @property
    def seconds(self) -> NDArray[np.float64]:
        return self.pool.seconds[self.order]

    @property
    def is_zoom(self) -> NDArray[np.bool_]:
        return self.pool.is_zoom[self.order]

    @property
    def evidence(self) -> NDArray[np.float32]:
        return self.pool.evidence[self.order]

    @property
    def cues(self) -> Cues:
        return {name: cue[self.order] for name, cue in self.pool.cues.items()}

    def __len__(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return (
            f"Ranking({self.video.path!r}, question={self.question!r}, scorer={self.scorer!r}, "
            f"frames={self.order.shape}, pool={len(self.pool)})"
        )

    def _repr_html_(self) -> str:
        """In a notebook: the evidence over time and the first frames."""
        from framenest.method.notebook_view import ranking_html

        return ranking_html(self)

    def prefix(self, budget: int) -> Prefix:
        """The first `budget` ranks, in time order.

        Args:
            budget: frames wanted, 1 or more. More than the ranking has is served only where every candidate
                of a short video is ranked already (`Prefix.complete`).

        Raises:
            BudgetError: the ranking has too few ranks; the message says which horizon to rank with.
        """
        if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 1:
            raise BudgetError(f"a frame budget must be a whole number, 1 or more, not {budget!r}")
        if budget > len(self) and len(self) < len(self.pool):
            raise BudgetError(
                f"this ranking has {len(self)} ranks, too few for a budget of {budget}; "
                f"rank again with horizon={budget} (--horizon {budget})"
            )
        ranks = np.argsort(self.order[:budget], kind="stable")
        chosen = self.order[ranks]
        return Prefix(
            video=self.video,
            budget=int(budget),
            frames=self.pool.frames[chosen],
            seconds=self.pool.seconds[chosen],
            ranks=ranks.astype(np.int64) + 1,
            complete=budget > len(self),
        )

    def to_json(self) -> dict[str, Any]:
        pool = self.pool
        return {
            "format": RANKING_FORMAT,
            "kind": "ranking",
            "video": self.video.to_json(),
            "question": self.question,
            "options": list(self.options),
            "scorer": self.scorer,
            "config": self.config.to_json(),
            "stats": self.stats.to_json(),
            "ranks": self._rows(),
            "pool": {
                "num_frames": pool.num_frames,
                "active": list(pool.active),
                "anchors": list(pool.anchors),
                **{name: _plain(getattr(pool, name)) for name in _POOL_COLUMNS},
                "cues": {name: _plain(cue) for name, cue in pool.cues.items()},
            },
        } | _beside(pool)

    def _rows(self) -> list[dict[str, Any]]:
        """One object per rank, for people and scripts that read the file."""
        measures: dict[str, NDArray[Any]] = {**self.cues, "evidence": self.evidence, **self.terms}
        columns = {name: _plain(values) for name, values in measures.items()}
        places = zip(self.frames.tolist(), self.seconds.tolist(), self.is_zoom.tolist(), strict=True)
        return [
            {"rank": i + 1, "frame": frame, "seconds": seconds, "from": "zoom" if zoom else "probe"}
            | {name: values[i] for name, values in columns.items()}
            | ({"said": self.said(i + 1)} if self.transcript else {})
            for i, (frame, seconds, zoom) in enumerate(places)
        ]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ranking:
        check_ranking(data)
        pool = data["pool"]
        cues = _arrays(pool["cues"], dict.fromkeys(pool["cues"], np.float32))
        matches = data.get("look_for", {}).get("relevance", {})
        columns = _arrays(pool, _POOL_COLUMNS)
        _same_length([*cues.values(), *columns.values(), *map(np.array, matches.values())])
        order = np.searchsorted(columns["frames"], [row["frame"] for row in data["ranks"]])
        if not np.array_equal(columns["frames"][order], [row["frame"] for row in data["ranks"]]):
            raise ValueError("a rank names a frame that is no candidate")
        known = {"rank", "frame", "seconds", "from", "evidence", "said", *cues}
        names = [name for name in data["ranks"][0] if name not in known] if data["ranks"] else []
        terms = {name: np.array([row[name] for row in data["ranks"]], dtype=np.float64) for name in names}
        return cls(
            CandidatePool(
                video=VideoInfo.from_json(data["video"], from_file=True),
                question=data["question"],
                options=tuple(data["options"]),
                scorer=data["scorer"],
                config=MECConfig.from_json(data["config"]),
                num_frames=int(pool["num_frames"]),
                cues=cues,
                active=tuple(pool["active"]),
                anchors=tuple(pool["anchors"]),
                stats=Stats.from_json(data["stats"]),
                look_for=LookFor.from_json(data["look_for"]) if "look_for" in data else None,
                matches=_arrays(matches, dict.fromkeys(matches, np.float32)),
                transcript=Transcript.from_json(data["transcript"]) if "transcript" in data else None,
                **columns,
            ),
            order.astype(np.int64),
            terms,
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
        return load_file(path, "ranking", RANKING_FORMAT, cls.from_json)


def _beside(pool: CandidatePool) -> dict[str, Any]:
    """What only some rankings have."""
    found: dict[str, Any] = {}
    if pool.look_for is not None:
        each = {text: _plain(match) for text, match in pool.matches.items()}
        found["look_for"] = pool.look_for.to_json() | {"relevance": each}
    if pool.transcript is not None:
        found["transcript"] = pool.transcript.to_json()
    return found


def _plain(array: NDArray[Any]) -> list[Any]:
    """JSON values that read back bit for bit; float32 in its own shortest digits."""
    if array.dtype == np.float32:
        return [float(str(value)) for value in array]
    values: list[Any] = array.tolist()
    return values


def _arrays(data: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    return {name: np.array(data[name], dtype=kind) for name, kind in kinds.items()}


def _same_length(arrays: Sequence[NDArray[Any]]) -> None:
    lengths = {array.shape for array in arrays}
    if len(lengths) != 1 or any(array.ndim != 1 for array in arrays):
        raise ValueError(f"columns of different shapes: {sorted(lengths)}")
