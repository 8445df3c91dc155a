"""Upkeep of a store: verify checksums, and collect garbage by age and size."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from framenest.errors import StoreError
from framenest.protocols import ManagedStore, Progress, Store, StoreEntry


@dataclass
class Verified:
    """What `verify` found: entries and bytes by kind, and what is wrong with damaged ones."""

    entries: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass
class Collected:
    """What `collect` removed: entries and bytes by reason; `in_use` could not go."""

    removed: Counter[str] = field(default_factory=Counter)
    freed: int = 0
    kept: int = 0
    in_use: int = 0


def managed(store: Store) -> ManagedStore:
    """The store, if it can be listed."""
    if not isinstance(store, ManagedStore):
        raise StoreError(f"this store cannot be listed: {type(store).__name__} has only get and put")
    return store


def verify(store: Store, *, progress: Progress = lambda *_: None) -> Verified:
    """Read every entry and compare it with its checksum."""
    found, store = Verified(), managed(store)
    entries = list(store.entries())
    for done, entry in enumerate(entries):
        progress("entries", done, len(entries))
        kind = entry.key.split("/")[0]
        found.entries[kind] += 1
        found.sizes[kind] += entry.size
        wrong = store.check(entry.key)
        if wrong is not None:
            found.damaged[entry.key] = wrong
    progress("entries", len(entries), len(entries))
    return found


def collect(
    store: Store,
    *,
    older_than: float | None = None,
    max_bytes: float | None = None,
    dry_run: bool = False,
) -> Collected:
    """Evict entries unused for `older_than` seconds, then the least recently used down to `max_bytes`.

    What some process has in use stays. Always removed: temporary files of killed processes, and
    fingerprints of files that are gone. Entries of other versions are never read, and so go by age.

    >>> from framenest.cache.remote import RemoteStore
    >>> collect(RemoteStore("memory://new"), older_than=30 * 86400).kept
    0
    """
    store = managed(store)
    count, freed = store.sweep(dry_run=dry_run)
    done = Collected(Counter({"left behind": count}), freed)
    evict(store, [*store.entries()], done, older_than=older_than, max_bytes=max_bytes, dry_run=dry_run)
    return done


def evict(
    store: ManagedStore,
    entries: list[StoreEntry],
    done: Collected,
    *,
    older_than: float | None = None,
    max_bytes: float | None = None,
    dry_run: bool = False,
) -> None:
    """Remove some of these entries, as `collect` says, the least recently used first; adds to `done`."""
    planned = sum(entry.size for entry in entries)
    done.kept += planned
    for entry in sorted(entries, key=lambda entry: -entry.idle):
        if older_than is not None and entry.idle >= older_than:
            reason = "unused for too long"
        elif max_bytes is not None and planned > max_bytes:
            reason = "above the size"
        else:
            continue
        planned -= entry.size  # also if it is in use: no younger entry goes in its place
        if dry_run or store.remove(entry.key):
            done.removed[reason] += 1
            done.freed += entry.size
            done.kept -= entry.size
        else:
            done.in_use += 1
