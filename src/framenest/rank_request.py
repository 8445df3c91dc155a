"""RankRequest: what a ranking is asked for. Every way in builds one; each place passes it on as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self

import msgspec

from framenest.config import MECConfig, ScorerConfig, VideoConfig
from framenest.errors import BudgetError, ConfigError

MAX_DESCRIPTIONS = 16  # descriptions for one question; each costs a comparison with every candidate


class Budget(int):
    """How many frames may be shown, or tokens spent on them: a whole number, 1 or more.

    Raises:
        BudgetError: it is another number, or no number.

    >>> Budget(8) + 1, Budget.ladder([32, 8, 8])
    (9, [8, 32])
    >>> Budget.parse("8,16,32")
    [8, 16, 32]
    """

    def __new__(cls, frames: object) -> Self:
        if isinstance(frames, bool) or not isinstance(frames, Integral) or frames < 1:
            raise BudgetError(f"a budget must be a whole number, 1 or more, not {frames!r}")
        return super().__new__(cls, frames)

    @classmethod
    def ladder(cls, budgets: Iterable[object]) -> list[int]:
        """Several budgets, ascending, each once; at least one."""
        steps: list[int] = sorted({cls(frames) for frames in budgets})
        if not steps:
            raise BudgetError("give at least one frame budget")
        return steps

    @classmethod
    def parse(cls, text: str) -> list[int]:
        """The ladder in a text such as "8" or "8,16,32"."""
        try:
            return cls.ladder(map(int, text.split(",")))
        except ValueError:
            raise BudgetError(f"{text!r} is not a frame budget; give 8, or several as 8,16,32") from None


@dataclass(frozen=True)
class LookFor:
    """What to look for in addition to a question. Image-text models match descriptions, not questions.

    A frame that shows one of them, or answers the question, is relevant.

    Attributes:
        texts: descriptions, such as "a potter opens a kiln".

    Raises:
        ConfigError: no description, an empty one, or too many.

    >>> LookFor(("a potter opens a kiln", "cups on a shelf")).texts[1]
    'cups on a shelf'
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        texts = all(isinstance(text, str) and text.strip() for text in self.texts)
        if not 1 <= len(self.texts) <= MAX_DESCRIPTIONS or not texts:
            raise ConfigError(f"look_for must be 1 to {MAX_DESCRIPTIONS} descriptions, none of them empty")

    @classmethod
    def of(cls, texts: LookFor | Sequence[str] | None) -> LookFor | None:
        """A LookFor from what a caller passes; None for nothing."""
        if isinstance(texts, str):
            raise ConfigError("look_for is a list of descriptions, not one string")
        if texts is None or isinstance(texts, LookFor):
            return texts
        return cls(tuple(texts)) if texts else None

    def to_json(self) -> dict[str, Any]:
        return {"texts": list(self.texts)}


@dataclass(frozen=True, kw_only=True)
class RankRequest:
    """What a ranking is asked for.

    Attributes:
        video: a path or an address; in the server's journal, the id of a registered video.
        question: None ranks without a question.
        options: the answers to choose from.
        look_for: descriptions to look for in addition to the question.
        preset: the name of the preset that `config` began with.
        config: the method's settings, with the part of the video to rank and the length of the ranking.
        scorer: its name; None without a scorer.
        scoring: how the scorer runs, and the transcript.
        opening: how the video is opened.

    >>> request = RankRequest(video="kiln.mp4", question="What is fired?", options=("cups", "tiles"))
    >>> msgspec.convert(request.to_json(), RankRequest) == request
    True
    """

    video: str
    question: str | None = None
    options: tuple[str, ...] = ()
    look_for: LookFor | None = None
    preset: str = "paper"
    config: MECConfig = MECConfig()
    scorer: str | None = "auto"
    scoring: ScorerConfig = ScorerConfig()
    opening: VideoConfig = VideoConfig()

    def to_json(self) -> dict[str, Any]:
        """JSON values, from which `msgspec.convert` makes an equal request."""
        return dict(msgspec.to_builtins(self))

    def identity(self) -> dict[str, Any]:
        """JSON values of all that the ranking depends on; device and batch only affect speed."""
        any_machine = replace(self.scoring, device="auto", batch=None)
        return replace(self, scoring=any_machine).to_json()
