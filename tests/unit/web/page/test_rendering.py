"""Tests of the templates of the status page, and of what is served besides."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError

from migrator.ledger.pause_reasons import Signal
from migrator.nservicebus.timeouts import EndpointName
from migrator.web.control_values import Liveness, Readiness
from migrator.web.page.rendering import asset, build, render
from migrator.web.page.session import Session
from migrator.web.page.views import look
from tests.support.panel import hold, some_snapshot

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; drop table x; --",
    "{{ 7 * 7 }} {% raw %}",
    "</section></main>",
    "a\u202eb\x00c",
]


class Reader(HTMLParser):
    """Collects tags with the names of their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


def overview(name: str) -> str:
    """Return a page about an endpoint, holds, events and gaps that are all called *name*."""
    endpoint = EndpointName(name)
    own = replace(hold(Signal.PAUSED, endpoint), observed=name)
    of_all = replace(hold(Signal.VETO), observed=name)
    snapshot = some_snapshot(holds=[own, of_all])
    progress = snapshot.progress
    named = replace(
        snapshot,
        owner=name,
        endpoints=[replace(each, name=endpoint) for each in snapshot.endpoints],
        progress=replace(
            progress,
            endpoints=[replace(each, endpoint=endpoint) for each in progress.endpoints],
            quarantine=[replace(each, endpoint=endpoint) for each in progress.quarantine],
            held=[replace(each, destination=name, detail=name) for each in progress.held],
            lanes=[replace(each, doing=name) for each in progress.lanes],
        ),
        events=[replace(each, detail={"said": name}) for each in snapshot.events],
        gaps=[name],
        due=[(name, 5)],
    )
    values = {
        "build": build(),
        "session": Session(name=name, until_s=0.0),
        "has_login": True,
        "told": None,
        "look": look(
            named,
            live=Liveness(silent_s={}, is_alive=True),
            ready=Readiness(is_ready=True, reasons=()),
        ),
    }
    return render("overview.html", values)


def tags_of(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the tags of a page."""
    reader = Reader()
    reader.feed(text)
    return reader.tags


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_changes_the_page(name: str) -> None:
    """Tags and attributes are those of a page about nice names."""
    text = overview(name)
    assert tags_of(text) == tags_of(overview("Sales"))
    assert "\u202e" not in text
    assert "\x00" not in text


def test_the_page_is_within_its_own_policy() -> None:
    """No style and no script in the text, and nothing of another site."""
    for tag, attributes in tags_of(overview("Sales")):
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert tag not in {"style", "iframe", "object", "base"}
    assert not re.search(r"https?:|javascript:", overview("Sales"))
    for name in ("style.css", "script.js"):
        assert not re.search(rb"https?:|url\(|@import|innerHTML|eval\(", asset(name))


def test_every_part_has_a_name_of_its_own() -> None:
    """The script finds by it what has changed."""
    parts = re.findall(r'data-part="([^"]+)"', overview("Sales"))
    assert len(parts) == len(set(parts)) > 8


def test_what_is_missing_is_an_error() -> None:
    """Not an empty place on the page."""
    with pytest.raises(UndefinedError):
        render("overview.html", {"build": build()})
