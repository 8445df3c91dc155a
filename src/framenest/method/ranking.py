"""Ranking: the candidates of a question in order; every prefix is a selection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from framenest.cache.files import write_atomic
from framenest.config import MECConfig
from framenest.errors import BudgetError
from framenest.frames import Array, Doubles, Floats, Ints, Mask, VideoInfo, check_length
from framenest.image_tokens import Size, TokenBudget
from framenest.method.discovery import Cues
from framenest.method.index import segments
from framenest.method.prefix import Prefix
from framenest.protocols import GUESS, NO_MATCH, MatchStrength
from framenest.rank_request import Budget, LookFor
from framenest.records import Amount, BadField, Count, Number, Whole, convert, load_file
from framenest.transcript import REACH, Transcript

RANKING_FORMAT = 1
_POOL_COLUMNS = {"frames": np.int64, "seconds": np.float64, "is_zoom": np.bool_, "evidence": np.float32}


@dataclass(frozen=True)
class Stats:
    """Counts and seconds of one ranking; written into its file.

    Attributes:
        candidates: frames that could be chosen, probes and zoom frames together.
        probes: frames of the index.
        zoom: frames added around the anchors.
        largest_gap_seconds: the longest stretch of the video without a probe.
        substitutes: (wanted, used) frame numbers of frames that did not decode; used is −1 if there is no
            substitute.
        decoded: frames decoded for this ranking; frames seen before cost nothing.
        seconds: wall time by stage.
        match: how surely anything in the video matches the question; None if the scorer cannot tell.
    """

    candidates: Whole
    probes: Whole
    zoom: Whole
    largest_gap_seconds: Amount
    substitutes: tuple[tuple[int, int], ...]
    decoded: Whole
    seconds: Mapping[str, Amount]
    match: MatchStrength | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


HEARD = 0.5  # from this value of the speech cue on, the transcript is about the question
MATCHING_RELEVANCE, MATCHING_CERTAINTY = 0.4, 0.25  # of a frame that matches the question, at least
SAID_LETTERS = 60  # shown of what is said
QUOTABLE, UNCLEAR = 0.5, "speech, not clearly heard"
"""Confidence from which a reason quotes what is said, and what it says instead."""
EDGE_SHARE = 0.02  # of the time that was looked at: its beginning, and its end
Role = Literal["evidence", "context"]


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """The candidates of one question: the probes and the zoom frames of the active segments.

    Attributes:
        video: the video.
        question: None without a question.
        options: the answers to choose from; may be empty.
        scorer: the names of everything that gave the relevance.
        config: the settings.
        num_frames: N, frames of the video, or of the window if only a part was ranked.
        frames: (n,) int64 ascending.
        seconds: (n,) float64.
        is_zoom: (n,) bool.
        cues: (n,) float32 each: relevance, change, observability; speech with a transcript.
        evidence: (n,) float32, the weighted sum of the cues.
        active: numbers of the active segments.
        anchors: frame numbers that were zoomed in on.
        look_for: descriptions to look for in addition to the question; None if there are none.
        matches: (n,) float32 each, the relevance of the question and of each description; empty without
            descriptions.
        transcript: the transcript, or what is wrong with it; None if there is none.
        certainty: (n,) float32, how surely each frame matches, comparable across videos; empty if the scorer
            cannot tell.
        labels: n lines, why each frame matches ("coffee mug 0.81", 'reads "The end"'), "" if nothing speaks
            for it; no lines if nothing gives reasons.
    """

    video: VideoInfo
    question: str | None
    options: tuple[str, ...]
    scorer: str
    config: MECConfig
    num_frames: int
    frames: Ints
    seconds: Doubles
    is_zoom: Mask
    cues: Cues
    evidence: Floats
    active: tuple[int, ...]
    anchors: tuple[int, ...]
    look_for: LookFor | None = None
    matches: Cues = field(default_factory=dict)
    transcript: Transcript | None = None
    certainty: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        zoomed = int(self.is_zoom.sum())
        return f"CandidatePool(frames={self.frames.shape}, probes={len(self) - zoomed}, zoom={zoomed})"


@dataclass(frozen=True, eq=False)
class Ranking:
    """One ranking of a video's frames for a question; every budget is a prefix of it.

    Attributes:
        pool: all candidates with their cues, and their video, question, scorer and settings.
        order: (M,) int64 positions in the pool, best first.
        terms: (M,) float64 arrays by name: the terms of each choice, such as coverage, diversity, utility.
        stats: counts and seconds.

    Everything else is derived, by rank: `frames` (M,) int64, `seconds` (M,) float64, `is_zoom` (M,) bool,
    `evidence` (M,) float32 and `cues`, (M,) float32 each.

    >>> small, large = ranking.prefix(8).frames, ranking.prefix(64).frames
    >>> len(large), set(small) <= set(large)
    (64, True)
    """

    pool: CandidatePool
    order: Ints
    terms: Mapping[str, Doubles]
    stats: Stats

    video = cached_property[VideoInfo](attrgetter("pool.video"))
    question = cached_property[str | None](attrgetter("pool.question"))
    options = cached_property[tuple[str, ...]](attrgetter("pool.options"))
    scorer = cached_property[str](attrgetter("pool.scorer"))
    config = cached_property[MECConfig](attrgetter("pool.config"))
    look_for = cached_property[LookFor | None](attrgetter("pool.look_for"))
    transcript = cached_property[Transcript | None](attrgetter("pool.transcript"))

    frames = cached_property[Ints](lambda self: self.pool.frames[self.order])
    seconds = cached_property[Doubles](lambda self: self.pool.seconds[self.order])
    is_zoom = cached_property[Mask](lambda self: self.pool.is_zoom[self.order])
    evidence = cached_property[Floats](lambda self: self.pool.evidence[self.order])
    cues = cached_property[Cues](lambda self: {name: cue[self.order] for name, cue in self.pool.cues.items()})

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems with the video and its transcript, such as a recognizer that failed, for people."""
        return (*self.video.notes, *(self.transcript.notes if self.transcript else ()))

    def said(self, rank: int, least: float = 0.0) -> str:
        """What is said, `least` this surely, while the frame of a rank, from 1, is on screen; "" if nothing.

        >>> ranking.said(1)
        ''
        """
        second = float(self.seconds[rank - 1])
        lines = self.transcript.within(second - REACH, second + REACH).lines if self.transcript else ()
        return " ".join(one.text for one in lines if one.surely(least))

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """By rank: "evidence" if the frame matches the question, else "context".

        It matches if the video does, its relevance is high and the scorer, if it can tell, is not unsure; or
        if what is said there is about the question.
        """
        cues, nothing = self.cues, np.zeros(len(self))
        certainty, match = self.pool.certainty, self.stats.match
        matches = cues.get("relevance", nothing) >= MATCHING_RELEVANCE
        if len(certainty):
            matches &= certainty[self.order] >= MATCHING_CERTAINTY
        if match is not None and match.verdict in ("none", "cannot tell"):
            matches[:] = False
        matches |= cues.get("speech", nothing) >= HEARD
        return tuple("evidence" if yes else "context" for yes in matches.tolist())

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why each rank is here: what made its relevance, or what it adds as context.

        Example::

            ranking.reasons[0]  # 'relevance 1.00'
        """
        cues, seconds, labels = self.cues, self.seconds, self.pool.labels
        reasons = list[str]()
        first, last = float(self.pool.seconds[0]), float(self.pool.seconds[-1])
        near = EDGE_SHARE * (last - first)
        for place, (role, second) in enumerate(zip(self.roles, seconds.tolist(), strict=True)):
            if role == "evidence":
                heard = "speech" in cues and cues["speech"][place] >= HEARD
                said = shorten(self.said(place + 1, QUOTABLE), SAID_LETTERS, placeholder=" …")
                words = (f"“{said}”" if said else UNCLEAR) if heard else ""
                seen = labels[self.order[place]] if labels else ""
                reason = (
                    " · ".join(filter(None, (seen, words))) or f"relevance {cues['relevance'][place]:.2f}"
                )
            elif not place:
                reason = "the most evidence" if self.question is None else "the best guess"
            elif second <= first + near:
                reason = "the beginning"
            elif second >= last - near:
                reason = "the end"
            else:
                away = np.abs(seconds[:place] - second)
                reason = f"{away.min():.1f} s from rank {away.argmin() + 1}"
            reasons.append(reason)
        return tuple(reasons)

    @property
    def unmatched(self) -> bool:
        """Whether, as far as the scorer can tell, neither frames nor transcript match the question."""
        frames_match = self.stats.match is None or self.stats.match.verdict != "none"
        return not frames_match and not (self.pool.cues.get("speech", np.zeros(1)) >= HEARD).any()

    @property
    def match_text(self) -> str:
        """The verdict, what it means, and the words that the scorer knows, for people; "" without a verdict.

        Example::

            ranking.match_text  # 'strong; knows: glass, beer'
        """
        if (match := self.stats.match) is None:
            return ""
        means = NO_MATCH if self.unmatched else GUESS if match.is_guess else ""
        return "; ".join(filter(None, (": ".join(filter(None, (match.verdict, means))), match.words)))

    def __len__(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return (
            f"Ranking({self.video.path!r}, question={self.question!r}, scorer={self.scorer!r}, "
            f"frames={self.order.shape}, pool={len(self.pool)})"
        )

    def _repr_html_(self) -> str:
        question = "no question" if self.question is None else f"“{self.question}”"
        prefix = self.prefix(min(8, len(self)))
        lines = [
            f"{len(self)} ranks of {self.video.path} for {question}, {self.scorer}",
            f"The first {len(prefix)} ranks; ranking.prefix(k) serves any other budget.",
        ]
        return prefix.strip(lines)

    def prefix(self, budget: int | TokenBudget | None = None, *, tokens: int | None = None) -> Prefix:
        """The first `budget` ranks, in time order.

        Args:
            budget: frames wanted, 1 or more. It may exceed the ranking only if every candidate of a short
                video is ranked already (`Prefix.complete`). A `TokenBudget` takes as many as fit.
            tokens: instead of budget, the most tokens that the images may cost Qwen3-VL.

        Raises:
            BudgetError: the ranking has too few ranks; the message says which horizon to rank with. Or the
                tokens are too few for one image; it says how many work.

        >>> ranking.prefix(tokens=200).sizes
        ((96, 64), (96, 64))
        """
        if (budget is None) == (tokens is None):
            raise BudgetError("give a budget in frames (-k) or in tokens (--tokens)")
        within, sizes = budget if tokens is None else TokenBudget(tokens), list[Size]()
        if isinstance(within, TokenBudget):
            sizes = within.fit(self.seconds.tolist(), self.video.width, self.video.height)
            budget = len(sizes)
        budget = Budget(budget)
        if budget > len(self) and len(self) < len(self.pool):
            raise BudgetError(
                f"this ranking has {len(self)} ranks, too few for a budget of {budget}; "
                f"rank again with horizon={budget}"
            )
        ranks = np.argsort(self.order[:budget], kind="stable")
        frames, seconds, complete = self.frames[ranks], self.seconds[ranks], budget > len(self)
        about: dict[str, Any] = {"question": self.question, "scorer": self.scorer, "match": self.stats.match}
        columns = {"roles": self.roles, "reasons": self.reasons, "sizes": sizes}
        about |= {name: tuple(column[i] for i in ranks if column) for name, column in columns.items()}
        return Prefix(self.video, budget, frames, seconds, ranks + 1, complete, notes=self.notes, **about)

    def to_json(self) -> dict[str, Any]:
        pool = self.pool
        data = {
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
                **({"certainty": _plain(pool.certainty)} if len(pool.certainty) else {}),
                **({"seen": list(pool.labels)} if pool.labels else {}),
            },
        }
        if pool.look_for is not None:
            each = {text: _plain(match) for text, match in pool.matches.items()}
            data["look_for"] = pool.look_for.to_json() | {"relevance": each}
        if pool.transcript is not None:
            data["transcript"] = pool.transcript.to_json()
        return data

    def _rows(self) -> list[dict[str, Any]]:
        """One object per rank, for people and scripts that read the file."""
        measures: dict[str, Array] = {**self.cues, "evidence": self.evidence, **self.terms}
        columns = {name: _plain(values) for name, values in measures.items()}
        places = zip(self.frames.tolist(), self.seconds.tolist(), self.is_zoom.tolist(), strict=True)
        return [
            {"rank": i + 1, "frame": frame, "seconds": seconds, "from": "zoom" if zoom else "probe"}
            | {"role": self.roles[i], "reason": self.reasons[i]}
            | {name: values[i] for name, values in columns.items()}
            | ({"said": self.said(i + 1)} if self.transcript else {})
            for i, (frame, seconds, zoom) in enumerate(places)
        ]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ranking:
        """Read what `to_json` wrote; BadField names the first wrong field."""
        file = convert(data, RankingFile)
        settings = file.config.to_json()
        for part, given in data["config"].items():
            if unknown := given.keys() - settings.get(part, {}).keys() if part in settings else {part}:
                raise BadField(f"config.{part} has an unknown setting: {min(unknown)}")
        video, pool = replace(file.video, from_file=True), file.pool
        video.check_frames(pool.frames, pool.seconds, "pool", "candidates")
        count = len(pool.frames)
        parts = len(segments(pool.is_zoom.count(False), file.config.discovery.segment_length))
        if max(pool.active, default=0) >= max(parts, 1):
            raise BadField(f"pool.active must be below {parts}, the segments of the probes")
        if max(pool.anchors, default=0) >= video.num_frames:
            raise BadField(f"pool.anchors must be below {video.num_frames}, the frames of the video")
        for name in ("is_zoom", "evidence", "certainty", "seen"):
            if (column := getattr(pool, name)) or name in _POOL_COLUMNS:
                check_length(column, count, f"pool.{name}", "candidates")
        matches = (data.get("look_for") or {}).get("relevance", {})
        return cls(
            CandidatePool(
                video=video,
                question=file.question,
                options=file.options,
                scorer=file.scorer,
                config=file.config,
                num_frames=pool.num_frames,
                cues=_float_columns(pool.cues, count, "pool.cues"),
                active=pool.active,
                anchors=pool.anchors,
                look_for=file.look_for,
                matches=_float_columns(matches, count, "look_for.relevance"),
                transcript=file.transcript,
                certainty=np.array(pool.certainty, dtype=np.float32),
                labels=pool.seen,
                **{name: np.array(getattr(pool, name), dtype) for name, dtype in _POOL_COLUMNS.items()},
            ),
            np.array(_positions(file), dtype=np.int64),
            _terms(file, data["ranks"]),
            file.stats,
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


def _plain(array: Array) -> list[Any]:
    """JSON values that read back bit for bit: float32 with its shortest digits."""
    return [float(str(value)) for value in array] if array.dtype == np.float32 else array.tolist()


class PoolFields(msgspec.Struct):
    """The candidates in a ranking file."""

    num_frames: Count
    frames: Annotated[list[Whole], Meta(min_length=1)]
    seconds: list[Amount]
    is_zoom: list[bool]
    evidence: list[Number]
    cues: dict[Literal["relevance", "change", "observability", "speech"], Any]
    active: tuple[Whole, ...]
    anchors: tuple[Whole, ...]
    certainty: tuple[Number, ...] = ()
    seen: tuple[str, ...] = ()


class RankFields(msgspec.Struct):
    """One rank in a ranking file. Other fields of it are cues, which the pool has too, and terms."""

    rank: Count
    frame: Whole
    seconds: Amount
    origin: str = msgspec.field(name="from")
    evidence: Number
    said: str | None = None


class RankingFile(msgspec.Struct):
    """A ranking file."""

    video: VideoInfo
    question: str | None
    options: tuple[str, ...]
    scorer: str
    config: MECConfig
    stats: Stats
    ranks: Annotated[list[RankFields], Meta(min_length=1)]
    pool: PoolFields
    look_for: LookFor | None = None
    transcript: Transcript | None = None


def _positions(file: RankingFile) -> list[int]:
    """The place of every rank in the pool."""
    places = {frame: place for place, frame in enumerate(file.pool.frames)}
    positions: dict[int, None] = {}
    for number, rank in enumerate(file.ranks):
        where = f"ranks[{number}]"
        if rank.rank != number + 1:
            raise BadField(f"{where}.rank must be {number + 1}")
        if rank.frame not in places:
            raise BadField(f"{where}.frame is not a candidate of the pool")
        if places[rank.frame] in positions:
            raise BadField(f"{where}.frame is ranked twice")
        positions[places[rank.frame]] = None
    return list(positions)


def _terms(file: RankingFile, rows: list[dict[str, Any]]) -> dict[str, Doubles]:
    facts = ("rank", "frame", "seconds", "from", "evidence", "said", "role", "reason", *file.pool.cues)
    return {
        name: np.array([convert(row.get(name), Number, f"ranks[{i}].{name}") for i, row in enumerate(rows)])
        for name in rows[0]
        if name not in facts
    }


def _float_columns(columns: Mapping[Any, Any], count: int, where: str) -> dict[str, Floats]:
    """Arrays of the columns of a file, each with one number per candidate."""
    arrays = {}
    for name, column in columns.items():
        values = convert(column, list[Number], f"{where}.{name}")
        check_length(values, count, f"{where}.{name}", "candidates")
        arrays[name] = np.array(values, dtype=np.float32)
    return arrays
