"""CommandModules: the commands by name, each imported when it is wanted."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any


class CommandModules(UserDict[str, Any]):
    """What click takes for a dict of commands. `evaluate` is `evaluate` in framenest.cli.evaluate.

    A command does not wait for the imports of the others; help that lists them imports all.
    """

    def __init__(self, *names: str) -> None:
        super().__init__(dict.fromkeys(names))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            word = name.replace("-", "_")
            self.data[name] = getattr(import_module(f"framenest.cli.{word}"), word)
        return self.data[name]
