"""Loading: a scorer that is being loaded while a video is decoded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from framenest.cache.directory import DirectoryStore
from framenest.config import ScorerConfig
from framenest.processes import LOADER
from framenest.protocols import Progress, Scorer
from framenest.scorers import load_scorer

SWITCH_SECONDS = 0.0005
"""How long imports may hold the interpreter while decoders wait for it; Python's own 5 ms starve them."""


class Loading:
    """Loads a scorer by name, in a thread of its own."""

    def __init__(self, wanted: str, store: DirectoryStore, config: ScorerConfig, progress: Progress) -> None:
        self.wanted = wanted
        self._arguments = (wanted, store, config, progress)
        self._scorer: Scorer | None = None
        self._error: BaseException | None = None
        self._loaded = threading.Event()
        # No daemon: Python waits for it when it ends. Model libraries abort the process if they are cut off.
        threading.Thread(target=self._load, name=LOADER).start()

    def scorer(self) -> Scorer:
        """The scorer, once it is loaded; raises what loading raised."""
        self._loaded.wait()
        if self._error is not None:
            raise self._error
        assert self._scorer is not None
        return self._scorer

    def _load(self) -> None:
        try:
            with _sharing_the_interpreter():
                self._scorer = load_scorer(*self._arguments)
        except BaseException as error:
            self._error = error
        finally:
            self._loaded.set()


@contextmanager
def _sharing_the_interpreter() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
