"""What a task of Framenest in lmms-eval can be told: in its yaml, else in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from framenest.errors import ConfigError
from framenest.evaluation.benchmarks import READERS
from framenest.evaluation.query_text import QueryText
from framenest.lmm.times import Pairing
from framenest.selectors import check_selector

ON_ERROR = ("stop", "uniform")
AS = ("video", "frames", "images")
NATIVE = "native"
"""The whole video, read as the model itself reads it: for comparison, with the same prompt."""
PAIRINGS = ("pairs", "auto", "duplicate")


@dataclass(frozen=True)
class TaskSettings:
    """One field per key below `framenest:` in a task's yaml; $FRAMENEST_<FIELD> where the yaml is silent.

    benchmark: whose rows they are. selector: "mec", "mec:no-zoom", "aks", …, "native". preset: of MEC.
    scorer: by name. query: the text that relevance is scored for, also by selector
    ("question,wfs-sb=question+options"). on_error: "stop" ends the run with a message, "uniform" takes
    evenly spread frames instead and counts it. pairing: Qwen3-VL and Qwen3.5 fuse two frames under one
    time; "duplicate" sends each twice, so that each keeps its own. frames_as: "video" leaves decoding to
    the reader in qwen-vl-utils, which takes K from the model's own argument; "frames" and "images" put
    `frames` pictures into the message, for models that read videos otherwise.
    scorer: by name. query: the text that relevance is scored for. on_error: "stop" ends the run with a
    message, "uniform" takes evenly spread frames instead and counts it. pairing: Qwen3-VL and Qwen3.5
    fuse two frames under one time, all of them with "pairs", as in the paper; "auto" only those within two
    seconds; "duplicate" sends each twice, so that each keeps its own. frames_as:
    "video" leaves decoding to the reader in qwen-vl-utils, which takes K from the model's own argument;
    "frames" and "images" put `frames` pictures into the message, for models that read videos otherwise.
    """

    benchmark: str
    selector: str = "mec"
    preset: str = ""
    scorer: str = "auto"
    query: str = "question"
    on_error: str = "stop"
    pairing: Pairing = "pairs"
    frames_as: str = "video"
    frames: int = 0

    @classmethod
    def of_task(cls, kwargs: Mapping[str, Any] | None) -> TaskSettings:
        """From `lmms_eval_specific_kwargs`; what the yaml says comes before the environment.

        >>> TaskSettings.of_task({"framenest": {"benchmark": "videomme", "selector": "aks"}}).selector
        'aks'
        """
        given = dict((kwargs or {}).get("framenest") or {})
        names = [entry.name for entry in fields(cls)]
        unknown = set(given) - set(names)
        if unknown:
            raise ConfigError(f"framenest has no setting {sorted(unknown)[0]!r}; choose from {names}")
        for name in names[1:]:
            value = os.environ.get(f"FRAMENEST_{name.upper()}")
            if value and name not in given:
                given[name] = value
        return cls(**given)

    def __post_init__(self) -> None:
        for name, allowed in (
            ("benchmark", tuple(READERS)),
            ("on_error", ON_ERROR),
            ("pairing", PAIRINGS),
            ("frames_as", AS),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} = {getattr(self, name)!r}; it must be one of {', '.join(allowed)}")
        QueryText.parse(self.query)
        try:
            object.__setattr__(self, "frames", int(self.frames))
        except ValueError as error:
            raise ConfigError(f"frames = {self.frames!r}; it must be a whole number") from error
        if self.frames_as != "video" and self.frames < 1:
            raise ConfigError(f"frames_as = {self.frames_as} needs the budget: set FRAMENEST_FRAMES=K")
        if self.selector != NATIVE:
            check_selector(self.full_selector)

    @property
    def full_selector(self) -> str:
        """The selector with MEC's preset."""
        name, _, own = self.selector.partition(":")
        if not self.preset or name != "mec":
            return self.selector
        return "mec:" + "+".join(filter(None, (self.preset, own)))
