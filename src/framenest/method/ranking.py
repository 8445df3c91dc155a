"""Ranking: frames in order; every prefix is a selection."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from framenest.cache.files import write_atomic
from framenest.config import MECConfig
from framenest.errors import BudgetError, ConfigError, IndexMismatch, StoreError
from framenest.frames import VideoInfo
from framenest.method.candidate_pool import CandidatePool, Stats
from framenest.method.discovery import Cues, LookFor
from framenest.method.prefix import Prefix
from framenest.text import one_line
from framenest.transcript import REACH, Transcript

_MOST = 2**53
"""Whole numbers up to here are exact in every reader of JSON."""


class BadField(ValueError):
    """A field is missing or holds what it must not. The message names it."""


class Fields:
    """An object of a file; every getter returns a value of the right kind or raises BadField.

    >>> Fields({"frames": [3, -1]}).numbers("frames", whole=True, least=0)
    Traceback (most recent call last):
        ...
    framenest.method.ranking.BadField: frames[1] must be a whole number, 0 or more, not -1
    """

    def __init__(self, data: Any, where: str = "") -> None:
        if not isinstance(data, Mapping):
            raise BadField(f"{where or 'the file'} must be an object, not {_shown(data)}")
        self._data, self._where = data, where

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def part(self, name: str) -> Fields:
        """An object in this one."""
        return Fields(self._get(name), self._place(name))

    def value(self, name: str) -> Any:
        """Whatever is there, for what may be of several kinds."""
        return self._get(name)

    def text(self, name: str, *, optional: bool = False) -> str | None:
        """A text; None where that is allowed."""
        value = self._get(name)
        if not isinstance(value, str) and not (optional and value is None):
            raise BadField(f"{self._place(name)} must be a text, not {_shown(value)}")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        return self._list(name, _text)

    def flag(self, name: str) -> bool:
        """true or false."""
        return bool(_flag(self._get(name), self._place(name)))

    def number(
        self, name: str, *, whole: bool = False, least: float = -math.inf, most: float = math.inf
    ) -> float:
        """A finite number in a range."""
        return _number(self._get(name), self._place(name), whole, least, most)

    def numbers(
        self, name: str, *, whole: bool = False, least: float = -math.inf, most: float = math.inf
    ) -> list[float]:
        """A list of finite numbers in a range."""
        return self._list(name, lambda value, place: _number(value, place, whole, least, most))

    def flags(self, name: str) -> list[bool]:
        """A list of true and false."""
        return self._list(name, _flag)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        return self._list(name, Fields)

    def by_name(self) -> dict[str, Fields | None]:
        """The names in this object."""
        return dict.fromkeys(self._data)

    def refuse(self, name: str, why: str) -> None:
        """Raise BadField for what only several fields together show."""
        raise BadField(f"{self._place(name)} {why}")

    def _get(self, name: str) -> Any:
        if name not in self._data:
            raise BadField(f"{self._place(name)} is missing")
        return self._data[name]

    def _list(self, name: str, made: Callable[[Any, str], Any]) -> list[Any]:
        values, place = self._get(name), self._place(name)
        if not isinstance(values, list):
            raise BadField(f"{place} must be a list, not {_shown(values)}")
        return [made(value, f"{place}[{i}]") for i, value in enumerate(values)]

    def _place(self, name: str) -> str:
        shown = name if name.isidentifier() else repr(name[:40])
        return f"{self._where}.{shown}" if self._where else shown


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise BadField(f"{place} must be a text, not {_shown(value)}")
    return value


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise BadField(f"{place} must be true or false, not {_shown(value)}")
    return value


def _number(value: Any, place: str, whole: bool, least: float, most: float) -> float:
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or not least <= value <= most or abs(value) > _LARGEST[whole]:
        kind = "whole number" if whole else "finite number"
        low, high = (f", {least:g} or more" if math.isfinite(least) else ""), f", at most {most:g}"
        limits = low + (high if math.isfinite(most) else "")
        raise BadField(f"{place} must be a {kind}{limits}, not {_shown(value)}")
    return value  # type: ignore[no-any-return]  # a number, by the check above


_LARGEST = {True: _MOST, False: 1e15}
"""Far beyond any count, time or score, and within what int64 and float32 hold."""


def check_video(video: Fields) -> tuple[int, float]:
    """The description of a video; its number of frames and its duration."""
    for name in ("path", "fingerprint", "codec"):
        video.text(name)
    for name in ("width", "height"):
        video.number(name, whole=True, least=1)
    video.number("fps", least=0)
    video.number("start")
    if video.text("path") == "":
        video.refuse("path", "is empty")
    if "notes" in video:
        video.texts("notes")
    if "constant_rate" in video:
        video.flag("constant_rate")
    return int(video.number("num_frames", whole=True, least=1)), video.number("duration", least=0)


def check_ranking(data: Mapping[str, Any]) -> None:
    """Every field of a ranking file.

    Raises:
        BadField: names the first one that is wrong.
    """
    fields = Fields(data)
    frames, duration = check_video(fields.part("video"))
    fields.text("question", optional=True)
    fields.texts("options")
    fields.text("scorer")
    fields.part("config")
    _check_stats(fields.part("stats"))
    pool = fields.part("pool")
    candidates = pool.numbers("frames", whole=True, least=0, most=frames - 1)
    if not candidates:
        pool.refuse("frames", "is empty: there is nothing to show")
    if any(a >= b for a, b in pairwise(candidates)):
        pool.refuse("frames", "must ascend")
    columns: dict[str, list[Any]] = {
        "seconds": pool.numbers("seconds", least=0, most=duration + 1e-6),
        "is_zoom": pool.flags("is_zoom"),
        "evidence": pool.numbers("evidence"),
    }
    cues = pool.part("cues")
    for name, column in columns.items():
        _check_length(pool, name, len(column), len(candidates))
    for name in cues.by_name():
        _check_length(cues, name, len(cues.numbers(name)), len(candidates))
    pool.number("num_frames", whole=True, least=1)
    for name in ("active", "anchors"):
        pool.numbers(name, whole=True, least=0, most=frames - 1)
    _check_ranks(fields, set(candidates), duration)


def _check_ranks(fields: Fields, candidates: set[float], duration: float) -> None:
    rows, seen = fields.objects("ranks"), set()
    if not rows:
        fields.refuse("ranks", "is empty: there is nothing to show")
    for place, row in enumerate(rows):
        row.number("rank", whole=True, least=place + 1, most=place + 1)
        frame = row.number("frame", whole=True, least=0)
        if frame not in candidates:
            row.refuse("frame", "is no candidate of the pool")
        if frame in seen:
            row.refuse("frame", "is ranked twice")
        seen.add(frame)
        row.number("seconds", least=0, most=duration + 1e-6)
        for name in row.by_name():
            if name in ("from", "said"):
                row.text(name, optional=name == "said")
            else:
                row.number(name)


def _check_length(fields: Fields, name: str, found: int, wanted: int) -> None:
    if found != wanted:
        fields.refuse(name, f"holds {found} values for {wanted} candidates")


def _check_stats(stats: Fields) -> None:
    for name in ("candidates", "probes", "zoom", "decoded"):
        stats.number(name, whole=True, least=0)
    stats.number("largest_gap_seconds", least=0)
    seconds = stats.part("seconds")
    for name in seconds.by_name():
        seconds.number(name, least=0)
    if "match" in stats:
        match = stats.part("match")
        match.number("value", least=0, most=1)
        if match.text("verdict") not in ("strong", "weak", "none"):
            match.refuse("verdict", "must be strong, weak or none")
    if "read" in stats:
        stats.number("read", whole=True, least=0)


def check_selection(data: Mapping[str, Any]) -> None:
    """Every field of a selection file that is read.

    Raises:
        BadField: names the first one that is wrong.
    """
    fields = Fields(data)
    frames, duration = check_video(fields.part("video"))
    fields.text("question", optional=True)
    fields.text("selector")
    fields.text("scorer")
    fields.part("stats")
    budgets = fields.part("budgets")
    if not budgets.by_name():
        fields.refuse("budgets", "is empty: there is nothing to show")
    for name in budgets.by_name():
        if not name.isascii() or not name.isdecimal() or not 1 <= int(name[:20]) <= _MOST:
            budgets.refuse(name, "is no budget: a whole number, 1 or more")
        chosen = budgets.part(name)
        numbers = chosen.numbers("frames", whole=True, least=0, most=frames - 1)
        if any(a >= b for a, b in pairwise(numbers)):
            chosen.refuse("frames", "must ascend")
        seconds = chosen.numbers("seconds", least=0, most=duration + 1e-6)
        _check_length(chosen, "seconds", len(seconds), len(numbers))
        if data["budgets"][name].get("ranks") is not None:
            _check_length(chosen, "ranks", len(chosen.numbers("ranks", whole=True, least=1)), len(numbers))
        chosen.flag("complete")


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
        from framenest.method.prefix import ranking_html

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


Result = TypeVar("Result")


def load_file(
    path: str | Path, kind: str, version: int, make: Callable[[Mapping[str, Any]], Result]
) -> Result:
    """What `make` makes of a result file of this kind and format; a clear error where it is none."""
    return read_result(read_file(path), path, kind, version, make)


def read_result(
    data: Mapping[str, Any],
    path: str | Path,
    kind: str,
    version: int,
    make: Callable[[Mapping[str, Any]], Result],
) -> Result:
    """The same of what was in a file already read, or came from elsewhere; errors name `path`."""
    if data.get("kind") != kind:
        raise StoreError(f"{path}: not a {kind} file")
    if data.get("format") != version:
        raise IndexMismatch(
            f"{path}: this {kind} has format {data.get('format')}, "
            f"this version of Framenest reads format {version}"
        )
    try:
        return make(data)
    except BadField as error:
        raise StoreError(f"{path}: damaged {kind} file: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise StoreError(f"{path}: damaged {kind} file ({one_line(repr(error))})") from error


def read_file(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file; empty where it holds something else."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass"))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not a ranking file ({error})") from error
    return data if isinstance(data, dict) else {}
