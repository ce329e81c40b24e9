"""Makes the pictures of the status page that the documentation shows: ``dev/screenshots``.

The page is the real one, served as a daemon serves it; what it shows is invented. Each picture has
few colours, so that all of them may lie in the repository.
"""

from __future__ import annotations

import base64
import math
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Page

from migrator.ledger.report import QuarantineCount
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import Lane
from migrator.status.snapshot import Snapshot
from migrator.web.control import Pause
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve
from tests.support.browser import PHONE, new_browser, shown
from tests.support.moving import BILLING, SALES, MovingPanel

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "screenshots"
PATHS: Final = {"status": "/", "quarantine": "/page/quarantine"}
DESKTOP: Final = 1200
SCREENS: Final[Sequence[tuple[str, int, int]]] = (
    ("desktop", DESKTOP, 1220),
    ("phone", PHONE, 2390),
)
"""By name: width, and how much of the page's height at most; in pixels."""
SCHEMES: Final[Sequence[Literal["light", "dark"]]] = ("light", "dark")
_TOKEN: Final = "any"  # noqa: S105 - nobody else can reach it
_COLOURS: Final = 48
_MINUTES: Final = 60
_INDEXED: Final = """async ([png, most]) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const data = pen.getImageData(0, 0, image.width, image.height).data;
  const pixels = new Uint32Array(data.buffer), counts = new Map(), nearest = new Map();
  for (const each of pixels) counts.set(each, (counts.get(each) || 0) + 1);
  const rgb = each => [each & 255, each >> 8 & 255, each >> 16 & 255];
  const palette = [...counts].sort((a, b) => b[1] - a[1]).slice(0, most).map(each => rgb(each[0]));
  for (const each of counts.keys()) {
    const far = palette.map(one => one.reduce((sum, c, i) => sum + (c - rgb(each)[i]) ** 2, 0));
    nearest.set(each, far.indexOf(Math.min(...far)));
  }
  const text = Array.from(pixels, each => String.fromCharCode(nearest.get(each)));
  return {width: image.width, palette: palette.flat(), pixels: btoa(text.join(""))};
}"""
"""Gives each pixel the nearest of the commonest colours; the browser is fast at that."""


class Shop(MovingPanel):
    """An afternoon in the life of a shop."""

    def __init__(self) -> None:
        super().__init__()
        self.execute(Pause(endpoint=BILLING, reason="index rebuild until 10:15"), who="alice")

    def snapshot(self) -> Snapshot:
        """Return what moves, and around it what a long day leaves."""
        found = super().snapshot()
        now = found.taken_at
        rates = [4_400 + 420 * math.sin(n / 5) - 300 * (n % 7 == 3) for n in range(_MINUTES - 9)]
        lane = found.progress.lanes[0]
        held = replace(found.progress.held[0], endpoint=SALES, destination="Sales.Archive")
        held = replace(held, next_try_at=now + timedelta(seconds=40))
        return replace(
            found,
            progress=replace(
                found.progress,
                doubtful=(),
                held=[held],
                quarantine=[
                    *found.progress.quarantine,
                    QuarantineCount(endpoint=SALES, reason=Reason.BODY_MISSING, rows=2),
                ],
                lanes=[lane, replace(lane, lane=Lane(1), doing="preparing", open_batches=1)],
            ),
            due=[
                *(("overdue", 0), ("up to 1m", 1_204), ("up to 1h", 66_310)),
                *(("up to 1d", 812_440), ("later", 2_351_736)),
            ],
            events=[
                replace(each, at=now - timedelta(minutes=7 * n + 3, seconds=11 * n))
                for n, each in enumerate(found.events)
            ],
            throughput=[*[None] * 9, *rates],
        )


def main(arguments: Sequence[str]) -> None:
    """Write all pictures into the folder that *arguments* name, else where they are committed."""
    folder = Path(arguments[0]) if arguments else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    plan = WebPlan(listen=("127.0.0.1", 0), token=_TOKEN, open_to_local=True)
    with serve(Shop(), plan, Instruments()) as served, new_browser() as browser:
        assert served.address is not None  # noqa: S101 - it listens
        base = "http://{}:{}".format(*served.address)
        with shown(browser, f"{base}/page/login") as seen:
            seen.page.get_by_label("Your name").fill("alice")
            seen.page.get_by_label("Token").fill(_TOKEN)
            seen.page.get_by_role("button", name="Log in").click()
            painter = browser.new_page()
            for name, path in PATHS.items():
                seen.page.goto(base + path)
                for screen, width, most in SCREENS:
                    for scheme in SCHEMES:
                        seen.resize(width, scheme=scheme)
                        picture = _picture(seen.page, painter, width, most)
                        (folder / f"{name}-{screen}-{scheme}.png").write_bytes(picture)


def _picture(page: Page, painter: Page, width: int, most: int) -> bytes:
    """Return the upper part of *page* as PNG with a palette."""
    height = min(most, int(page.evaluate("document.documentElement.scrollHeight")))
    taken = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    given = [base64.b64encode(taken).decode(), _COLOURS]
    found: dict[str, Any] = painter.evaluate(_INDEXED, given)
    pixels, wide = base64.b64decode(found["pixels"]), int(found["width"])
    lines = [b"\0" + pixels[at : at + wide] for at in range(0, len(pixels), wide)]
    head = struct.pack("!IIBBBBB", wide, len(lines), 8, 3, 0, 0, 0)
    body = zlib.compress(b"".join(lines), 9)
    parts = ((b"IHDR", head), (b"PLTE", bytes(found["palette"])), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
        for kind, data in parts
    )


if __name__ == "__main__":
    main(sys.argv[1:])
