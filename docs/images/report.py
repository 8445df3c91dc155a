"""Take the README's picture: the demo's report, Framenest's frames above as many evenly spaced ones.

    python docs/images/report.py demo/big_buck_bunny.html docs/images/report.png

Needs the extra `test-browser` and Chromium; `make screenshot` sees to both. The picture carries the hash of
the words that the page can show, so that a test notices if they have changed since.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import re
import shutil
import sys
from pathlib import Path

from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from framenest.method.ranking import Ranking
from framenest.protocols import MatchStrength
from framenest.report.page import view_script

BUDGET, WIDTH = "8", 1280


def words() -> str:
    """A hash of the texts in the page's script, and in what makes its reasons and verdicts."""
    made = (Ranking.reasons.func, Ranking.match_text.fget, MatchStrength.words.fget)
    sources = [view_script(), *map(inspect.getsource, made)]
    texts = re.findall(r'"[^"\n]*"|`[^`]*`', "\n".join(sources))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def photograph(page: Path) -> bytes:
    """The page at a budget of 8, as far as the last frame."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(
            viewport={"width": WIDTH, "height": 900}, color_scheme="light", reduced_motion="reduce"
        )
        tab.goto(page.resolve().as_uri())
        tab.get_by_role("button", name=BUDGET, exact=True).click()
        tab.mouse.move(0, 0)
        below = tab.get_by_role("button", name="16 more").bounding_box()
        data = tab.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": below["y"]})
        browser.close()
    return data


if __name__ == "__main__":
    picture = Image.open(io.BytesIO(photograph(Path(sys.argv[1])))).convert("RGB")
    about = PngInfo()
    about.add_text("words", words())
    ImageOps.posterize(picture, 6).save(
        sys.argv[2], optimize=True, pnginfo=about
    )  # a third of the bytes less
