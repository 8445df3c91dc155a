"""LookFor: descriptions of what should be seen, scored beside the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from framenest.errors import ConfigError

Join = Literal["any", "all"]
JOINS: tuple[Join, ...] = get_args(Join)
MOST = 16
"""Descriptions for one question; each costs a comparison with every candidate."""


@dataclass(frozen=True)
class LookFor:
    """What to look for beside a question. Image-text models want descriptions, not questions.

    Attributes:
        texts: descriptions, as "a potter opens a kiln".
        join: "any": a frame that shows one of them, or answers the question, is relevant; "all": the ranks
            go to one description after the other, so that each gets its share of every budget.
        written_by: the model that wrote them; None where a person did.

    Raises:
        ConfigError: no description, an empty one, or too many.

    >>> LookFor(("a potter opens a kiln", "cups on a shelf"), join="all").join
    'all'
    """

    texts: tuple[str, ...]
    join: Join = "any"
    written_by: str | None = None

    def __post_init__(self) -> None:
        if self.join not in JOINS:
            raise ConfigError(f"descriptions are joined by {' or '.join(JOINS)}, not {self.join!r}")
        if not 1 <= len(self.texts) <= MOST or not all(text.strip() for text in self.texts):
            raise ConfigError(f"give 1 to {MOST} descriptions to look for, none of them empty")

    @classmethod
    def of(cls, given: LookFor | Sequence[str] | None) -> LookFor | None:
        """From what a caller gives; None where that is nothing."""
        if isinstance(given, str):
            raise ConfigError("look_for is a list of descriptions, not one text")
        if given is None or isinstance(given, LookFor):
            return given
        return cls(tuple(given)) if given else None

    def to_json(self) -> dict[str, Any]:
        return {"texts": list(self.texts), "join": self.join, "written_by": self.written_by}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LookFor:
        return cls(tuple(data["texts"]), data["join"], data["written_by"])
