"""Verify and evict cache entries, least recently used first."""

from __future__ import annotations

import shutil
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from framenest.cache.directory import DirectoryStore, ManagedStore, StoreEntry, UnwritableCache
from framenest.errors import CacheWarning
from framenest.processes import FEATURES_VARIABLE, limit_in
from framenest.protocols import Progress, Store
from framenest.text import size_text


@dataclass
class Verified:
    """The result of `verify`: number and bytes of entries by kind, and the error of each damaged one."""

    entries: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass
class Collected:
    """The result of `collect`: evicted entries by reason, bytes freed and kept, and entries in use."""

    removed: Counter[str] = field(default_factory=Counter)
    freed: int = 0
    kept: int = 0
    in_use: int = 0


def verify(store: ManagedStore, *, progress: Progress = lambda *_: None) -> Verified:
    """Read every entry and verify its checksum."""
    found = Verified()
    entries = list(store.entries())
    for done, entry in enumerate(entries, start=1):
        kind = entry.key.split("/")[0]
        found.entries[kind] += 1
        found.sizes[kind] += entry.size
        wrong = store.check(entry.key)
        if wrong is not None:
            found.damaged[entry.key] = wrong
        progress("entries", done, len(entries))
    return found


def collect(
    store: ManagedStore,
    *,
    older_than: float | None = None,
    max_bytes: float | None = None,
    dry_run: bool = False,
) -> Collected:
    """Evict entries unused for `older_than` seconds, then the least recently used down to `max_bytes`.

    Entries in use stay. Temporary files of killed processes are always removed.

    >>> from framenest.cache.remote import RemoteStore
    >>> collect(RemoteStore("memory://new"), older_than=30 * 86400).kept
    0
    """
    count, freed = store.sweep(dry_run=dry_run)
    done = evict(store, [*store.entries()], older_than=older_than, max_bytes=max_bytes, dry_run=dry_run)
    done.removed["left behind"] += count
    done.freed += freed
    return done


def evict(
    store: ManagedStore,
    entries: list[StoreEntry],
    *,
    older_than: float | None = None,
    max_bytes: float | None = None,
    dry_run: bool = False,
) -> Collected:
    """Evict entries from this list, as `collect` does."""
    planned = sum(entry.size for entry in entries)
    done = Collected(kept=planned)
    for entry in sorted(entries, key=lambda entry: -entry.idle):
        if older_than is not None and entry.idle >= older_than:
            reason = "unused for too long"
        elif max_bytes is not None and planned > max_bytes:
            reason = "over the size limit"
        else:
            continue
        planned -= entry.size  # even if it is in use: no more recent entry is evicted instead
        if dry_run or store.remove(entry.key):
            done.removed[reason] += 1
            done.freed += entry.size
            done.kept -= entry.size
        else:
            done.in_use += 1
    return done


LIMIT = 20 * 2**30
"""Default limit for all features in a directory, in bytes; FREE_SHARE may lower it."""
FREE_SHARE = 0.5
"""Share of the space that would be free without features."""
STEPS = 64
"""A process lists the directory again after writing this share of the limit."""


class EvictedFeatures(CacheWarning):
    """Features of other videos were evicted to make room."""


class FeaturesLimit:
    """Limits the features in a cache directory. At a URL, or in your own store, there is no limit.

    The limit is $FRAMENEST_FEATURES_LIMIT, read at construction. By default it is 20 GiB, and at most half
    of the space that would be free without features. Entries in use stay, and so do those used after `since`
    (seconds since the epoch), if it is set.

    >>> FeaturesLimit(DirectoryStore("cache")).refusal(2**40)
    'all features may take 20.00 GiB in the cache ($FRAMENEST_FEATURES_LIMIT raises the limit)'
    """

    def __init__(self, store: Store) -> None:
        self.since: float | None = None
        self._store = store if isinstance(store, DirectoryStore) else None
        self._given = limit_in(FEATURES_VARIABLE)
        self._unseen = self._step = 0

    def refusal(self, size: int) -> str | None:
        """Why features of this size cannot be kept, even after evicting all others; None if they can."""
        if self._store is None:
            return None
        most, free = LIMIT if self._given is None else self._given, _free(self._store.root)
        if size > most:
            more = f"(${FEATURES_VARIABLE} raises the limit)"
            return f"all features may take {size_text(most)} in the cache {more}"
        if self._given is None and size > free * FREE_SHARE:
            half = "features may take half of that ($FRAMENEST_FEATURES_LIMIT raises the limit)"
            return f"{size_text(int(free))} are free in the cache, and {half}"
        return None

    def written(self, size: int) -> None:
        """Count written bytes; from time to time, evict features over the limit."""
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
        done = evict(self._store, old, max_bytes=most - (taken - sum(entry.size for entry in old)))
        left = taken - done.freed
        allowed = f"all features together may take {size_text(most)} (${FEATURES_VARIABLE} raises the limit)"
        if done.freed:
            text = f"{size_text(done.freed)} of the least recently used features were evicted from the cache"
            warnings.warn(f"{text}: {allowed}", EvictedFeatures, stacklevel=2)
        if self.since is not None and left > most:
            text = f"the features of this run alone take {size_text(left)} in the cache; {allowed}"
            warnings.warn(text, UnwritableCache, stacklevel=2)


def _free(folder: Path) -> float:
    """Free bytes on the disk of a folder, which need not exist yet."""
    there = next((path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir()), folder)
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return float("inf")
