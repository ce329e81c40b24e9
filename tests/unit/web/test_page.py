"""Tests of ``migrator.web.page``: what a look at a daemon becomes, in words and in HTML."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError

from migrator.delays.depths import LevelDepth, build_level_depths
from migrator.delays.routing import DelaysVersion
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.report import AuditEvent, EndpointProgress
from migrator.nservicebus.timeouts import EndpointName
from migrator.reports.pages import Tone
from migrator.web.auth import Session
from migrator.web.page.pages import asset, build, render
from migrator.web.page.views import MODES, SIGNALS, EndpointCard, Look, State, look, state_of
from migrator.web.status import EndpointView, Liveness, Readiness, Snapshot
from tests.support.panel import NOW, SALES, hold, some_snapshot

ALIVE = Liveness(silent_s={"lane-worker-0": 0.5}, is_alive=True)
READY = Readiness(is_ready=True, reasons=())


def looked(snapshot: Snapshot) -> Look:
    """Return the look at a daemon that is well."""
    return look(snapshot, live=ALIVE, ready=READY)


def state(*holds: PauseReason, live: Liveness = ALIVE, ready: Readiness = READY) -> State:
    """Return how a daemon without doubts is."""
    snapshot = some_snapshot(holds=holds)
    calm = replace(snapshot, progress=replace(snapshot.progress, doubtful=()))
    return state_of(calm, live, ready)


def card(
    rows: dict[str, int],
    *,
    in_store: int | None,
    mode: str = "migrate",
    rate_per_s: float | None = 50.0,
    eta_s: float | None = 100.0,
    holds: tuple[PauseReason, ...] = (),
) -> EndpointCard:
    """Return the card of one endpoint."""
    snapshot = some_snapshot()
    view = EndpointView(
        name=SALES, mode=mode, in_store=in_store, rate_per_s=rate_per_s, eta_s=eta_s, holds=holds
    )
    books = [EndpointProgress(endpoint=SALES, rows=rows)]
    progress = replace(snapshot.progress, endpoints=books)
    (found,) = looked(replace(snapshot, endpoints=[view], progress=progress)).endpoints
    return found


def test_every_code_has_words() -> None:
    """And every mode."""
    assert set(SIGNALS) == set(Signal)
    assert set(MODES) == {"migrate", "dispatch", "forward"}


@pytest.mark.parametrize(
    ("found", "tone", "title"),
    [
        (state(), Tone.GOOD, "Running"),
        (state(hold(Signal.PAUSED)), Tone.CARE, "Paused"),
        (state(hold(Signal.ALARM)), Tone.CARE, "Waiting"),
        (state(hold(Signal.ALARM), hold(Signal.PAUSED)), Tone.CARE, "Paused"),
        (state(hold(Signal.PAUSED, SALES)), Tone.CARE, "Running; some endpoints wait"),
        (state(ready=Readiness(is_ready=False, reasons=["starting"])), Tone.CARE, "Starting"),
        (state(ready=Readiness(is_ready=False, reasons=["ending"])), Tone.CARE, "Ending"),
        (
            state(ready=Readiness(is_ready=False, reasons=["ending", "x"])),
            Tone.BAD,
            "Something is wrong",
        ),
        (state(live=Liveness(silent_s={"a": 400.0}, is_alive=False)), Tone.BAD, "Part of it hangs"),
    ],
)
def test_what_matters_most_is_said_first(found: State, tone: Tone, title: str) -> None:
    """In a word or two, and in a colour."""
    assert (found.tone, found.title) == (tone, title)


def test_doubts_are_told() -> None:
    """Also when it runs."""
    assert state_of(some_snapshot(), ALIVE, READY).title == "Running, with doubts"


def test_a_reason_says_what_was_seen_and_how_long_ago_it_began() -> None:
    """A clock that is a little ahead makes nothing negative."""
    long_ago = replace(hold(Signal.LEVEL_DEPTH), since=NOW - timedelta(hours=2), limit="at most 9")
    (wait,) = state(long_ago).waits
    assert (wait.title, wait.text) == ("The delay levels are full", "what was seen (at most 9)")
    assert wait.lasts == "2 hours"
    (wait,) = state(hold(Signal.ALARM, minute=5)).waits
    assert wait.lasts == "less than a second"


@pytest.mark.parametrize(
    ("handed_over", "in_store", "percent"),
    [
        (0, 1000, "0 %"),
        (1, 999, "0.1 %"),
        (999_999, 1, "99.9 %"),
        (1000, 0, "100 %"),
        (0, 0, ""),
        (5, None, ""),
    ],
)
def test_progress_is_what_is_done_of_all(
    handed_over: int, in_store: int | None, percent: str
) -> None:
    """All is all: 100 only then; what is not known has no number and no bar."""
    found = card({"handed_over": handed_over}, in_store=in_store)
    assert found.percent == percent
    assert bool(found.pieces) is bool(percent and handed_over)


def test_rows_that_went_back_are_counted_once() -> None:
    """In the table, where they are."""
    found = card({"handed_over": 50, "released": 900, "recalled": 50}, in_store=950)
    assert found.percent == "5.0 %"


def test_an_endpoint_that_sends_has_no_end() -> None:
    """And cannot be paused: its timeouts would be late."""
    found = card({"dispatched": 7}, in_store=3, mode="dispatch")
    assert (found.percent, found.can_wait) == ("", False)
    assert list(found.counts) == [("sent when due", 7), ("in the table", 3)]
    assert found.pace == "50/s"


@pytest.mark.parametrize(
    ("given", "pace"),
    [
        ({}, "50/s, about 1.7 minutes to go"),
        ({"eta_s": 0.2}, "50/s, less than a second to go"),
        ({"rate_per_s": None}, "too soon to say how fast"),
        ({"rate_per_s": 0.0, "eta_s": None}, "0/s, nobody can tell how long it takes"),
        ({"rate_per_s": 0.25, "eta_s": 4e4}, "0.2/s, about 11 hours to go"),
        ({"holds": (hold(Signal.ALARM),)}, "50/s, waiting"),
    ],
)
def test_the_pace_is_told_as_far_as_it_is_known(given: dict[str, object], pace: str) -> None:
    """Nothing is promised that nobody can know."""
    assert card({}, in_store=5000, **given).pace == pace  # type: ignore[arg-type]  # as its signature has it


def test_only_its_own_pause_is_lifted_from_a_card() -> None:
    """What holds all endpoints is told, and lifted, at the top."""
    own, of_all = hold(Signal.PAUSED, SALES), hold(Signal.PAUSED)
    assert card({}, in_store=1, holds=(own,)).is_paused
    found = card({}, in_store=1, holds=(of_all,))
    assert (found.is_paused, found.waits) == (False, [])


def test_a_level_that_nobody_could_look_at_is_not_empty() -> None:
    """Nor is one that does not exist."""
    steps = [
        LevelDepth(level=3, ready=5, unacknowledged=0, held=40),
        LevelDepth(level=2, ready=0, unacknowledged=0, held=0),
        LevelDepth(level=1, ready=None),
    ]
    found = looked(replace(some_snapshot(), ladder=build_level_depths(DelaysVersion.V2, steps)))
    counts = {rung.label: rung.count for rung in found.rungs}
    assert len(counts) == 28
    assert [counts[level] for level in ("03", "02", "01", "00")] == [45, 0, None, None]
    assert found.frozen_levels == ["03"]
    assert "nsb.v2.delay-level-00" in found.missing_levels
    assert looked(replace(some_snapshot(), ladder=None)).rungs == ()


def test_events_are_told_in_a_line() -> None:
    """A command by its answer, others by their facts; none is too long for a page."""

    def text(detail: dict[str, object], kind: str = "command") -> str:
        event = AuditEvent(
            id=1, at=NOW, kind=kind, batch=None, endpoint=None, actor="app1", detail=detail
        )
        (line,) = looked(replace(some_snapshot(), events=[event])).events
        return line.text

    told: dict[str, object] = {
        "command": "pause",
        "who": "alice",
        "endpoint": None,
        "answer": "Sales is paused",
    }
    assert text(told) == "pause: Sales is paused (by alice)"
    assert text({"signal": "veto", "limit": ""}, "hold_began") == "signal: veto"
    assert len(text({"x": "y" * 5000})) < 400


def test_an_old_look_is_called_old() -> None:
    """So that nobody takes it for the present."""
    assert not looked(some_snapshot()).is_old
    assert looked(replace(some_snapshot(), age_s=60.0)).is_old


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
