"""The paper's figure for any ranking: the timeline coloured by rank, and what each budget adds."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from framenest.errors import ConfigError
from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.report.contact_sheet import FAINT, INK, BlankCanvas, Canvas, Colour, PixelCanvas, SvgCanvas
from framenest.report.document import Result, document
from framenest.selectors.selection import Selection
from framenest.text import clock

BUDGETS = (8, 16, 32)
BANDS: tuple[Colour, ...] = ((190, 60, 30), (214, 143, 0), (16, 132, 126))
PLAIN: Colour = (58, 108, 184)
PAPER: Colour = (255, 255, 255)
WASH: Colour = (240, 238, 232)
SHADE: Colour = (248, 226, 196)
WIDTH, MARGIN, LABEL = 1600.0, 24.0, 120.0
FILM, TICKS, AXIS, GAP = 12, 64.0, 26.0, 6.0


@dataclass(frozen=True)
class BudgetRow:
    """The frames of one budget, as lines of tiles."""

    prefix: Prefix
    columns: int
    notes: tuple[str, ...]


def rows_of(result: Result) -> list[BudgetRow]:
    """The budgets 8, 16 and 32 of a result, as far as it has them, with what each keeps and adds."""
    if isinstance(result, Selection):
        sizes = [k for k, prefix in sorted(result.prefixes.items()) if k <= BUDGETS[-1] and len(prefix)]
        if not sizes:
            raise ConfigError(
                f"a figure shows up to {BUDGETS[-1]} frames; this selection has none for so small a budget"
            )
    else:
        sizes = [k for k in BUDGETS if k < len(result)]
        sizes += [len(result)] if len(result) <= BUDGETS[-1] else []
    prefixes = [result.prefix(k) for k in sizes]
    notes: list[tuple[str, ...]] = [(f"{len(prefixes[0])} frames",)]
    for before, now in pairwise(prefixes):
        kept = len(np.intersect1d(before.frames, now.frames))
        told = f"{kept} kept" if kept == len(before) else f"{kept} of {len(before)} kept"
        notes.append((told, f"{len(now) - kept} new"))
    return [
        BudgetRow(prefix, 8 if len(prefix) <= 8 else 16, told)
        for prefix, told in zip(prefixes, notes, strict=True)
    ]


def film_frames(results: Sequence[Result]) -> list[int]:
    """Up to twelve known frames spread over the video, for the strip above the timeline."""
    video = results[0].video
    known = np.unique(np.concatenate([_known(result) for result in results]))
    middles = [(i + 0.5) * video.num_frames / FILM for i in range(FILM)]
    return [int(known[np.argmin(np.abs(known - middle))]) for middle in middles]


def _known(result: Result) -> NDArray[np.int64]:
    """Frames that have been decoded before: the candidates, or those of a selection."""
    if isinstance(result, Selection):
        return np.concatenate([prefix.frames for prefix in result.prefixes.values()])
    return result.pool.frames


def figure_frames(results: Sequence[Result]) -> list[int]:
    """Every frame that the figure shows, ascending."""
    shown = set(film_frames(results))
    for result in results:
        shown.update(frame for row in rows_of(result) for frame in row.prefix.frames.tolist())
    return sorted(shown)


def png(results: Sequence[Result], pictures: Mapping[int, Pixels]) -> bytes:
    """The figure as a PNG file. pictures: (h, w, 3) of every frame in `figure_frames`, by number."""
    canvas = PixelCanvas(WIDTH, _draw(BlankCanvas(), results, pictures), PAPER)
    _draw(canvas, results, pictures)
    return canvas.png()


def svg(results: Sequence[Result], pictures: Mapping[int, Pixels]) -> bytes:
    """The figure as an SVG file; see `png`."""
    canvas = SvgCanvas(WIDTH, _draw(BlankCanvas(), results, pictures), PAPER)
    _draw(canvas, results, pictures)
    return canvas.svg()


def _draw(canvas: Canvas, results: Sequence[Result], pictures: Mapping[int, Pixels]) -> float:
    """Draw the figure; returns its height."""
    video, labels = results[0].video, document(results)["rankings"]
    y = _heading(canvas, results)
    wide = (WIDTH - LABEL - MARGIN) / FILM
    high = (wide - 2) * video.height / video.width
    for place, frame in enumerate(film_frames(results)):
        canvas.picture(LABEL + place * wide, y, wide - 2, high, pictures[frame])
    y += high + GAP
    for result, made in zip(results, labels, strict=True):
        if len(results) > 1:
            canvas.text(MARGIN, y + 4, _fit(made["label"], 110), 20, INK)
            y += 34
        y = _timeline(canvas, result, made.get("active", []), y)
        for row in rows_of(result):
            y = _row(canvas, row, pictures, y)
        y += 18
    return y + MARGIN / 2


def _heading(canvas: Canvas, results: Sequence[Result]) -> float:
    y = MARGIN
    for line in _title(results):
        canvas.text(MARGIN, y, line, 30, INK)
        y += 38
    ranked = any(row.prefix.ranks is not None for result in results for row in rows_of(result))
    for place, (name, colour) in enumerate(zip(("ranks 1-8", "9-16", "17-32"), BANDS, strict=True)):
        if ranked:
            x = LABEL + (0, 132, 224)[place]
            canvas.rectangle(x, y + 6, 18, 12, colour)
            canvas.text(x + 26, y + 2, name, 18, FAINT)
    return y + 36


def _timeline(canvas: Canvas, result: Result, active: Sequence[Sequence[float]], y: float) -> float:
    video = result.video
    left, wide = LABEL, WIDTH - LABEL - MARGIN

    def x(seconds: float) -> float:
        return left + wide * min(1.0, seconds / video.duration if video.duration > 0 else 0.0)

    canvas.rectangle(left, y, wide, TICKS, WASH)
    for start, end in active:
        canvas.rectangle(x(start), y, max(1.0, x(end) - x(start)), TICKS, SHADE)
    last = rows_of(result)[-1].prefix
    ranks = [None] * len(last) if last.ranks is None else last.ranks.tolist()
    order = sorted(range(len(last)), key=lambda i: -(ranks[i] or 0))  # the first ranks lie on top
    for i in order:
        band = _band(ranks[i])
        top = y + (0 if band is None else 12 * band)
        at = x(float(last.seconds[i]))
        canvas.line(at, top, at, y + TICKS, _colour(ranks[i]), 3)
    canvas.line(left, y + TICKS, left + wide, y + TICKS, INK, 1)
    for step in range(7):
        canvas.text(
            left + wide * step / 6, y + TICKS + 5, clock(video.duration * step / 6), 15, FAINT, step / 6
        )
    return y + TICKS + AXIS + GAP


def _row(canvas: Canvas, row: BudgetRow, pictures: Mapping[int, Pixels], y: float) -> float:
    wide, high = _tile(row)
    canvas.text(MARGIN, y + 2, f"K={row.prefix.budget}", 22, INK)
    for line, text in enumerate(row.notes):
        canvas.text(MARGIN, y + 30 + 18 * line, text, 14, FAINT)
    size = 15 if row.columns == 8 else 12
    for place, frame in enumerate(row.prefix.frames.tolist()):
        line, column = divmod(place, row.columns)
        x, top = LABEL + column * (wide + GAP), y + line * (high + 26)
        rank = None if row.prefix.ranks is None else int(row.prefix.ranks[place])
        canvas.rectangle(x, top, wide, high, _colour(rank))
        canvas.picture(x + 3, top + 3, wide - 6, high - 6, pictures[frame])
        said = clock(float(row.prefix.seconds[place]))
        canvas.text(
            x + wide / 2, top + high + 3, said if rank is None else f"#{rank}  {said}", size, FAINT, 0.5
        )
    lines = -(-len(row.prefix) // row.columns)
    return y + max(lines * (high + 26), 84) + 8


def _tile(row: BudgetRow) -> tuple[float, float]:
    video = row.prefix.video
    wide = (WIDTH - LABEL - MARGIN - GAP * (row.columns - 1)) / row.columns
    return wide, max(8.0, (wide - 6) * video.height / video.width + 6)


def _title(results: Sequence[Result]) -> list[str]:
    asked = {result.question for result in results}
    question = asked.pop() if len(asked) == 1 else f"{len(asked)} questions"
    return textwrap.wrap(question or "Without a question", 96) or [""]


def _fit(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _band(rank: int | None) -> int | None:
    return None if rank is None else 0 if rank <= 8 else 1 if rank <= 16 else 2


def _colour(rank: int | None) -> Colour:
    band = _band(rank)
    return PLAIN if band is None else BANDS[band]
