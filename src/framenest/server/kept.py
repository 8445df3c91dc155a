"""Kept: the things used last, and no more than so many of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """A dictionary that forgets what was not used for the longest time; for several threads.

    >>> kept = Kept(2)
    >>> for name in "abc": _ = kept.setdefault(name, name.upper())
    >>> kept.get("a"), kept.get("c")
    (None, 'C')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def setdefault(self, key: Key, value: Value) -> Value:
        with self._lock:
            kept = self._values.setdefault(key, value)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
            return kept

    def keys_now(self) -> list[Key]:
        with self._lock:
            return list(self._values)

    def drop(self, key: Key) -> None:
        with self._lock:
            self._values.pop(key, None)
