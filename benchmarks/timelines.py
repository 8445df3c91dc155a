"""Draw the paper's timelines: colored by rank, with the frames of the budgets 8, 16 and 32 of each ranking.

    python benchmarks/timelines.py timelines.png ranking.json [another.json …]      # or .svg, .pdf

All rankings or selections are of one video, which is read again. Matplotlib comes with the extra `plots`.
"""

from __future__ import annotations

import bisect
import io
import math
import sys
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from framenest.errors import ConfigError
from framenest.frames import Pixels
from framenest.method.prefix import Prefix
from framenest.report.document import Result, document
from framenest.report.page import read_images
from framenest.selectors.selection import Selection, load_result
from framenest.text import clock
from framenest.video.opening import reopen

BUDGETS = (8, 16, 32)
BANDS = ("#be3c1e", "#d68f00", "#10847e")
PLAIN, INK, FAINT, WASH, SHADE = "#3a6cb8", "#181c21", "#697078", "#f0eee8", "#f8e2c4"
WIDTH, MARGIN, LABEL = 1600.0, 24.0, 120.0
TICKS, AXIS, GAP = 64.0, 26.0, 6.0


def budgets_of(result: Result) -> list[Prefix]:
    """The budgets 8, 16 and 32 of a result, as far as it has them."""
    if isinstance(result, Selection):
        sizes = [k for k, prefix in sorted(result.prefixes.items()) if k <= BUDGETS[-1] and len(prefix)]
        if not sizes:
            raise ConfigError(
                f"a figure shows up to {BUDGETS[-1]} frames; this selection has no budget that small"
            )
    else:
        sizes = [k for k in BUDGETS if k < len(result)]
        sizes += [len(result)] if len(result) <= BUDGETS[-1] else []
    return [result.prefix(k) for k in sizes]


def budget_notes(before: Prefix | None, now: Prefix) -> list[str]:
    """How many frames a budget keeps from the smaller one before it, and how many it adds."""
    if before is None:
        return [f"{len(now)} frames"]
    shared = len(np.intersect1d(before.frames, now.frames))
    of_all = "" if shared == len(before) else f" of {len(before)}"
    return [f"{shared}{of_all} kept", f"{len(now) - shared} new"]


def figure_frames(results: Sequence[Result]) -> list[int]:
    """Every frame that the figure shows, ascending."""
    prefixes = [prefix for result in results for prefix in budgets_of(result)]
    return sorted({frame for prefix in prefixes for frame in prefix.frames.tolist()})


def draw(results: Sequence[Result], images: Mapping[int, Pixels], kind: str) -> bytes:
    """Draw the figure.

    Args:
        results: rankings or selections of one video, stacked in this order.
        images: (h, w, 3) image of every frame in `figure_frames`, by frame number.
        kind: "png", "svg" or "pdf".

    Returns:
        The file's content.
    """
    entries = document(results)["rankings"]
    file = io.BytesIO()
    # In SVG and PDF text stays text and every frame stays an image.
    with mpl.rc_context({"svg.fonttype": "none", "image.composite_image": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box in its place
        figure = Figure(dpi=150)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        y = _heading(axes, results)
        for result, entry in zip(results, entries, strict=True):
            if len(results) > 1:
                _text(axes, MARGIN, y + 4, textwrap.shorten(entry["label"], 110, placeholder="…"), 20)
                y += 34
            y = _timeline(axes, result, entry.get("active", []), y)
            prefixes = budgets_of(result)
            for before, prefix in zip([None, *prefixes], prefixes, strict=False):
                y = _row(axes, prefix, budget_notes(before, prefix), images, y)
            y += 18
        height = y + MARGIN / 2
        figure.set_size_inches(WIDTH / 100, height / 100)
        axes.set(xlim=(0, WIDTH), ylim=(height, 0), aspect="auto")
        figure.savefig(file, format=kind, metadata={} if kind == "png" else _UNDATED[kind])
    return file.getvalue()


_UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def _text(
    axes: Axes, x: float, y: float, text: str, size: float, colour: str = INK, align: str = "left"
) -> None:
    """Text with its top at y, `size` in units of the figure."""
    printable = "".join(c if c.isprintable() else "\ufffd" for c in text)
    axes.text(
        x, y, printable, fontsize=0.72 * size, color=colour, ha=align, va="top", parse_math=False
    )  # 100 units are an inch of 72 points


def _box(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    axes.fill((x, x + width, x + width, x), (y, y, y + height, y + height), color=colour, linewidth=0)


def _image(axes: Axes, x: float, y: float, width: float, height: float, pixels: Pixels) -> None:
    size = (math.ceil(2 * width), math.ceil(2 * height))
    scaled = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS)
    axes.imshow(scaled, extent=(x, x + width, y + height, y), zorder=2)  # above the boxes


def _heading(axes: Axes, results: Sequence[Result]) -> float:
    y = MARGIN
    questions = {result.question for result in results}
    question = questions.pop() if len(questions) == 1 else f"{len(questions)} questions"
    for line in textwrap.wrap(question or "Without a question", 96) or [""]:
        _text(axes, MARGIN, y, line, 30)
        y += 38
    if any(prefix.ranks is not None for result in results for prefix in budgets_of(result)):
        for x, name, colour in zip((0, 132, 224), ("ranks 1-8", "9-16", "17-32"), BANDS, strict=True):
            _box(axes, LABEL + x, y + 6, 18, 12, colour)
            _text(axes, LABEL + x + 26, y + 2, name, 18, FAINT)
    return y + 36


def _timeline(axes: Axes, result: Result, active: Sequence[Sequence[float]], y: float) -> float:
    video = result.video
    left, wide = LABEL, WIDTH - LABEL - MARGIN

    def x(seconds: float) -> float:
        return left + wide * min(1.0, seconds / video.duration if video.duration > 0 else 0.0)

    _box(axes, left, y, wide, TICKS, WASH)
    for start, end in active:
        _box(axes, x(start), y, max(1.0, x(end) - x(start)), TICKS, SHADE)
    chosen = sorted(budgets_of(result)[-1], key=lambda one: -(one.rank or 0))  # the first ranks lie on top
    for rank, second, _ in chosen:
        top = y + (12 * _band(rank) if rank else 0)
        _box(axes, x(second) - 1.5, top, 3, y + TICKS - top, _colour(rank))
    _box(axes, left, y + TICKS, wide, 1, INK)
    for step in range(7):
        align = "left" if step == 0 else "right" if step == 6 else "center"
        at, label = left + wide * step / 6, clock(video.duration * step / 6)
        _text(axes, at, y + TICKS + 5, label, 15, FAINT, align)
    return y + TICKS + AXIS + GAP


def _row(axes: Axes, prefix: Prefix, notes: Sequence[str], images: Mapping[int, Pixels], y: float) -> float:
    """The frames of one budget, as lines of tiles."""
    video, columns = prefix.video, 8 if len(prefix) <= 8 else 16
    wide = (WIDTH - LABEL - MARGIN - GAP * (columns - 1)) / columns
    high = max(8.0, (wide - 6) * video.height / video.width + 6)
    _text(axes, MARGIN, y + 2, f"K={prefix.budget}", 22)
    for line, text in enumerate(notes):
        _text(axes, MARGIN, y + 30 + 18 * line, text, 14, FAINT)
    for place, (rank, second, frame) in enumerate(prefix):
        line, column = divmod(place, columns)
        x, top = LABEL + column * (wide + GAP), y + line * (high + 26)
        _box(axes, x, top, wide, high, _colour(rank))
        _image(axes, x + 3, top + 3, wide - 6, high - 6, images[frame])
        label = clock(second) if rank is None else f"#{rank}  {clock(second)}"
        _text(axes, x + wide / 2, top + high + 3, label, 15 if columns == 8 else 12, FAINT, "center")
    lines = -(-len(prefix) // columns)
    return y + max(lines * (high + 26), 84) + 8


def _band(rank: int) -> int:
    """0, 1 or 2 for ranks up to 8, 16 or 32."""
    return bisect.bisect_left(BUDGETS, rank)


def _colour(rank: int | None) -> str:
    return PLAIN if rank is None else BANDS[_band(rank)]


def main(given: Sequence[str]) -> None:
    """The command."""
    file, *rankings = given
    results = [load_result(ranking) for ranking in rankings]
    frames = figure_frames(results)
    _, images = read_images(reopen(results[0].video), frames, set(frames))
    Path(file).write_bytes(draw(results, images, Path(file).suffix[1:].lower()))


if __name__ == "__main__":
    main(sys.argv[1:])
