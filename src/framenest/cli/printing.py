"""How the commands print: results to stdout, notes and errors to stderr; rankings and answers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterator, Sequence
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
from framenest.frames import Array
from framenest.lmm.ask import Reply, Step
from framenest.lmm.client import Kind
from framenest.method.ordering import RULES
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.selectors.selection import Selection
from framenest.text import clock, harmless, harmless_json


class SafeConsole(Console):
    """A console that escapes control characters, which files, videos and servers may contain."""

    brief = False  # print results and errors only

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


out = SafeConsole(highlight=False)
err = SafeConsole(stderr=True, highlight=False)


def print_json(data: Any) -> None:
    """Print data as one line of JSON, or JSON that is text already, with control characters escaped."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False) + "\n"
    out.file.write(harmless_json(text))


def say(text: str) -> None:
    """Print a line without markup."""
    out.print(text, soft_wrap=True, markup=False)


def confirm(*labels_and_texts: str) -> None:
    """Print dim labels, each followed by its text; nothing with --quiet, or where stdout is for data."""
    parameters = get_current_context().params
    if not (out.brief or parameters.get("as_json") or parameters.get("output") == "-"):
        pairs = zip(labels_and_texts[::2], labels_and_texts[1::2], strict=True)
        out.print(
            "  ".join(f"[dim]{escape(label)}[/] {escape(text)}" for label, text in pairs), soft_wrap=True
        )


def note(text: str) -> None:
    """Print a note to stderr; nothing with --quiet."""
    if not out.brief:  # not on a console of its own, which would write into progress bars
        err.print(f"[dim]note:[/] {escape(text)}", soft_wrap=True)


def fail(text: str) -> None:
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def table(*headings: str, texts: Collection[str] = ()) -> Table:
    """Return an empty table. Only the columns in `texts` are left-aligned, and wrapped if space is short."""
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in headings:
        if heading in texts:
            rows.add_column(heading, overflow="fold")
        else:
            rows.add_column(heading, justify="right", no_wrap=True)
    return rows


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CacheWarning)
        warnings.simplefilter("always", ScorerWarning)
        warnings.showwarning = lambda message, *_, **__: note(str(message))
        yield


class AnswerPrinter:
    """Prints an answer as it streams: the answer to stdout, its reasoning to stderr."""

    def __init__(self) -> None:
        self._open: Kind | None = None

    def __call__(self, kind: Kind, piece: str) -> None:
        if self._open not in (None, kind):
            err.print()
        self._open = kind
        if kind == "answer":
            out.file.write(harmless(piece))
            out.file.flush()
        else:
            err.print(Text(piece, style="dim"), end="", soft_wrap=True)

    def end(self, _: Step) -> None:
        if self._open is not None:
            out.print()
        self._open = None


def print_reply(reply: Reply) -> None:
    """Print the cited frames and, unless --quiet, the frames sent and the cost of each step."""
    prefix = reply.prefix
    if reply.answer.finish_reason == "length":
        note("the answer was cut off; raise the limit with --answer-tokens")
    facts = facts_grid()
    out.print()
    times = [clock(second) for second in prefix.seconds.tolist()]
    for place in reply.cited:
        rank = "" if prefix.ranks is None else f", rank {int(prefix.ranks[place])}"
        facts.add_row("cited", f"{times[place]} (frame {int(prefix.frames[place])}{rank})")
    for time in reply.not_shown:
        facts.add_row("[yellow]cites[/]", escape(f"{time}, which was not shown"))
    if out.brief:
        print_table(facts)
        return
    facts.add_row("shown", " ".join(times))
    facts.add_row("model", escape(reply.answer.model))
    print_table(facts)
    headings = ("K", "frames sent", "tokens in", "tokens out", "first word", "all", "retries", "said")
    costs = table(*headings, texts=["said"])
    for step in reply.steps:
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
    print_table(costs)


TOP = 8  # ranks to print unless -k says otherwise
WIDE_GAP = 5.0  # seconds between probes above which to suggest --max-gap


def print_ranking(ranking: Ranking, prefixes: Sequence[Prefix], *, scores: bool, as_json: bool) -> None:
    """Print a row for each rank of the largest prefix, and the times of each; with --quiet only the times.

    scores: also print what was looked at, and the scores of each rank. as_json: print one JSON object.
    """
    columns = (ranking.seconds.tolist(), ranking.frames.tolist(), ranking.roles, ranking.reasons)
    names, count = ("rank", "seconds", "frame", "role", "reason"), max(map(len, prefixes))
    ranks = [dict(zip(names, row, strict=True)) for row in zip(range(1, count + 1), *columns, strict=False)]
    if as_json:
        facts = {name: getattr(ranking, name) for name in ("question", "scorer")}
        match = ranking.stats.match
        facts |= {"match": match and match.verdict, **(match.vocabulary if match else {})}
        facts["notes"] = ranking.notes
        budgets = {prefix.budget: prefix.seconds.tolist() for prefix in prefixes}
        print_json({"video": ranking.video.path, **facts, "ranks": ranks, "budgets": budgets})
        return
    if not out.brief:
        _print_facts(ranking, whole=scores)
        rows = table("rank", "time", "role", "reason", texts=["role", "reason"])
        for row in ranks:
            role = row["role"] if row["role"] == "context" else f"[green]{row['role']}[/]"
            rows.add_row(str(row["rank"]), clock(row["seconds"]), role, escape(row["reason"]))
        print_table(rows)
        if scores:
            _print_scores(ranking, len(ranks))
    for prefix in prefixes:
        print_prefix(prefix)


def _print_facts(ranking: Ranking, *, whole: bool) -> None:
    """Print the video, the question, the scorer and the match; if `whole`, what was looked at, too."""
    video, stats = ranking.video, ranking.stats
    facts = facts_grid()
    rate = f"{video.fps:.4g} fps" + ("" if video.constant_rate else " on average")
    frames = f"{video.num_frames:,} frames, {rate}, " if whole else ""
    size = f"{clock(video.duration)}, {frames}{video.width}×{video.height}"
    facts.add_row("video", escape(f"{short_path(video.path)} ({size})"))
    facts.add_row("question", escape(ranking.question) if ranking.question is not None else "(none)")
    if ranking.look_for is not None:
        facts.add_row("look for", escape("\n".join(ranking.look_for.texts)))
    facts.add_row("scorer", escape(ranking.scorer))
    if ranking.match_text:
        facts.add_row("match", escape(ranking.match_text))
    transcript = ranking.transcript
    if transcript is not None and transcript.lines:
        weighed = "" if "speech" in ranking.pool.cues else ", not weighed"
        facts.add_row("speech", escape(f"{len(transcript.lines):,} lines of {transcript.source}{weighed}"))
    if whole:
        facts.add_row("looked at", f"{stats.probes} probes + {stats.zoom} zoom frames")
        facts.add_row("not seen", f"up to {stats.largest_gap_seconds:.2f} s between two probes")
        done = {"encode": stats.decoded, "match": stats.candidates}
        spent = ", ".join(
            f"{stage} {value:.2f}" + (f" ({done[stage] / value:.0f} frames/s)" if done.get(stage) else "")
            for stage, value in stats.seconds.items()
            if value >= 0.005
        )
        facts.add_row("seconds", spent or "0.00")
    for text in (*ranking.notes, *_notes(ranking)):
        facts.add_row("[yellow]note[/]", escape(text))
    print_table(facts)


def _notes(ranking: Ranking) -> Iterator[str]:
    stats = ranking.stats
    replaced = sum(used >= 0 for _, used in stats.substitutes)
    dropped = len(stats.substitutes) - replaced
    if replaced:
        yield f"{replaced} frames could not be decoded; the frame before takes the place of each"
    if dropped:
        yield f"{dropped} frames could not be decoded, nor any frame near them"
    if stats.largest_gap_seconds > WIDE_GAP:
        gap = f"{stats.largest_gap_seconds:.0f} s"
        yield f"probes are up to {gap} apart; --max-gap {WIDE_GAP:g} looks more closely, but takes longer"


def _print_scores(ranking: Ranking, count: int) -> None:
    """Print evidence, cues and the rule's terms of the first ranks; on a terminal as many columns as fit."""
    terms = RULES[ranking.config.ranking.rule].terms
    labels = {term.name: term.label for term in terms} | {"relevance": "relev.", "observability": "observ."}
    numbered = {term.name for term in terms if term.is_rank}
    columns = {
        "rank": [str(rank) for rank in range(1, count + 1)],
        "time": [clock(second) for second in ranking.seconds[:count].tolist()],
        "frame": [str(frame) for frame in ranking.frames[:count].tolist()],
        "from": ["zoom" if zoom else "probe" for zoom in ranking.is_zoom[:count]],
        "evid.": [f"{value:.3f}" for value in ranking.evidence[:count]],
    }
    measures: dict[str, Array] = {**ranking.cues, **ranking.terms}
    for name, values in measures.items():
        others = [f"#{value:.0f}" if value else "–" for value in values[:count]]
        shown = others if name in numbered else [f"{value:.3f}" for value in values[:count]]
        columns[labels.get(name, name)] = shown
    left_out: list[str] = []
    widths = {name: 1 + max(map(len, (name, *cells))) for name, cells in columns.items()}
    while out.is_terminal and 1 + sum(widths[name] for name in columns) > out.width and len(columns) > 6:
        left_out.append(list(columns)[-2])  # the last one is their sum
        del columns[left_out[-1]]
    ranks = table(*columns)
    for cells in zip(*columns.values(), strict=True):
        ranks.add_row(*cells)
    print_table(ranks)
    if left_out:
        out.print(f"[dim]left out on this narrow terminal: {', '.join(left_out)}; see show --csv[/]")


def print_prefix(prefix: Prefix) -> None:
    """Print the times of a budget's frames, in order, on a line of their own that can be copied."""
    if not out.brief:
        if prefix.roles_text:
            say(prefix.roles_text)
        short = ", all candidates of this short video" if prefix.complete else ""
        out.print(f"[dim]{len(prefix)} frames in time order{short}:[/]", soft_wrap=True)
    say(" ".join(clock(float(second)) for second in prefix.seconds))


def print_selections(specs: Sequence[str], names: Sequence[str], selections: Sequence[Selection]) -> None:
    labels = [spec if names.count(name) > 1 else name for spec, name in zip(specs, names, strict=True)]
    if len(selections) > 1:
        _print_comparison(labels, selections)
    else:
        confirm("selector", selections[0].selector, "scorer", selections[0].scorer)
    for label, selection in zip(labels, selections, strict=True):
        for text in selection.notes:
            note(f"{label}: {text}")
        if "diversity" in selection.stats:
            note(f"{label} compares frames by {selection.stats['diversity']}")
        for prefix in selection.prefixes.values():
            if len(selections) == 1:
                print_prefix(prefix)
            if len(prefix) < prefix.budget:
                because = f": {prefix.why}" if prefix.why else ""
                note(f"{label} returns {len(prefix)} frames for a budget of {prefix.budget}{because}")


def _print_comparison(labels: Sequence[str], selections: Sequence[Selection]) -> None:
    headings = ("selector", "K", "frames", "looked at", "largest gap", "also in first")
    rows = table(*headings, texts=["selector"])
    for label, selection in zip(labels, selections, strict=True):
        for budget, prefix in selection.prefixes.items():
            first = selections[0].prefixes[budget].frames.tolist()
            rows.add_row(
                label,
                str(budget),
                str(len(prefix)),
                f"{selection.stats.get('candidates', 0):,}",
                f"{100 * prefix.largest_gap:.0f} %",
                str(len(set(first) & set(prefix.frames.tolist()))),
            )
    print_table(rows)
