"""Take the README's picture of a report.

    python docs/images/report.py demo/report.html docs/images/report.png

Needs the extra `test-browser` and Chromium; `make screenshot` sees to both.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image, ImageOps
from playwright.sync_api import sync_playwright

BUDGET, SIZE = "16", {"width": 1280, "height": 880}


def photograph(page: Path) -> bytes:
    """The upper part of the page at a budget of 16, its best frame kept."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        tab.goto(page.resolve().as_uri())
        tab.get_by_role("button", name=BUDGET, exact=True).click()
        tab.mouse.move(0, 0)
        data = tab.screenshot()
        browser.close()
    return data


if __name__ == "__main__":
    picture = Image.open(io.BytesIO(photograph(Path(sys.argv[1])))).convert("RGB")
    ImageOps.posterize(picture, 6).save(sys.argv[2], optimize=True)  # two bits less: two thirds of the bytes
