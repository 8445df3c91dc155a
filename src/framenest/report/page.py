"""The report page: the view's script and style, the document and the pictures in one HTML file."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from framenest.images import as_base64

_SCRIPTS = (
    "marks.js",
    "terms.js",
    "budget.js",
    "axis.js",
    "rows.js",
    "timeline.js",
    "grid.js",
    "detail.js",
    "facts.js",
    "copying.js",
    "help.js",
    "slider.js",
    "view.js",
)
_STYLES = ("base.css", "timeline.css", "frames.css", "narrow.css")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_START = """
const pictures = JSON.parse(document.getElementById("pictures").textContent);
const data = JSON.parse(document.getElementById("document").textContent);
render(document.getElementById("report"), data, {
  image: (frame, size) => { const urls = pictures[frame] ?? {}; return urls[size] ?? urls.small ?? null; },
});
"""


def view_script() -> str:
    """The view as one JavaScript module that exports `render`; its files joined, imports removed."""
    return "\n".join(_IMPORT.sub("", _asset(name)) for name in _SCRIPTS)


def view_style() -> str:
    """The view's style sheet; its files joined."""
    return "\n".join(_asset(name) for name in _STYLES)


def page(made: Mapping[str, Any], pictures: Mapping[str, Mapping[str, str]]) -> str:
    """One self-contained page. Its content security policy forbids all requests, and other scripts.

    made: what `document` gives; pictures: what `embed` gives.
    """
    script, style = view_script() + _START, view_style()
    parts = {
        "title": html.escape(_title(made)),
        "policy": f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "document": _inert(made),
        "pictures": _inert(pictures),
    }
    template = _asset("page.html")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _title(made: Mapping[str, Any]) -> str:
    asked = {ranking["question"] for ranking in made["rankings"]}
    question = asked.pop() if len(asked) == 1 else None
    return f"{question or made['video']['name']} · Framenest"


def _inert(data: Any) -> str:
    """JSON without characters that HTML could take for markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{as_base64(hashlib.sha256(text.encode()).digest())}'"


def _asset(name: str) -> str:
    return (resources.files("framenest.report") / "assets" / name).read_text(encoding="utf-8")
