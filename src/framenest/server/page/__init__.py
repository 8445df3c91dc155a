"""The files of the page. The view itself is the report's."""

from __future__ import annotations

from pathlib import Path

import framenest.report

_HERE = Path(__file__).parent
_REPORT = Path(framenest.report.__file__).parent / "assets"

PAGE = _HERE / "index.html"
ASSETS = {
    file.name: file
    for folder in (_REPORT, _HERE)
    for file in sorted(folder.glob("*"))
    if file.suffix in (".js", ".css", ".svg")
}
"""Everything the page loads, by name."""
