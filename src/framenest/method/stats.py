"""Stats: what a ranking cost and what it looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from framenest.protocols import MatchStrength


@dataclass(frozen=True)
class Stats:
    """Counts and seconds of one ranking; written into its file.

    Attributes:
        candidates: frames that could be chosen, probes and zoom frames together.
        probes: frames of the index.
        zoom: frames added around the anchors.
        largest_gap_seconds: the longest stretch of the video without a probe.
        substitutes: (wanted, used) frame numbers where a frame would not decode; used is −1 where none
            stands in.
        decoded: frames decoded for this ranking; those seen before cost nothing.
        seconds: wall time by stage.
        match: how surely anything in the video matches the question; None where the scorer cannot tell.
        read: frames whose text on screen was read; None where none was to be read.
    """

    candidates: int
    probes: int
    zoom: int
    largest_gap_seconds: float
    substitutes: tuple[tuple[int, int], ...]
    decoded: int
    seconds: Mapping[str, float]
    match: MatchStrength | None = None
    read: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Stats:
        pairs = tuple((int(wanted), int(used)) for wanted, used in data["substitutes"])
        match = MatchStrength(**data["match"]) if "match" in data else None
        return cls(**{**data, "substitutes": pairs, "match": match})
