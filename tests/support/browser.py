"""A browser for tests: the machine's Chromium, without a window; pictures are kept for people."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

from dev.processes import PATIENCE_S
from tests.support import cannot_run

SCREENSHOTS: Final = Path(__file__).parents[2] / "screenshots"
"""Not in git; the last run's pictures."""
DESKTOP: Final = 1200
PHONE: Final = 390
"""Widths in pixels."""
_HEIGHT: Final = 800
_IN_SIGHT: Final = """from => {
  const found = [], texts = document.createTreeWalker(from, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, range = document.createRange();
    range.selectNodeContents(text);
    if (!text.data.trim() || !range.getClientRects().length) continue;
    window.scrollBy(0, range.getBoundingClientRect().top - innerHeight / 2);
    const isSeen = [...range.getClientRects()].every(box =>
      [box.left + 1, box.right - 1].every(x =>
        document.elementFromPoint(x, (box.top + box.bottom) / 2) === text.parentElement));
    if (isSeen) found.push(text.data.trim());
  }
  return found;
}"""
"""Scrolls down only; what is cut off or covered is not what one finds at its place."""

_CUT: Final = """[...document.querySelectorAll("body *")]
  .filter(each => each.checkVisibility() && each.clientWidth > 1)
  .filter(each => getComputedStyle(each).overflowX !== "visible")
  .filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.outerHTML.slice(0, 100))"""
"""What is a pixel wide is there for those who do not see."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A page that is open, and what it did."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """What the browser wrote to its console."""

    @property
    def width(self) -> int:
        """How wide the page is, what has to be scrolled to included."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    @property
    def cut(self) -> list[str]:
        """Elements of which a part is cut off at the side, or has to be scrolled to."""
        found: list[str] = self.page.evaluate(_CUT)
        return found

    def in_sight(self, selector: str) -> list[str]:
        """Return the texts in an element that can be seen without scrolling to the side."""
        found: list[str] = self.page.locator(selector).evaluate(_IN_SIGHT)
        return found

    def resize(self, width: int, *, scheme: Literal["light", "dark"] = "light") -> None:
        """Show it in a window of that *width*, to somebody who likes it *light* or *dark*."""
        self.page.set_viewport_size({"width": width, "height": _HEIGHT})
        self.page.emulate_media(color_scheme=scheme)

    def keep(self, name: str) -> None:
        """Keep a picture of the whole page."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@contextmanager
def new_browser() -> Iterator[Browser]:
    """Start a browser; the test is skipped where there is none, and fails where it is promised."""
    program = shutil.which("chromium")
    if program is None:
        cannot_run("chromium is not installed: apt-get install chromium")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox to go to
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=arguments, timeout=PATIENCE_S * 1000
        )
        expect.set_options(timeout=PATIENCE_S * 1000)  # a busy machine is no failure
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def shown(browser: Browser, url: str, *, has_clock: bool = False) -> Iterator[Shown]:
    """Open *url* with a browser that remembers nothing; its clock waits to be told, if wanted."""
    context = browser.new_context(viewport={"width": DESKTOP, "height": _HEIGHT})
    try:
        context.set_default_timeout(PATIENCE_S * 1000)
        found = Shown(context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda message: found.complaints.append(message.text))
        if has_clock:
            found.page.clock.install()
        found.page.goto(url)
        yield found
    finally:
        context.close()
