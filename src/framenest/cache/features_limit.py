"""FeaturesLimit: what features may take in a cache directory, all together; those unused for longest go."""

from __future__ import annotations

import shutil
import time
import warnings
from pathlib import Path

from framenest.cache.directory import DirectoryStore, UnwritableCache
from framenest.cache.gc import Collected, evict
from framenest.limits import FEATURES_VARIABLE, limit_in
from framenest.noted_warnings import CacheWarning
from framenest.protocols import Store
from framenest.text import size_text

LIMIT = 20 * 2**30
"""Bytes of all features in a directory, unless told otherwise; and no more than FREE_SHARE."""
FREE_SHARE = 0.5
"""Of what would be free on the disk without them."""
STEPS = 64
"""One process lists the directory again after it has written this part of the limit."""


class EvictedFeatures(CacheWarning):
    """Features of other videos were removed to make room."""


class FeaturesLimit:
    """Bounds the features in a cache directory; at an address, or in a store of one's own, there is no limit.

    The limit is $FRAMENEST_FEATURES_LIMIT as it was when this was made, or 20 GiB and no more than half of
    what would be free on the disk without features. What some process has in use stays.

    Args:
        store: where features are kept.
        since: seconds since the epoch; nothing that was used after it is evicted. None: whatever is not in
            use may go.

    Raises:
        ConfigError: the variable holds no size.

    >>> FeaturesLimit(DirectoryStore("cache")).refusal(2**40)
    'all features may take 20.00 GiB in the cache (--features-limit sets more)'
    """

    def __init__(self, store: Store, since: float | None = None) -> None:
        self.since = since
        self._store = store if isinstance(store, DirectoryStore) else None
        self._given = limit_in(FEATURES_VARIABLE)
        self._unseen = self._step = 0

    def refusal(self, size: int) -> str | None:
        """Why features of so many bytes cannot be kept, even if all others went; None where they can."""
        if self._store is None:
            return None
        most, free = LIMIT if self._given is None else self._given, _free(self._store.root)
        if size > most:
            return f"all features may take {size_text(most)} in the cache (--features-limit sets more)"
        if self._given is None and size > free * FREE_SHARE:
            half = "features take at most half of what is free (--features-limit sets more)"
            return f"{size_text(int(free))} are free in the cache, and {half}"
        return None

    def written(self, size: int) -> None:
        """Note that so many bytes were written; from time to time, evict what is above the limit."""
        self._unseen += size
        if self._store is None or self._unseen < self._step:
            return
        entries = [*self._store.entries("features")]
        taken = sum(entry.size for entry in entries)
        most = self._given
        if most is None:
            most = int(min(LIMIT, FREE_SHARE * (taken + _free(self._store.root))))
        self._unseen, self._step = 0, most // STEPS
        young = 0.0 if self.since is None else time.time() - self.since
        old = [entry for entry in entries if self.since is None or entry.idle > young]
        done = Collected()
        evict(self._store, old, done, max_bytes=most - (taken - sum(entry.size for entry in old)))
        left = taken - done.freed
        if done.freed:
            text = f"{size_text(done.freed)} of features unused for longest were removed from the cache"
            text += f": all together may take {size_text(most)} (--features-limit)"
            warnings.warn(text, EvictedFeatures, stacklevel=2)
        if self.since is not None and left > most:
            text = f"features of this run alone take {size_text(left)} in the cache, where all together may "
            text += f"take {size_text(most)} (--features-limit sets more)"
            warnings.warn(text, UnwritableCache, stacklevel=2)


def _free(folder: Path) -> float:
    """Bytes that are free where the folder is, or will be."""
    there = next((path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir()), folder)
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return float("inf")
