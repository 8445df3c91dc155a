"""Frame selectors behind one protocol: MEC, its rivals, and your own.

A selector is made with a Session and follows `selection.Selector`. All are found through the entry-point
group `framenest.selectors`, Framenest's own included.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from framenest.config import PRESETS, CheckedSettings, MECConfig
from framenest.errors import BudgetError, ConfigError
from framenest.plugins import load_plugin, plugins
from framenest.records import parse_json
from framenest.selectors.selection import FileSelector, Selector
from framenest.session import Session
from framenest.text import seconds_of

ENTRY_POINTS = "framenest.selectors"
FILE = "file:"
TRAITS = ("name", "ranks", "needs_scorer", "settings")
ORDER = (
    *("mec", "min-gap", "uniform", "top-k", "aks", "aks-released", "wfs-sb", "bolt"),
    *("mdp3", "mdp3-segments", "facility-location"),
)
S = TypeVar("S", CheckedSettings, MECConfig)


def selector_names() -> list[str]:
    """The installed selectors, Framenest's own first."""
    return list(plugins(ENTRY_POINTS, ORDER))


def load_selector(spec: str, session: Session, config: MECConfig | None = None) -> Selector:
    """A selector by name, ready to select.

    Args:
        spec: a name of `selector_names()`; a name with settings (`bolt:power=2.5`); `mec:SETTINGS`, MEC with
            a preset, settings, or both (`mec:no-zoom`, `mec:horizon=64`, `mec:no-zoom+gamma=1.5`); or
            `file:PATH`, frames chosen before.
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
    make, settings = _declared(spec, config)
    selector = make(session) if settings is None else make(session, settings)
    if not isinstance(selector, Selector):
        raise ConfigError(
            f"{spec!r} is not a selector: it needs {', '.join(TRAITS)} and select(video, question, budgets)"
        )
    return selector


def _declared(spec: str, config: MECConfig | None = None) -> tuple[Any, Any]:
    """The class behind a selector's name, with its traits, and its settings."""
    name, _, argument = spec.partition(":")
    if spec.startswith(FILE) and argument:
        return FileSelector, argument
    points = plugins(ENTRY_POINTS, ORDER)
    make = load_plugin(points[name]) if name in points else None
    if make is not None and not all(hasattr(make, trait) for trait in TRAITS):
        raise ConfigError(f"{spec!r} is not a selector: it needs {', '.join(TRAITS)}")
    if make is None or (make.settings is None and spec != name):
        raise ConfigError(f"there is no selector {spec!r}; choose from {', '.join(points)}")
    if isinstance(make.settings, MECConfig):
        return make, mec_config(argument, config)
    return make, None if make.settings is None else _changed(make.settings, argument, {})


def check_selector(spec: str, budget: int = 0) -> str:
    """Refuse a selector that does not exist, or MEC with a horizon below `budget`, before any work.

    Returns its name.
    """
    settings = _declared(spec)[1]
    horizon = settings.ranking.horizon if isinstance(settings, MECConfig) else budget
    if horizon < budget:
        raise BudgetError(
            f"{spec} ranks {horizon} frames, too few for a budget of {budget}; give it a longer "
            f"horizon, as in mec:horizon={budget}"
        )
    return spec


def needs_scorer(spec: str) -> bool:
    """Whether a selector chooses by relevance."""
    return bool(_declared(spec)[0].needs_scorer)


def mec_config(text: str, config: MECConfig | None = None) -> MECConfig:
    """MEC's configuration from the part after "mec:": presets and settings, joined by "+".

    >>> mec_config("no-zoom+horizon=64").ranking.horizon
    64
    """
    named = any(part in PRESETS for part in text.split("+"))
    return _changed(MECConfig() if config is None or named else config, text, PRESETS)


def _changed(settings: S, text: str, presets: Mapping[str, Mapping[str, Any]]) -> S:
    """Settings with those of the part after "NAME:", which "+" joins."""
    for part in filter(None, text.split("+")):
        name, equals, value = part.partition("=")
        if not equals and name not in presets:
            choose = f"choose from {', '.join(presets)}" if presets else "give a setting as NAME=VALUE"
            raise ConfigError(f"there is no preset {name!r}; {choose}")
        settings = settings.with_settings({name: setting_value(value)} if equals else presets[name])
    return settings


def setting_value(text: str) -> object:
    """A setting's value: a number or boolean in JSON, a clock time in seconds, or the string itself."""
    for read in (parse_json, seconds_of):
        with suppress(ValueError):
            return read(text)
    return text
