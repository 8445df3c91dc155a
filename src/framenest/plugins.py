"""Plug-ins: classes that installed packages, Framenest included, register as entry points."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from framenest.errors import ConfigError
from framenest.text import one_line


def plugins(group: str, first: Iterable[str] = ()) -> dict[str, EntryPoint]:
    """The entry points of a group: those named in `first`, in that order, then the others by name."""
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = points.setdefault(point.name, point)
        if other.value != point.value:
            raise ConfigError(
                f"{package(other)} and {package(point)} both register {group} {point.name!r}; uninstall one"
            )
    order = [name for name in first if name in points]
    return {name: points[name] for name in [*order, *sorted(set(points) - set(order))]}


def load_plugin(point: EntryPoint) -> Any:
    """The class behind an entry point."""
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{point.name!r} of {package(point)} cannot be loaded: {one_line(error)}"
        ) from error


def package(point: EntryPoint) -> str:
    """Name and version of the package that registers an entry point."""
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
