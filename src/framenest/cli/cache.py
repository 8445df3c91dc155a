"""framenest cache."""

from __future__ import annotations

from collections import Counter

import rich_click as click

from framenest.cache import eviction
from framenest.cli import options
from framenest.cli.option_groups import Common
from framenest.cli.options import Duration, Size, option
from framenest.cli.terminal import note, out, say, table
from framenest.models import CATALOGUE, DAMAGED
from framenest.models.downloads import ModelFile, damaged
from framenest.text import size_text

KINDS = (
    "index", "features", "timeline", "transcripts", "finished", "fingerprints", "remote", "selections",
    "lmms-eval", "lmms-eval-tasks",
)  # fmt: skip
MODEL_KINDS = ("models", "text")


@click.group()
def cache() -> None:
    """Where indexes and features are cached, their size, checksums, and how to remove them."""


@options.command(cache)
def where(*, common: Common) -> None:
    """Print the cache directory or URL."""
    say(common.cache.location)


@options.command(cache)
def size(*, common: Common) -> None:
    """Print the number and size of files of each kind."""
    rows = table("kind", "files", "size", left=["kind"])
    for kind, (files, total) in common.cache.size().items():
        rows.add_row(kind, f"{files:,}", size_text(total))
    out.print(rows)


@options.command(cache)
def clear(*, with_models: bool = option("Also remove model files.", "--models"), common: Common) -> None:
    """Remove everything cached about videos. It is recomputed when needed."""
    kinds = (*KINDS, *MODEL_KINDS) if with_models else KINDS
    freed = common.cache.clear(kinds)
    left = sum(size for kind, (_, size) in common.cache.size().items() if kind in kinds)
    kept = f"; {size_text(left)} could not be removed: in use, or not yours" if left else ""
    say(f"{size_text(freed)} freed in {common.cache.location}{kept}")


@options.command(cache)
def verify(
    *,
    remove: bool = option("Remove damaged files; they are recomputed or fetched again when needed."),
    common: Common,
) -> int:
    """Check every cached file and model file against its checksum. Exit code 1 if one is damaged."""
    with common.bars() as bars:
        found = eviction.verify(common.cache, progress=bars)
    rows = table("kind", "entries", "size", "damaged", left=["kind"])
    bad = Counter(key.split("/")[0] for key in found.damaged)
    for kind, count in sorted(found.entries.items()):
        rows.add_row(kind, f"{count:,}", size_text(found.sizes[kind]), str(bad[kind]))
    scorers: dict[ModelFile, str] = {}
    for name, entry in CATALOGUE.items():
        scorers |= {file: name for source in entry.sources for file in source.files(common.local)}
    damaged_models = damaged(list(scorers), common.local, anew=True)
    if scorers:
        total = size_text(sum(file.path.stat().st_size for file in scorers))
        rows.add_row("models", f"{len(scorers):,}", total, str(len(damaged_models)))
    out.print(rows)
    left = 0
    for file in damaged_models:
        if remove:
            file.remove()
        left += not remove
        fetch = f"run: framenest models fetch {scorers[file]}"
        note(f"{file.path}: {DAMAGED}; {fetch}{' (removed)' if remove else ''}")
    for key, wrong in found.damaged.items():
        removed = remove and common.cache.remove(key)
        left += not removed
        note(f"{key}: {wrong}{' (removed)' if removed else ''}")
    return int(left > 0)


@options.command(cache)
def gc(
    *,
    older_than: Duration | None = option(
        "Remove what was not used (in a remote cache: written) for this long: 12h, 30d."
    ),
    max_size: Size | None = option("Then remove the least recently used, down to this size: 500MB, 2TB."),
    dry_run: bool = option("Only print what would be removed."),
    common: Common,
) -> None:
    """Remove old entries, entries over a size limit, and files left by killed processes.

    Keeps what running processes use (in a remote cache, where that is unknown: everything younger than a
    day) and models. What is removed is recomputed when needed.

    \b
    framenest cache gc --older-than 90d --max-size 200GB --dry-run
    """
    done = eviction.collect(common.cache, older_than=older_than, max_bytes=max_size, dry_run=dry_run)
    would = "would be " if dry_run else ""
    for reason, count in done.removed.items():
        if count:
            out.print(f"{count:,} {would}removed: {reason}")
    used = f"; {done.in_use:,} in use were kept" if done.in_use else ""
    freed, kept = size_text(done.freed), size_text(done.kept)
    say(f"{freed} {would}freed, {kept} kept in {common.cache.location}{used}")
