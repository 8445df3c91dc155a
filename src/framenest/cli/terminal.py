"""How the commands print: results to stdout, notes and errors to stderr."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click import get_current_context
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from framenest.errors import CacheWarning, ScorerWarning
from framenest.text import harmless, harmless_json

NOTED = (CacheWarning, ScorerWarning)


class SafeConsole(Console):
    """A console that escapes control characters, which files, videos and servers may contain."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Escape the text of every segment."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


out = SafeConsole(highlight=False)
err = SafeConsole(stderr=True, highlight=False)


class _Notes:
    """Whether notes are printed."""

    off = False


def set_quiet(quiet: bool) -> None:
    """Print results and errors only from now on, or notes too."""
    _Notes.off = quiet


def quiet() -> bool:
    """Whether to print results and errors only."""
    return _Notes.off


def print_json(data: Any) -> None:
    """Print data as one line of JSON, or JSON that is text already, with control characters escaped."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False) + "\n"
    out.file.write(harmless_json(text))


def say(text: str) -> None:
    """Print a line without markup."""
    out.print(text, soft_wrap=True, markup=False)


def say_labelled(*labels_and_texts: str) -> None:
    """Print a line of dim labels, each followed by its text."""
    pairs = zip(labels_and_texts[::2], labels_and_texts[1::2], strict=True)
    out.print("  ".join(f"[dim]{escape(label)}[/] {escape(text)}" for label, text in pairs), soft_wrap=True)


def confirm(*labels_and_texts: str) -> None:
    """Print what was done as `say_labelled` does; nothing with --quiet, or where stdout is for data."""
    parameters = get_current_context().params
    if not (quiet() or parameters.get("as_json") or parameters.get("output") == "-"):
        say_labelled(*labels_and_texts)


def note(text: str) -> None:
    """Print a note to stderr; nothing with --quiet."""
    if not quiet():
        err.print(f"[dim]note:[/] {escape(text)}", soft_wrap=True)


def fail(text: str) -> None:
    """Print an error to stderr."""
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def table(*headings: str, left: Collection[str] = (), wrap: Collection[str] = ()) -> Table:
    """Return an empty table. Columns are right-aligned except those in `left`.

    On a narrow terminal the columns in `wrap` are wrapped, so that no number is cut off.
    """
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in headings:
        grid.add_column(
            heading,
            justify="left" if heading in left else "right",
            no_wrap=heading not in wrap,
            overflow="fold" if heading in wrap else "ellipsis",
        )
    return grid


def print_table(rows: Table) -> None:
    """Print a table or grid: aligned on a terminal, elsewhere a line per row with tabs between the cells."""
    if out.is_terminal:
        out.print(rows)
        return
    headings = [[column.header for column in rows.columns]] if rows.show_header else []
    for cells in (*headings, *zip(*(column.cells for column in rows.columns), strict=True)):
        texts = (" ".join(Text.from_markup(str(cell)).plain.split()) for cell in cells)
        out.file.write(harmless("\t".join(texts)) + "\n")


def facts_grid() -> Table:
    """Return an empty grid of names and facts."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", justify="right")
    grid.add_column(overflow="fold")
    return grid


def short_path(path: str) -> str:
    """A path relative to the working directory if it is below it."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of the cache and of scorers as notes, and no other warnings."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        note(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for category in NOTED:
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield
