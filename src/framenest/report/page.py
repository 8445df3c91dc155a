"""The report as one self-contained page, and its images."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from PIL import Image

from framenest.errors import ConfigError, VideoError
from framenest.frames import ImageSpec, Pixels
from framenest.images import as_base64, data_url, encode_image
from framenest.protocols import Progress
from framenest.report.document import Result
from framenest.selectors.selection import Selection
from framenest.video.decoder import Decoder

SMALL_SIDE, LARGE_SIDE = 128, 360  # short sides of the two sizes of images, in pixels
LARGE_RANKS = 32  # first ranks of a ranking, or budget of a selection, whose images are large as well
MAX_IMAGE_CHARACTERS = 4_400_000  # of all images of a page: it stays under 5 MB with its data and code
_LADDER = ((1.0, 80, 80), (1.0, 62, 66), (0.8, 55, 60), (0.65, 50, 55), (0.5, 40, 45), (0.35, 30, 35))
"""(scale, quality of small images, quality of large images); the first that fits is used."""

Urls = dict[str, dict[str, str]]


def embed(decoder: Decoder, results: Sequence[Result], *, progress: Progress = lambda *_: None) -> Urls:
    """{frame number: {"small": data URL, "large": data URL of the first ranks}}; one decoding pass."""
    frames = sorted({frame for result in results for frame in result.frames.tolist()})
    first: set[int] = set()
    for result in results:
        if isinstance(result, Selection):
            fitting = [budget for budget in result.prefixes if budget <= LARGE_RANKS]
            first.update(result.prefixes[max(fitting)].frames.tolist() if fitting else [])
        else:
            first.update(result.frames[:LARGE_RANKS].tolist())
    small, large = read_images(decoder, frames, first, progress)
    for scale, small_quality, large_quality in _LADDER:
        urls: Urls = {}
        for number, pixels in small.items():
            urls[str(number)] = {"small": _data_url(pixels, scale, small_quality)}
        for number, pixels in large.items():
            urls[str(number)]["large"] = _data_url(pixels, scale, large_quality)
        if sum(len(url) for entry in urls.values() for url in entry.values()) <= MAX_IMAGE_CHARACTERS:
            return urls
    raise ConfigError(f"{len(small)} frames do not fit into one page; give fewer rankings at a time")


def read_images(
    decoder: Decoder, frames: Sequence[int], first: set[int], progress: Progress = lambda *_: None
) -> tuple[dict[int, Pixels], dict[int, Pixels]]:
    """Small images of all frames and large ones of `first`, by frame number."""
    native = min(decoder.info.width, decoder.info.height)
    sizes = [ImageSpec.short_side(min(side, native)) for side in (SMALL_SIDE, LARGE_SIDE)]
    small: dict[int, Pixels] = {}
    large: dict[int, Pixels] = {}
    for batch in decoder.read(np.array(frames, dtype=np.int64), sizes=sizes):
        for place, number in enumerate(batch.frames.tolist()):
            small[number] = batch.pixels[0][place].copy()
            if number in first:
                large[number] = batch.pixels[1][place].copy()
        progress("pictures", len(small), len(frames))
    if len(small) < len(frames):
        raise VideoError(f"{len(frames) - len(small)} of {len(frames)} frames no longer decode")
    return small, large


def _data_url(pixels: Pixels, scale: float, quality: int) -> str:
    image = Image.fromarray(pixels)
    if scale < 1:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(size, Image.Resampling.LANCZOS)
    return data_url(encode_image(image, "webp", quality=quality), "image/webp")


_SCRIPTS = (
    *("marks.js", "terms.js", "budget.js", "axis.js", "rows.js", "timeline.js", "menu.js", "grid.js"),
    *("lightbox.js", "facts.js", "help.js", "slider.js", "view.js"),
)
_STYLES = ("base.css", "timeline.css", "frames.css", "narrow.css")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_START = """
const pictures = JSON.parse(document.getElementById("pictures").textContent);
const data = JSON.parse(document.getElementById("document").textContent);
const budget = () => Number(/^#k=(\\d+)$/.exec(location.hash)?.[1]) || undefined;
const view = render(document.getElementById("report"), data, {
  image: (frame, size) => {
    const urls = pictures[frame] ?? {};
    return urls[size] ?? urls.large ?? urls.small ?? null;
  },
  budget: budget(),
  changed: (k) => {
    try { history.replaceState(null, "", `#k=${k}`); } catch {} // inside another page it has no address
  },
});
addEventListener("hashchange", () => view.setBudget(budget() ?? view.state.budget));
"""


def view_script() -> str:
    """The view as one JavaScript module that exports `render`: its files joined, without imports."""
    return "\n".join(_IMPORT.sub("", _asset(name)) for name in _SCRIPTS)


def view_style() -> str:
    """The view's style sheet: its files joined."""
    return "\n".join(_asset(name) for name in _STYLES)


def page(data: Mapping[str, Any], images: Mapping[str, Mapping[str, str]]) -> str:
    """One self-contained page of what `document` and `embed` return.

    Its content security policy forbids all requests and other scripts.
    """
    script = view_script() + _START
    questions = {ranking["question"] for ranking in data["rankings"]}
    question = questions.pop() if len(questions) == 1 else None
    parts = {"script": script, "document": _inert(data), "pictures": _inert(images)}
    title, body = question or data["video"]["name"], _filled("report.html", parts)
    return _page(title, view_style(), body, f"script-src {_hash(script)}; ")


def plain_page(title: str, body: str) -> str:
    """One self-contained page without scripts. body: HTML."""
    style = _asset("base.css") + ".framenest .sheet { overflow-x: auto; margin: 12px 0 28px; }"
    style += ".framenest .sheet img { max-width: max(100%, 680px); }"  # narrower, its text is unreadable
    return _page(title, style, f'<div class="framenest"><h1>{html.escape(title)}</h1>{body}</div>')


def _page(title: str, style: str, body: str, scripts: str = "") -> str:
    """A page that may load nothing. scripts: which scripts its policy allows."""
    parts = {"title": html.escape(title), "style": style, "body": body}
    return _filled("page.html", parts | {"policy": f"style-src {_hash(style)}; {scripts}"})


def _filled(name: str, parts: Mapping[str, str]) -> str:
    """An asset with its {{names}} replaced."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], _asset(name))


def _inert(data: Any) -> str:
    """JSON without characters that HTML could read as markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{as_base64(hashlib.sha256(text.encode()).digest())}'"


def _asset(name: str) -> str:
    return (resources.files("framenest.report") / "assets" / name).read_text(encoding="utf-8")
