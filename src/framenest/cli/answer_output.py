"""How an answer is shown: as it arrives, then what it cites and what it cost."""

from __future__ import annotations

import unicodedata

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from framenest.cli.terminal import err, note, out
from framenest.lmm.answer import Kind
from framenest.lmm.ladder import Asked, Step
from framenest.text import clock


class Said:
    """Prints the answer as it arrives: to stdout, its reasoning dimmed to stderr."""

    def __init__(self) -> None:
        self._open: Kind | None = None

    def __call__(self, kind: Kind, piece: str) -> None:
        if self._open not in (None, kind):
            err.print()
        self._open = kind
        shown = _harmless(piece)
        if kind == "answer":
            out.file.write(shown)
            out.file.flush()
        else:
            err.print(Text(shown, style="dim"), end="", soft_wrap=True)

    def end(self, _: Step) -> None:
        if self._open is not None:
            out.print()
        self._open = None


def _harmless(text: str) -> str:
    """Without control characters, which a model has no business sending to a terminal."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def print_asked(asked: Asked) -> None:
    prefix = asked.prefix
    if asked.answer.finish_reason == "length":
        note("the answer was cut off; give it more room with --answer-tokens")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", justify="right")
    facts.add_column(overflow="fold")
    facts.add_row("", "")
    times = [clock(second) for second in prefix.seconds.tolist()]
    for place in asked.cited:
        rank = "" if prefix.ranks is None else f", rank {int(prefix.ranks[place])}"
        facts.add_row("cited", f"{times[place]} (frame {int(prefix.frames[place])}{rank})")
    facts.add_row("shown", " ".join(times))
    facts.add_row("model", escape(asked.answer.model))
    out.print(facts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("K", "frames sent", "tokens in", "tokens out", "first word", "all", "retries"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("said", no_wrap=True)
    for step in asked.steps:
        usage = step.answer.usage
        table.add_row(
            str(step.budget),
            str(step.sent),
            f"{usage.prompt_tokens:,}" if usage.prompt_tokens else f"≈ {step.estimated_tokens:,}",
            f"{usage.completion_tokens:,}" if usage.completion_tokens else "?",
            "–" if usage.first_seconds is None else f"{usage.first_seconds:.1f} s",
            f"{usage.seconds:.1f} s",
            str(usage.retries),
            "cannot tell" if step.cannot_tell else "an answer",
        )
    out.print(table)
