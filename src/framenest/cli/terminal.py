"""How the commands print: lines, tables and grids to stdout; notes and errors to stderr."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from framenest.errors import CacheWarning, ScorerWarning
from framenest.text import harmless, harmless_json

TOLD = (CacheWarning, ScorerWarning)


class SafeConsole(Console):
    """Texts from files, videos and servers reach the terminal without control characters."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Every segment, whoever asked for it."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


out = SafeConsole(highlight=False)
err = SafeConsole(stderr=True, highlight=False)


def print_json(text: str) -> None:
    """JSON text on stdout, as it is but for control characters, which become escapes."""
    out.file.write(harmless_json(text))


def say(text: str) -> None:
    """A line on stdout, as it is."""
    out.print(text, soft_wrap=True, markup=False)


def say_labelled(*labels_and_texts: str) -> None:
    """A line on stdout of labels, dimmed, each followed by its text."""
    labels, texts = labels_and_texts[::2], labels_and_texts[1::2]
    pairs = zip(labels, texts, strict=True)
    out.print("  ".join(f"[dim]{escape(label)}[/] {escape(text)}" for label, text in pairs), soft_wrap=True)


def confirm(*labels_and_texts: str) -> None:
    """A line on stdout, as say_labelled, on what was done and where it is; none with --quiet."""
    if not quiet():
        say_labelled(*labels_and_texts)


class _Level:
    """How much the commands say beside their results: -1 nothing, 0 notes, 1 details too."""

    value = 0


def set_level(value: int) -> None:
    """How much is said from now on, as --quiet and -v ask for."""
    _Level.value = value


def quiet() -> bool:
    """Whether results are all that is to be printed."""
    return _Level.value < 0


def detail(text: str) -> None:
    """A remark on stderr, with -v."""
    if _Level.value > 0:
        note(text)


def note(text: str) -> None:
    """A remark on stderr; none with --quiet."""
    if quiet():
        return
    err.print(f"[dim]note:[/] {escape(text)}", soft_wrap=True)


def fail(text: str) -> None:
    """An error on stderr."""
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def table(
    *headings: str,
    left: Collection[str] = (),
    wrap: Collection[str] = (),
    gap: int = 1,
    title: str | None = None,
) -> Table:
    """An empty table. Columns hold numbers, set to the right, except those in `left`.

    Where the terminal is narrow, those in `wrap` give way, so that no number is cut off.
    """
    made = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0)
    )
    for heading in headings:
        made.add_column(
            heading,
            justify="left" if heading in left else "right",
            no_wrap=heading not in wrap,
            overflow="fold" if heading in wrap else "ellipsis",
        )
    return made


def facts_grid() -> Table:
    """An empty grid of names and facts."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", justify="right")
    grid.add_column(overflow="fold")
    return grid


def short_path(path: str) -> str:
    """A path relative to the working directory, if it lies below."""
    here = f"{Path.cwd()}{os.sep}"
    return path.removeprefix(here)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of the cache and of scorers as notes of one line."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, TOLD):
            note(str(message))
        else:
            detail(f"{category.__name__}: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        for category in TOLD:
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield
