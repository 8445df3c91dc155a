"""How an answer is shown: as it arrives, then what it cites and what it cost."""

from __future__ import annotations

from rich.markup import escape
from rich.text import Text

from framenest.cli.terminal import err, facts_grid, note, out, quiet, table
from framenest.lmm.answer import Kind
from framenest.lmm.ladder import Asked, Step
from framenest.text import clock, harmless


class AnswerPrinter:
    """Prints the answer as it arrives: to stdout, its reasoning dimmed to stderr."""

    def __init__(self) -> None:
        self._open: Kind | None = None

    def __call__(self, kind: Kind, piece: str) -> None:
        if self._open not in (None, kind):
            err.print()
        self._open = kind
        shown = harmless(piece)
        if kind == "answer":
            out.file.write(shown)
            out.file.flush()
        else:
            err.print(Text(shown, style="dim"), end="", soft_wrap=True)

    def end(self, _: Step) -> None:
        """Close the line of one answer."""
        if self._open is not None:
            out.print()
        self._open = None


def print_asked(asked: Asked) -> None:
    """The frames that were cited; not with --quiet: those that were shown, and what each step cost."""
    prefix = asked.prefix
    if asked.answer.finish_reason == "length":
        note("the answer was cut off; give it more room with --answer-tokens")
    facts = facts_grid()
    facts.add_row("", "")
    times = [clock(second) for second in prefix.seconds.tolist()]
    for place in asked.cited:
        rank = "" if prefix.ranks is None else f", rank {int(prefix.ranks[place])}"
        facts.add_row("cited", f"{times[place]} (frame {int(prefix.frames[place])}{rank})")
    if quiet():
        out.print(facts)
        return
    facts.add_row("shown", " ".join(times))
    if (pairing := asked.steps[-1].pairing) is not None:
        facts.add_row("sent", str(pairing))
    facts.add_row("model", escape(asked.answer.model))
    out.print(facts)
    headings = ("K", "frames sent", "tokens in", "tokens out", "first word", "all", "retries", "said")
    costs = table(*headings, left=["said"], gap=0)
    for step in asked.steps:
        usage = step.answer.usage
        costs.add_row(
            str(step.budget),
            str(step.sent),
            f"{usage.prompt_tokens:,}" if usage.prompt_tokens else f"≈ {step.estimated_tokens:,}",
            f"{usage.completion_tokens:,}" if usage.completion_tokens else "?",
            "–" if usage.first_seconds is None else f"{usage.first_seconds:.1f} s",
            f"{usage.seconds:.1f} s",
            str(usage.retries),
            "cannot tell" if step.cannot_tell else "an answer",
        )
    out.print(costs)
