"""A real browser for tests of pages, and what it must not see: console messages, errors, requests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

SCREENSHOTS = Path(__file__).parents[1] / "screenshots"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
DESKTOP, PHONE = (1280, 900), (390, 844)
NEXT_FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
ACTIONS = {
    "Locator": ("click", "dblclick", "fill", "hover", "press", "select_option", "set_input_files", "uncheck"),
    "Keyboard": ("press", "type"),
    "Mouse": ("click", "dblclick", "down", "move", "up", "wheel"),
}


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's Chromium under Playwright; skips, with the reason, where either is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the extra `test-browser`")
    found = [
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    ]
    if not found:
        pytest.skip("no Chromium on this machine; `make test-browser` installs it")
    with pytest.MonkeyPatch.context() as patch, api.sync_playwright() as playwright:
        for name, actions in ACTIONS.items():
            for action in actions:
                kind = getattr(api, name)
                patch.setattr(kind, action, _handled(getattr(kind, action), api.Error))
        browser = playwright.chromium.launch(executable_path=found[0], args=FLAGS)
        yield browser
        browser.close()


def _handled(action: Callable[..., Any], page_gone: type[Exception]) -> Callable[..., Any]:
    """Do something on a page and wait until the page has handled it: on a busy machine, Playwright's actions
    return some milliseconds earlier."""

    def act(self: Any, *args: Any, **options: Any) -> Any:
        result = action(self, *args, **options)
        with suppress(page_gone):  # it left for another page
            self.page.evaluate(NEXT_FRAME)
        return result

    return act


class Watched:
    """A page, with everything it said or asked for."""

    def __init__(self, browser: Any, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.page = self.context.new_page()
        self.page.keyboard.page = self.page.mouse.page = self.page  # for _handled
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def screenshot(self, name: str, *, whole: bool = False) -> Path:
        """A picture of the page in the folder of screenshots, to be looked at."""
        SCREENSHOTS.mkdir(exist_ok=True)
        file = SCREENSHOTS / f"{name}.png"
        if whole:
            self.page.evaluate("scrollTo(0, 0)")
        self.page.screenshot(path=file, full_page=whole)
        return file
