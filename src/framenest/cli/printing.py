"""Rankings and answers on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray
from rich.markup import escape
from rich.text import Text

from framenest.cli.terminal import err, facts_grid, note, out, quiet, say_labelled, short_path, table
from framenest.lmm.answer import Kind
from framenest.lmm.ask import Asked, Step
from framenest.method.ordering import RULES
from framenest.method.prefix import Prefix
from framenest.method.ranking import HEARD, Ranking
from framenest.text import clock, harmless


class AnswerPrinter:
    """Prints an answer as it streams: the answer to stdout, its reasoning to stderr."""

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
        """End the line of an answer."""
        if self._open is not None:
            out.print()
        self._open = None


def print_asked(asked: Asked) -> None:
    """Print the cited frames and, unless --quiet, the frames sent and the cost of each step."""
    prefix = asked.prefix
    if asked.answer.finish_reason == "length":
        note("the answer was cut off; raise the limit with --answer-tokens")
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
        facts.add_row("sent", pairing)
    facts.add_row("model", escape(asked.answer.model))
    out.print(facts)
    headings = ("K", "frames sent", "tokens in", "tokens out", "first word", "all", "retries", "said")
    costs = table(*headings, left=["said"])
    for step in asked.steps:
        usage = step.answer.usage
        costs.add_row(
            str(step.prefix.budget),
            str(len(step.prefix)),
            f"{usage.prompt_tokens:,}" if usage.prompt_tokens else f"≈ {step.estimated_tokens:,}",
            f"{usage.completion_tokens:,}" if usage.completion_tokens else "?",
            "–" if usage.first_seconds is None else f"{usage.first_seconds:.1f} s",
            f"{usage.seconds:.1f} s",
            str(usage.retries),
            "cannot tell" if step.cannot_tell else "an answer",
        )
    out.print(costs)


NO_MATCH = "nothing in this video clearly matches the question; these are the best frames"
CANNOT_TELL = "the scorer knows no word of the question, so the ranking is a guess; see what frames show"
WIDE_GAP = 5.0
"""Seconds between probes above which to suggest --max-gap."""


def print_facts(ranking: Ranking) -> None:
    """Print the video, the question, the scorer, and the largest gap between probes."""
    video, stats = ranking.video, ranking.stats
    facts = facts_grid()
    rate = f"{video.fps:.4g} fps" + ("" if video.constant_rate else " on average")
    facts.add_row("video", escape(short_path(video.path)))
    facts.add_row(
        "", f"{clock(video.duration)}, {video.num_frames:,} frames, {rate}, {video.width}×{video.height}"
    )
    facts.add_row("question", escape(ranking.question) if ranking.question is not None else "(none)")
    if ranking.look_for is not None:
        by = f"\n(written by {ranking.look_for.written_by})" if ranking.look_for.written_by else ""
        facts.add_row("look for", escape("\n".join(ranking.look_for.texts) + by))
    facts.add_row("scorer", escape(ranking.scorer))
    if stats.match is not None:
        facts.add_row("match", escape("\n".join(filter(None, (str(stats.match), stats.match.words)))))
    said = ranking.transcript
    if said is not None and said.lines:
        weighed = "" if "speech" in ranking.pool.cues else ", not weighed"
        facts.add_row("speech", escape(f"{len(said.lines):,} lines of {said.source}{weighed}"))
    read = f"; text read on {stats.read} of them" if stats.read is not None else ""
    facts.add_row("looked at", f"{stats.probes} probes + {stats.zoom} zoom frames{read}")
    facts.add_row("not seen", f"up to {stats.largest_gap_seconds:.2f} s between two probes")
    frames = {"encode": stats.decoded, "match": stats.candidates}
    spent = ", ".join(
        f"{stage} {value:.2f}" + (f" ({frames[stage] / value:.0f} frames/s)" if frames.get(stage) else "")
        for stage, value in stats.seconds.items()
        if value >= 0.005
    )
    facts.add_row("seconds", spent or "0.00")
    for text in () if quiet() else (*video.notes, *(said.notes if said else ()), *_notes(ranking)):
        facts.add_row("[yellow]note[/]", escape(text))
    out.print(facts)


def _notes(ranking: Ranking) -> Iterator[str]:
    """What went wrong, and what to try."""
    stats = ranking.stats
    replaced = sum(used >= 0 for _, used in stats.substitutes)
    dropped = len(stats.substitutes) - replaced
    if replaced:
        yield f"{replaced} frames could not be decoded; the frame before takes the place of each"
    if dropped:
        yield f"{dropped} frames could not be decoded, nor any frame near them"
    if ranking.unmatched:
        yield NO_MATCH
    if stats.match is not None and stats.match.verdict == "cannot tell":
        yield CANNOT_TELL
    if stats.largest_gap_seconds > WIDE_GAP:
        gap = f"{stats.largest_gap_seconds:.0f} s"
        yield f"probes are up to {gap} apart; --max-gap {WIDE_GAP:g} looks more closely, but takes longer"


WIDE = 120
"""Columns of a terminal that has room for everything."""
_SHORT = {"relevance": "relev.", "observability": "observ."}


def _rank_columns(ranking: Ranking, count: int) -> dict[str, list[str]]:
    """The first ranks with evidence, cues and the rule's terms, under short headings."""
    terms = {term.name: term for term in RULES[ranking.config.ranking.rule].terms}
    columns = {
        "rank": [str(rank) for rank in range(1, count + 1)],
        "time": [clock(second) for second in ranking.seconds[:count].tolist()],
        "frame": [str(frame) for frame in ranking.frames[:count].tolist()],
        "from": ["zoom" if zoom else "probe" for zoom in ranking.is_zoom[:count]],
        **({"seen": [_fitting(ranking.seen(i + 1)) for i in range(count)]} if ranking.pool.seen else {}),
        "evid.": [f"{value:.3f}" for value in ranking.evidence[:count]],
    }
    measures: dict[str, NDArray[Any]] = {**ranking.cues, **ranking.terms}
    for name, values in measures.items():
        if name in terms and terms[name].is_rank:
            shown = [f"#{value:.0f}" if value else "–" for value in values[:count]]
        else:
            shown = [f"{value:.3f}" for value in values[:count]]
        columns[terms[name].label if name in terms else _SHORT.get(name, name)] = shown
    return columns


def _fitting(seen: str) -> str:
    """All that a frame shows on a wide terminal, else the first thing."""
    return escape(harmless(seen if out.width >= WIDE else seen.partition(",")[0]))


def print_ranks(ranking: Ranking, count: int) -> None:
    """Print the first ranks with their scores, as many columns as fit."""
    count = min(count, len(ranking))
    columns = _rank_columns(ranking, count)
    left_out: list[str] = []
    widths = {name: 1 + max(map(len, (name, *cells))) for name, cells in columns.items()}
    while 1 + sum(widths[name] for name in columns) > out.width and len(columns) > 6:
        left_out.append(list(columns)[-2])  # the last one is their sum
        del columns[left_out[-1]]
    ranks = table(*columns, left=["from", "seen"])
    for cells in zip(*columns.values(), strict=True):
        ranks.add_row(*cells)
    out.print(ranks)
    if left_out and not quiet():
        out.print(f"[dim]left out on this narrow terminal: {', '.join(left_out)}; see show --csv[/]")
    for i, heard in enumerate(ranking.cues.get("speech", ())[:count]):
        if heard >= HEARD:
            say_labelled(f"said at rank {i + 1}, {clock(float(ranking.seconds[i]))}:", ranking.said(i + 1))
    if count < len(ranking) and not quiet():
        out.print(f"[dim]{len(ranking) - count} more ranks[/]")


def note_if_short(selector: str, prefix: Prefix) -> None:
    """Note if a selector returns fewer frames than the budget, and why."""
    if len(prefix) < prefix.budget:
        because = f": {prefix.why}" if prefix.why else ""
        note(f"{selector} returns {len(prefix)} frames for a budget of {prefix.budget}{because}")


def print_prefix(prefix: Prefix) -> None:
    """Print the times of a budget's frames, in order."""
    times = " ".join(clock(float(s)) for s in prefix.seconds)
    short = f" (all {len(prefix)} candidates of this short video)" if prefix.complete else ""
    out.print(f"[bold]K={prefix.budget}[/]{short}  {times}", soft_wrap=True)
