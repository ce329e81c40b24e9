"""The reference of paths is written from the code; what it adds to that fits the code."""

from __future__ import annotations

import re
from pathlib import Path

import migrator.web
from dev.reference import web, words
from migrator.web.auth import Listener, is_page
from migrator.web.connections import Crowd
from migrator.web.control import COMMANDS, CommandQueue
from migrator.web.metrics import Instruments
from migrator.web.server import new_app
from tests.support.panel import MemoryPanel

FOLDER = Path(migrator.web.__path__[0])
_CODE = re.compile(r"(?:HTTPException|UnansweredError|_closing|_error)\(\s*(\d{3})\b")
_OF_THE_SERVER = {404, 405, 500, 503}
"""Given by libraries, too."""


def test_every_code_that_is_given_has_its_reason() -> None:
    """And no reason has outlived its code."""
    found = {
        int(code)
        for file in FOLDER.glob("*.py")
        for code in _CODE.findall(file.read_text(encoding="utf-8"))
    }
    assert found | _OF_THE_SERVER == set(words.HTTP_CODES)


def test_the_socket_serves_the_same_but_for_the_page() -> None:
    """So one table tells both."""
    panel = MemoryPanel()
    app = new_app(panel, Instruments(), CommandQueue(panel), Listener(is_socket=True), Crowd())
    socket = {route.path for route in app.routes}  # type: ignore[attr-defined]  # all are routes
    assert socket == {route.path for _, route in web.paths() if not is_page(route.path)}


def test_every_command_is_in_the_reference() -> None:
    """With all that may be given with it."""
    page = web.http()
    for verb, kind in COMMANDS.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{verb}` |")]
        assert all(f"`{key}`" in line for key in web.keys_of(kind))
