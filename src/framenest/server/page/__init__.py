"""The files of the page. What it draws a ranking with is the report's view."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from framenest.report.page import view_script, view_style

_HERE = Path(__file__).parent
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

PAGE = _HERE / "index.html"


@cache
def assets() -> dict[str, tuple[str, str]]:
    """Everything the page loads: text and media type by name."""
    own = {file.name: file.read_text("utf-8") for file in _HERE.iterdir() if file.suffix in _TYPES}
    texts = own | {"view.js": view_script(), "view.css": view_style()}
    return {name: (text, _TYPES[Path(name).suffix]) for name, text in texts.items()}
