"""Frame selectors behind one protocol: MEC, its rivals, and your own.

A selector is made with a Session and follows `selection.Selector`. All are found through the entry-point
group `framenest.selectors`, Framenest's own included.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress

from framenest.config import PRESETS, MECConfig
from framenest.errors import BudgetError, ConfigError
from framenest.plugins import load_plugin, plugins
from framenest.records import parse_json
from framenest.selectors.frame_lists import FileSelector
from framenest.selectors.selection import Selector
from framenest.session import Session
from framenest.text import seconds_of

GROUP = "framenest.selectors"
FILE = "file:"
BOLT_POWER = re.compile(r"^bolt:power=(\d+(?:\.\d+)?)$")
ORDER = (
    *("mec", "min-gap", "uniform", "top-k", "aks", "aks-released", "wfs-sb", "bolt"),
    *("mdp3", "mdp3-segments", "facility-location"),
)


def selector_names() -> list[str]:
    """The installed selectors, Framenest's own first."""
    return list(plugins(GROUP, ORDER))


def load_selector(spec: str, session: Session, config: MECConfig | None = None) -> Selector:
    """A selector by name, ready to select.

    Args:
        spec: a name of `selector_names()`; `mec:SETTINGS`, MEC with a preset, settings, or both
            (`mec:no-zoom`, `mec:horizon=64`, `mec:no-zoom+gamma=1.5`); `bolt:power=2.5`; or `file:PATH`,
            frames chosen before.
        session: the open videos, the scorer and the store that the selector uses.
        config: the configuration that `mec:SETTINGS` changes; a preset replaces it. By default the paper's.

    Returns:
        A selector with `select(video, question, budgets)`.

    Raises:
        ConfigError: there is no such selector, preset or setting.

    Example:
        >>> selector = load_selector("mec:no-zoom", Session("table:scores.csv"))
        >>> selector.select("kiln.mp4", "What happens after firing?", [8]).prefix(8).budget
        8
    """
    check_selector(spec)
    name, _, argument = spec.partition(":")
    if spec.startswith(FILE):
        return FileSelector(session, argument)
    make = load_plugin(plugins(GROUP)[name])
    powers = [float(power) for power in BOLT_POWER.findall(spec)]
    selector = make(session, mec_config(argument, config)) if name == "mec" else make(session, *powers)
    if not isinstance(selector, Selector):
        raise ConfigError(f"{spec!r} is not a selector: it needs name and select(video, question, budgets)")
    return selector


def check_selector(spec: str, budget: int = 0) -> None:
    """Refuse a selector that does not exist, or MEC with a horizon below `budget`, before any work."""
    name, _, argument = spec.partition(":")
    if name == "mec":
        horizon = mec_config(argument).ranking.horizon
        if horizon < budget:
            raise BudgetError(
                f"{spec} ranks {horizon} frames, too few for a budget of {budget}; give it a longer "
                f"horizon, as in mec:horizon={budget}"
            )
    elif not ((name == "file" and argument) or BOLT_POWER.match(spec)) and spec not in selector_names():
        raise ConfigError(f"there is no selector {spec!r}; choose from {', '.join(selector_names())}")


def served_budgets(spec: str, budgets: Sequence[int]) -> list[int]:
    """The budgets that a selector serves: for MEC those up to its horizon, for others all.

    >>> served_budgets("mec:horizon=16", [8, 16, 32]), served_budgets("aks", [8, 512])
    ([8, 16], [8, 512])
    """
    name, _, argument = spec.partition(":")
    horizon = mec_config(argument).ranking.horizon if name == "mec" else math.inf
    return [budget for budget in budgets if budget <= horizon]


def needs_scorer(spec: str) -> bool:
    """Whether a selector chooses by relevance."""
    return spec != "uniform" and not spec.startswith(FILE)


def mec_config(settings: str, config: MECConfig | None = None) -> MECConfig:
    """MEC's configuration from the part after "mec:": presets and settings, joined by "+".

    >>> mec_config("no-zoom+horizon=64").ranking.horizon
    64
    """
    parts = [part for part in settings.split("+") if part]
    made = MECConfig() if config is None or any(part in PRESETS for part in parts) else config
    for part in parts:
        name, given, value = part.partition("=")
        if given:
            made = made.with_settings({name: setting_value(value)})
        elif name in PRESETS:
            made = made.with_settings(PRESETS[name])
        else:
            raise ConfigError(f"there is no preset {name!r}; choose from {', '.join(PRESETS)}")
    return made


def setting_value(text: str) -> object:
    """A setting's value: a number or boolean in JSON, a clock time in seconds, or the string itself."""
    for read in (parse_json, seconds_of):
        with suppress(ValueError):
            return read(text)
    return text
