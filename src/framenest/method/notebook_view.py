"""How a Prefix and a Ranking show themselves in a notebook: a timeline, and the frames."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from framenest.errors import FramenestError
from framenest.frames import ImageSpec
from framenest.images import data_url, encode_image
from framenest.text import clock

if TYPE_CHECKING:
    from framenest.method.prefix import Prefix
    from framenest.method.ranking import Ranking

MOST_FRAMES = 32
"""Frames of a prefix that are drawn."""
FIRST = 8
"""Ranks of a ranking that are drawn."""
HEIGHT = 120
"""Pixels of the short side of a frame."""
WIDE, TALL = 1000, 60
"""The timeline's own units."""


def prefix_html(prefix: Prefix) -> str:
    """A prefix as HTML: where its frames lie, and the frames in time order."""
    video = escape(prefix.video.path)
    head = f"<b>{len(prefix)} frames</b> of {video} ({clock(prefix.video.duration)})"
    return _page(head, _timeline(prefix, ""), _frames(prefix))


def ranking_html(ranking: Ranking) -> str:
    """A ranking as HTML: the evidence over time, and its first frames in time order."""
    prefix = ranking.prefix(min(FIRST, len(ranking)))
    asked = "no question" if ranking.question is None else f"“{escape(ranking.question)}”"
    head = (
        f"<b>{len(ranking)} ranks</b> of {escape(ranking.video.path)} for {asked}, {escape(ranking.scorer)}"
    )
    foot = f"The first {len(prefix)} ranks; <code>ranking.prefix(k)</code> serves any other budget."
    return _page(head, _timeline(prefix, _evidence(ranking)), _frames(prefix), foot)


def _page(*parts: str) -> str:
    return '<div style="font-family:sans-serif">' + "".join(f"<div>{part}</div>" for part in parts) + "</div>"


def _at(second: float, duration: float) -> float:
    return round(WIDE * second / duration, 1) if duration > 0 else 0.0


def _timeline(prefix: Prefix, below: str) -> str:
    """A mark for each frame, from left to right as time goes."""
    duration = prefix.video.duration
    marks = "".join(
        f'<path d="M{_at(second, duration)},4V{TALL}" stroke="#d95f02" stroke-width="3">'
        f"<title>{_label(rank, second, frame)}</title></path>"
        for rank, second, frame in prefix
    )
    base = f'<line x1="0" x2="{WIDE}" y1="{TALL}" y2="{TALL}" stroke="currentColor" stroke-width="2"/>'
    return (
        f'<svg viewBox="0 0 {WIDE} {TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="where the frames lie" style="width:100%;height:{TALL}px">{below}{base}{marks}</svg>'
    )


def _evidence(ranking: Ranking) -> str:
    pool = ranking.pool
    if not len(pool):
        return ""
    high = max(float(pool.evidence.max()), 1e-9)
    points = " ".join(
        f"{_at(second, ranking.video.duration)},{TALL * (1 - 0.9 * value / high):.1f}"
        for second, value in zip(pool.seconds.tolist(), pool.evidence.tolist(), strict=True)
    )
    return f'<polyline points="{points}" fill="none" stroke="currentColor" opacity="0.5"/>'


def _frames(prefix: Prefix) -> str:
    few = prefix
    if len(prefix) > MOST_FRAMES:
        best = np.arange(len(prefix)) if prefix.ranks is None else np.argsort(prefix.ranks, kind="stable")
        few = prefix.part(np.sort(best[:MOST_FRAMES]))
    try:
        images = few.images(ImageSpec.short_side(HEIGHT), progress=False)
    except FramenestError as error:
        return f"<i>No pictures: {escape(str(error))}</i>"
    shown = "".join(_figure(data_url(encode_image(i)), *one) for i, one in zip(images, few, strict=True))
    rest = len(prefix) - len(few)
    return shown + (f"<div>… and {rest} more</div>" if rest else "")


def _figure(url: str, rank: int | None, second: float, frame: int) -> str:
    label = _label(rank, second, frame)
    return (
        '<figure style="display:inline-block;margin:4px">'
        f'<img src="{url}" alt="{label}" style="height:{HEIGHT}px;display:block">'
        f'<figcaption style="font-size:small">{label}</figcaption></figure>'
    )


def _label(rank: int | None, second: float, frame: int) -> str:
    ranked = "" if rank is None else f"#{rank} · "
    return f"{ranked}{clock(second)} · frame {frame}"
