"""framenest cache."""

from __future__ import annotations

from collections import Counter

import rich_click as click
from rich.table import Table

from framenest.cache import eviction as upkeep
from framenest.cli import options
from framenest.cli.options import Common, Duration, Size, option
from framenest.cli.terminal import note, out, say, table
from framenest.models import CATALOGUE, DAMAGED
from framenest.models.downloads import ModelFile, damaged
from framenest.text import size_text

KINDS = (
    "index",
    "features",
    "timeline",
    "transcripts",
    "finished",
    "fingerprints",
    "remote",
    "selections",
    "lmms-eval",
    "lmms-eval-tasks",
)


@click.group()
def cache() -> None:
    """Where indexes and features are kept, how large they are, whether they are whole, how to clear them."""


@cache.command("where")
@options.from_parameters
def where(*, common: Common) -> None:
    """Print the cache directory or address."""
    say(common.cache.location)


@cache.command("size")
@options.from_parameters
def size(*, common: Common) -> None:
    """Files and bytes of each kind of entry."""
    rows = table("kind", "files", "size", left=["kind"])
    for kind, (files, total) in common.cache.size().items():
        rows.add_row(kind, f"{files:,}", size_text(total))
    out.print(rows)


@cache.command("clear")
@options.from_parameters
def clear(
    *, with_models: bool = option("Remove fetched model files too.", flag="--models"), common: Common
) -> None:
    """Remove all that is kept of videos; it is made again when needed."""
    kinds = (*KINDS, "models", "text") if with_models else KINDS
    freed = common.cache.clear(kinds)
    left = sum(size for kind, (_, size) in common.cache.size().items() if kind in kinds)
    stays = f"; {size_text(left)} could not go: in use, or not yours" if left else ""
    say(f"{size_text(freed)} freed in {common.cache.location}{stays}")


@cache.command("verify")
@options.from_parameters
def verify(
    *,
    remove: bool = option("Remove what is damaged; entries are made again, models fetched again."),
    common: Common,
) -> int:
    """Read every entry and model file and compare it with its checksum. Exit code 1 where one is damaged."""
    with common.bars() as bars:
        found = upkeep.verify(common.cache, progress=bars)
    rows = table("kind", "entries", "size", "damaged", left=["kind"])
    bad = Counter(key.split("/")[0] for key in found.damaged)
    for kind, count in sorted(found.entries.items()):
        rows.add_row(kind, f"{count:,}", size_text(found.sizes[kind]), str(bad[kind]))
    models = _verify_models(rows, common)
    out.print(rows)
    left = 0
    for file, scorer in models.items():
        if remove:
            file.remove()
        left += not remove
        note(f"{file.path}: {DAMAGED}; run: framenest models fetch {scorer}{' (removed)' if remove else ''}")
    for key, wrong in found.damaged.items():
        gone = remove and common.cache.remove(key)
        left += not gone
        note(f"{key}: {wrong}{' (removed)' if gone else ''}")
    return int(left > 0)


def _verify_models(rows: Table, common: Common) -> dict[ModelFile, str]:
    """Damaged files of the scorers' weights on this machine, with the scorer of each."""
    files: dict[ModelFile, str] = {}
    for name, entry in CATALOGUE.items():
        files |= {file: name for source in entry.sources for file in source.files(common.local)}
    if files:
        found = damaged(list(files), common.local, anew=True)
        size = size_text(sum(file.path.stat().st_size for file in files))
        rows.add_row("models", f"{len(files):,}", size, str(len(found)))
        return {file: files[file] for file in found}
    return {}


@cache.command("gc")
@options.from_parameters
def gc(
    *,
    older_than: float | None = option(
        "Remove what has not been used (at an address: written) for so long: 12h, 30d.", type=Duration()
    ),
    max_size: float | None = option(
        "Then remove what was unused for longest, until this much is left: 500MB, 2TB.", type=Size()
    ),
    dry_run: bool = option("Only say what would go."),
    common: Common,
) -> None:
    """Remove what was not used for long, what is over a size, and what killed processes left behind.

    Never removed is what a running process has read or written last (at an address, where nobody can tell:
    whatever is younger than a day). Models stay. What is removed is made again when needed.

    \b
    framenest cache gc --older-than 90d --max-size 200GB --dry-run
    """
    done = upkeep.collect(common.cache, older_than=older_than, max_bytes=max_size, dry_run=dry_run)
    would = "would be " if dry_run else ""
    for reason, count in done.removed.items():
        if count:
            out.print(f"{count:,} {would}removed: {reason}")
    used = f"; {done.in_use:,} in use stay" if done.in_use else ""
    freed, kept = size_text(done.freed), size_text(done.kept)
    say(f"{freed} {would}freed, {kept} kept in {common.cache.location}{used}")
