"""The page about control tells each path that a daemon serves, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.routing import Route

from migrator.web.app import Desk, new_app
from migrator.web.guard import Door
from migrator.web.metrics import Instruments
from migrator.web.orders import Orders
from tests.support.panel import MemoryPanel

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "control.md"


def served(*, is_socket: bool) -> set[str]:
    """Return method and path of all that is served; the status page's own paths are one."""
    panel: Any = MemoryPanel()
    desk = Desk(panel=panel, instruments=Instruments(), orders=Orders(panel))
    return {
        f"{method} {'/page/…' if route.path.startswith('/page/') else route.path}"
        for route in new_app(desk, Door(is_socket=is_socket)).routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }


def told() -> set[str]:
    """Return method and path of the first column of the table."""
    rows = re.findall(r"^\| (`(?:GET|POST) /.*?`.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    found = set()
    for row in rows:
        method = row[1:].partition(" ")[0]
        found |= {f"{method} {path}" for path in re.findall(r"(/[^`]*)`", row)}
    return found


@pytest.mark.parametrize("is_socket", [True, False], ids=["socket", "TCP"])
def test_the_page_tells_each_path(is_socket: bool) -> None:
    """A socket has no status page, and that page's forms are sent to its own paths."""
    page = {"GET /", "GET /page/…"}
    wanted = told() - page if is_socket else told() | {"POST /page/…"}
    assert page < told()
    assert served(is_socket=is_socket) == wanted
