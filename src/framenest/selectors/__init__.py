"""Frame selectors behind one protocol: MEC and its rivals, and yours.

A selector is a class with a `name` that is made with a Session and has
`select(video, question, budgets) -> Selection`. Those of Framenest are found the same way as anybody's:
through the entry-point group `framenest.selectors`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from framenest.errors import ConfigError
from framenest.protocols import Selector
from framenest.session import Session

GROUP = "framenest.selectors"
FILE = "file:"


def selector_names() -> list[str]:
    """Selectors that are installed, Framenest's own first."""
    found = {point.name: point.value.startswith("framenest.") for point in entry_points(group=GROUP)}
    order = ("mec", "uniform", "top-k", "aks", "aks-released", "wfs-sb", "bolt", "mdp3", "facility-location")
    own = [name for name in order if name in found]
    return own + sorted(set(found) - set(own))


def load_selector(name: str, session: Session) -> Selector:
    """A selector by name, or file:PATH for frames chosen before; ready to select."""
    if name.startswith(FILE):
        from framenest.selectors.listed import FileSelector

        return FileSelector(session, name.removeprefix(FILE))
    for point in entry_points(group=GROUP):
        if point.name == name:
            selector: Selector = point.load()(session)
            return selector
    raise ConfigError(f"there is no selector {name!r}; choose from {', '.join(selector_names())}")


__all__ = ["GROUP", "load_selector", "selector_names"]
