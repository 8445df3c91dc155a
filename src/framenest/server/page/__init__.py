"""The files of the page. What it draws a ranking with is the report's view."""

from __future__ import annotations

from pathlib import Path

import framenest.report

_HERE = Path(__file__).parent
_REPORT = Path(framenest.report.__file__).parent / "assets"

PAGE = _HERE / "index.html"
ASSETS = {
    file.name: file
    for folder in (_REPORT, _HERE)
    for file in sorted(folder.iterdir())
    if file.suffix in (".js", ".css", ".svg")
}
"""Everything the page loads, by name."""
