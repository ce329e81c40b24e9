"""Tests of ``migrator.web.status_page`` and ``views``: a look at a daemon in words and in HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from jinja2 import UndefinedError

from migrator.delays.depths import LevelDepth, build_level_depths
from migrator.delays.routing import DelaysVersion
from migrator.ledger.report import EndpointProgress, QuarantineCount, QuarantineFilter
from migrator.nservicebus.timeouts import EndpointName
from migrator.reports.pages import Tone
from migrator.status.remaining import Phase, Remaining, finished_text
from migrator.status.snapshot import EndpointView, Snapshot
from migrator.throttle.reasons import PauseReason, Signal
from migrator.web.auth import Session
from migrator.web.control import Liveness, QuarantinePage, Readiness
from migrator.web.status_page import asset, build, render
from migrator.web.views import MODES, EndpointCard, State, look, matrix, state_of
from tests.support.panel import NASTY, NOW, SALES, hold, some_remaining, some_snapshot

ALIVE = Liveness(silent_s={"lane-worker-0": 0.5}, is_alive=True)
READY = Readiness(is_ready=True, reasons=())


def looked(**changes: Any) -> Mapping[str, Any]:
    """Return the look at a daemon that is well."""
    return look(replace(some_snapshot(), **changes), live=ALIVE, ready=READY)


def state(*holds: PauseReason, live: Liveness = ALIVE, ready: Readiness = READY) -> State:
    """Return how a daemon is that nothing but *holds* keeps from its work."""
    return state_of(calm(holds=holds), live, ready)


def calm(**changes: Any) -> Snapshot:
    """Return a look at a daemon that nothing keeps from its work, but for *changes*."""
    snapshot = some_snapshot()
    return replace(
        snapshot, **{"progress": replace(snapshot.progress, doubtful=(), held=()), **changes}
    )


def holding(*, rows: int = 40, **changes: Any) -> Snapshot:
    """Return a look at a daemon whose only endpoint has rows for a queue that is not there."""
    snapshot = some_snapshot()
    (one, _), (held,) = snapshot.endpoints, snapshot.progress.held
    given = {"phase": Phase.WAITING, "rate_per_s": 0.0, "remaining": some_remaining(0)}
    view = replace(one, **{**given, **changes})
    progress = replace(snapshot.progress, doubtful=(), held=[replace(held, rows=rows)])
    return calm(progress=progress, endpoints=[view])


def unready(*reasons: str) -> State:
    """Return how a daemon is that does not work."""
    return state(ready=Readiness(is_ready=False, reasons=reasons))


def card(rows: dict[str, int], **changes: Any) -> EndpointCard:
    """Return the card of one endpoint, whose ledger has *rows*."""
    view = EndpointView(
        endpoint=SALES,
        mode="migrate",
        phase=Phase.MOVING,
        remaining=some_remaining(),
        rate_per_s=50.0,
        holds=(),
    )
    endpoints = [EndpointProgress(endpoint=SALES, rows=rows)]
    progress = replace(some_snapshot().progress, endpoints=endpoints)
    found: EndpointCard
    (found,) = looked(endpoints=[replace(view, **changes)], progress=progress)["endpoints"]
    return found


def test_every_mode_has_words() -> None:
    """And no words are about a mode that is gone."""
    assert set(MODES) == {"migrate", "dispatch", "forward"}


@pytest.mark.parametrize(
    ("found", "tone", "title"),
    [
        (state(), Tone.GOOD, "Running"),
        (
            state_of(some_snapshot(), ALIVE, READY),
            Tone.CARE,
            "Running, with doubtful batches; 40 rows are parked for a destination",
        ),
        (state(hold(Signal.PAUSED)), Tone.CARE, "Paused"),
        (state(hold(Signal.ALARM)), Tone.CARE, "Waiting"),
        (state(hold(Signal.ALARM), hold(Signal.PAUSED)), Tone.CARE, "Paused"),
        (state(hold(Signal.PAUSED, SALES)), Tone.CARE, "Running; some endpoints wait"),
        (unready("starting"), Tone.CARE, "Starting"),
        (unready("ending"), Tone.CARE, "Ending"),
        (unready("ending", "x"), Tone.BAD, "Something is wrong"),
        (state(live=Liveness(silent_s={"a": 400.0}, is_alive=False)), Tone.BAD, "Part of it hangs"),
    ],
)
def test_what_matters_most_is_said_first(found: State, tone: Tone, title: str) -> None:
    """In a word or two, and in a colour."""
    assert (found.tone, found.title) == (tone, title)


@pytest.mark.parametrize(
    ("snapshot", "title", "reason"),
    [
        (
            holding(),
            "Running; 40 rows are parked for a destination",
            "Takes no messages: Billing",
        ),
        (holding(rows=1), "Running; 1 row is parked for a destination", ""),
        (
            holding(phase=Phase.MOVING, rate_per_s=3.0),
            "Running; 40 rows are parked for a destination",
            "",
        ),
        (
            holding(holds=[hold(Signal.ALARM, SALES)], remaining=None),
            "Running; 40 rows are parked for a destination",
            "",
        ),
        (
            holding(remaining=some_remaining(0, left=863, overdue=800)),
            "Running; 40 rows are parked for a destination; 800 rows remain and have no sender",
            "Sales: 863 are left to the timeout manager (cutoff 1m): 800 overdue, and nothing "
            "consumes `Sales.TimeoutsDispatcher`: run with `--cutoff 0s`",
        ),
        (
            calm(endpoints=[replace(calm().endpoints[0], phase=Phase.WAITING)]),
            "Running; some endpoints wait",
            "Waiting: Sales",
        ),
        (calm(age_s=90.4), "Running; these numbers are 90 s old", ""),
        (
            replace(holding(), age_s=61.0, holds=[hold(Signal.PAUSED, NASTY)]),
            "Running; these numbers are 61 s old; some endpoints wait; 40 rows are parked for "
            "a destination",
            f"Waiting: {NASTY}",
        ),
    ],
)
def test_the_headline_is_no_good_one_while_rows_need_somebody(
    snapshot: Snapshot, title: str, reason: str
) -> None:
    """It says what needs somebody, and below what that is about."""
    found = state_of(snapshot, ALIVE, READY)
    assert (found.tone, found.title) == (Tone.CARE, title)
    assert not reason or reason in found.reasons


@pytest.mark.parametrize(
    "snapshot",
    [
        calm(),
        calm(age_s=15.0),
        holding(rows=0, phase=Phase.FINISHED),
        replace(holding(), endpoints=calm().endpoints[1:]),  # somebody else's
        holding(rows=0),
    ],
)
def test_the_headline_is_a_good_one_while_nothing_needs_anybody(snapshot: Snapshot) -> None:
    """What is held of others, or without a row, is nothing to be told first."""
    assert state_of(snapshot, ALIVE, READY).tone is Tone.GOOD


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
    remaining = None if in_store is None else some_remaining(in_store)
    found = card({"handed_over": handed_over}, remaining=remaining)
    assert found.percent == percent
    assert bool(found.pieces) is bool(percent and handed_over)


def test_rows_that_went_back_are_counted_once() -> None:
    """In the table, where they are."""
    found = card(
        {"handed_over": 50, "released": 900, "recalled": 50}, remaining=some_remaining(950)
    )
    assert found.percent == "5 %"


def test_an_endpoint_that_sends_has_no_end() -> None:
    """And cannot be paused: its timeouts would be late."""
    found = card({"dispatched": 7}, remaining=some_remaining(3), phase=None, mode="dispatch")
    assert (found.percent, found.can_wait, found.pace) == ("", False, "50/s")
    assert list(found.counts) == [("sent when due", 7), ("in the table", 3)]


@pytest.mark.parametrize(
    ("given", "pace"),
    [
        ({}, "50/s, about 1.7 minutes to go"),
        ({"remaining": some_remaining(10)}, "50/s, less than a second to go"),
        ({"rate_per_s": None}, "too soon to say how fast"),
        ({"rate_per_s": 0.0}, "0/s, time to go not known"),
        (
            {"rate_per_s": 0.25, "remaining": some_remaining(10_000)},
            "0.2/s, about 11 hours to go",
        ),
        ({"holds": (hold(Signal.ALARM),)}, "50/s, waiting"),
    ],
)
def test_the_pace_is_told_as_far_as_it_is_known(given: dict[str, Any], pace: str) -> None:
    """Nothing is promised that nobody can know."""
    assert card({}, **given).pace == pace


@pytest.mark.parametrize(
    ("remaining", "aside", "tone", "title"),
    [
        (some_remaining(0), 0, Tone.GOOD, "Finished"),
        (some_remaining(0, left=863), 0, Tone.GOOD, "Finished"),
        (some_remaining(0), 1, Tone.CARE, "Finished; 1 row is in quarantine"),
        (
            some_remaining(0, left=863, overdue=863),
            0,
            Tone.CARE,
            "Finished; 863 rows remain and have no sender",
        ),
        (
            some_remaining(0, left=1, overdue=1),
            2,
            Tone.CARE,
            "Finished; 2 rows are in quarantine; 1 row remains and has no sender",
        ),
    ],
)
def test_finished_is_said_first_with_what_is_left(
    remaining: Remaining, aside: int, tone: Tone, title: str
) -> None:
    """In amber while rows are overdue that nobody sends; not while anything else is to be said."""
    snapshot = calm()
    moved = EndpointProgress(endpoint=SALES, rows={"handed_over": 57_833, "quarantined": aside})
    (one, other) = snapshot.endpoints
    done = replace(
        snapshot,
        progress=replace(snapshot.progress, endpoints=[moved]),
        endpoints=[replace(one, phase=Phase.FINISHED, remaining=remaining), other],
    )
    found = state_of(done, ALIVE, READY)
    assert (found.tone, found.title) == (tone, title)
    assert list(found.reasons) == [finished_text(moved, remaining)]
    moving = replace(done, endpoints=[*done.endpoints, replace(one, endpoint=NASTY)])
    found = state_of(moving, ALIVE, READY)
    assert found.title.startswith("Running")
    # whoever reads it while others go on is told of rows that nobody sends as well
    assert (found.tone is Tone.CARE) is bool(remaining.unattended)
    assert ("no sender" in found.title) is bool(remaining.unattended)
    paused = replace(done, holds=[hold(Signal.PAUSED)])
    assert state_of(paused, ALIVE, READY).title == "Paused"


def test_a_finished_endpoint_says_in_its_card_what_is_left() -> None:
    """As the terminal does, marked while it needs somebody; nothing while it moves rows."""
    left = some_remaining(0, left=863, overdue=863)
    found = card({"handed_over": 57_833}, phase=Phase.FINISHED, remaining=left)
    assert found.finished == (
        "Done: 57 833 moved. 863 are left to the timeout manager (cutoff 1m): all overdue, and "
        "nothing consumes `Sales.TimeoutsDispatcher`: run with `--cutoff 0s`"
    )
    assert found.needs_attention
    good = card({"handed_over": 5}, phase=Phase.FINISHED, remaining=some_remaining(0))
    assert (good.finished, good.needs_attention) == ("Done: 5 moved.", False)
    assert card({"handed_over": 5}, remaining=left).finished == ""
    assert card({}, phase=Phase.FINISHED, remaining=None).finished == ""
    for remaining, kind in ((left, "warning"), (some_remaining(0), "finished")):
        view = replace(calm().endpoints[0], phase=Phase.FINISHED, remaining=remaining)
        assert f'<p class="{kind}">Done: 90 moved.' in overview(calm(endpoints=[view]))


def test_only_its_own_pause_is_lifted_from_a_card() -> None:
    """What holds all endpoints is told, and lifted, at the top."""
    own, of_all = hold(Signal.PAUSED, SALES), hold(Signal.PAUSED)
    assert card({}, holds=(own,)).is_paused
    found = card({}, holds=(of_all,))
    assert (found.is_paused, found.waits) == (False, [])


def test_a_level_that_nobody_could_look_at_is_not_empty() -> None:
    """Nor is one that does not exist."""
    steps = [
        LevelDepth(level=3, ready=5, unacknowledged=0, held=40),
        LevelDepth(level=2, ready=0, unacknowledged=0, held=0),
        LevelDepth(level=1, ready=None),
    ]
    found = looked(levels=build_level_depths(DelaysVersion.V2, steps))
    counts = {each.label: each.count for each in found["levels"]}
    assert len(counts) == 28
    assert [counts[level] for level in ("03", "02", "01", "00")] == [45, 0, None, None]
    assert found["frozen_levels"] == ["03"]
    assert looked(levels=None)["levels"] == ()


def test_the_quarantine_is_a_table_with_sums() -> None:
    """Of each endpoint and reason, also where there are none."""
    counts = [
        QuarantineCount(endpoint=EndpointName(name), reason=reason, rows=rows)
        for name, reason, rows in (("A", "x", 3), ("B", "x", 1), ("B", "y", 5))
    ]
    found = matrix(counts)
    assert list(found.reasons) == ["x", "y"]
    assert list(found.rows) == [("A", [3, 0], 3), ("B", [1, 5], 6)]
    assert (list(found.sums), found.total) == ([4, 5], 9)
    assert matrix([]).total == 0


def test_all_endpoints_together_have_a_bar() -> None:
    """As soon as all are counted; what others send does not count."""
    (one, other) = some_snapshot().endpoints
    found = looked(endpoints=[one, other])["overall"]
    assert (found.moved, found.whole) == (97, 90 + 7 + 4 + 10 + 5000)
    assert found.percent == "1.8 %"
    uncounted = replace(one, endpoint=NASTY, remaining=None)
    assert looked(endpoints=[one, uncounted])["overall"] is None
    left = replace(one, endpoint=NASTY, remaining=some_remaining(0, left=5))
    assert looked(endpoints=[left])["overall"] is None


def test_the_last_hour_is_drawn_as_far_as_it_is_known() -> None:
    """A minute that nobody saw is no minute without rows."""
    found = looked(throughput=[None, 0.0, 50.0, 100.0])["throughput"]
    assert list(found.bars) == [(25.0, 0.0), (50.0, 50.0), (75.0, 100.0)]
    assert (found.most, found.first) == ("100/s", "4 minutes ago")
    assert looked(throughput=[None, None])["throughput"] is None


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; drop table x; --",
    "{{ 7 * 7 }} {% raw %}",
    "</section></main>",
    "a\u202eb\x00c",
]


def overview(snapshot: Snapshot, who: str = "alice") -> str:
    """Return the page that somebody sees who is logged in."""
    values = {
        "build": build(),
        "session": Session(name=who, until_s=0.0),
        "has_login": True,
        "told": None,
        "look": look(snapshot, live=ALIVE, ready=READY),
    }
    return render("overview.html", values)


def about(name: str) -> str:
    """Return a page about an endpoint, holds, events and gaps that are all called *name*."""
    endpoint = EndpointName(name)
    own = replace(hold(Signal.PAUSED, endpoint), observed=name)
    of_all = replace(hold(Signal.HTTP), observed=name)
    snapshot = some_snapshot(holds=[own, of_all])
    progress = snapshot.progress
    named = replace(
        snapshot,
        owner=name,
        endpoints=[replace(each, endpoint=endpoint) for each in snapshot.endpoints],
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
    return overview(named, who=name)


class Reader(HTMLParser):
    """Collects tags with the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_changes_the_page(name: str) -> None:
    """Tags and attributes are those of a page about nice names."""
    text = about(name)
    assert Reader(text).tags == Reader(about("Sales")).tags
    assert "\u202e" not in text
    assert "\x00" not in text


def test_endpoints_that_differ_in_case_alone_can_both_be_chosen() -> None:
    """They are two, each with rows of its own."""
    (count,) = some_snapshot().progress.quarantine
    counts = [replace(count, endpoint=EndpointName(name)) for name in ("sales", "Sales", "sales")]
    values = {
        "build": "x",
        "session": Session(name="alice", until_s=0),
        "told": None,
        "has_login": True,
        "which": QuarantineFilter(),
        "found": QuarantinePage(),
        "counts": counts,
        "total": 9,
        "next_page": "",
        "first_page": "",
    }
    page = render("quarantine.html", values)
    assert re.findall(r"<option>([Ss]ales)</option>", page) == ["Sales", "sales"]


def test_the_page_is_within_its_own_policy() -> None:
    """No style or script in the text, nothing of another site; each part has a name of its own."""
    page = about("Sales")
    for tag, attributes in Reader(page).tags:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert tag not in {"style", "iframe", "object", "base"}
    assert not re.search(r"https?:|javascript:", page)
    for name in ("style.css", "script.js"):
        assert not re.search(rb"https?:|url\(|@import|innerHTML|eval\(", asset(name))
    parts = re.findall(r'data-part="([^"]+)"', page)  # by which the script finds what has changed
    assert len(parts) == len(set(parts)) > 8


@pytest.mark.parametrize(
    ("since", "limit", "told"),
    [
        (-2, "at most 9", "The delay levels are full: what was seen (at most 9) since"),
        (-2, "", "for 2 hours"),
        (1, "", "for less than a second"),  # a clock that is a little ahead
    ],
)
def test_a_reason_to_wait_says_what_was_seen_and_for_how_long(
    since: int, limit: str, told: str
) -> None:
    """Whether it concerns an endpoint or all of them."""
    reason = replace(hold(Signal.LEVEL_DEPTH), since=NOW + timedelta(hours=since), limit=limit)
    for each in (reason, replace(reason, endpoint=SALES)):
        text = html.unescape(re.sub("<[^>]+>", "", overview(some_snapshot(holds=[each]))))
        assert told in " ".join(text.split())


def test_an_old_look_is_called_old() -> None:
    """So that nobody takes it for the present; and what is missing is an error, no empty place."""
    assert "this is 60 s old" in overview(replace(some_snapshot(), age_s=60.0))
    assert " s old" not in overview(some_snapshot())
    with pytest.raises(UndefinedError):
        render("overview.html", {"build": build()})
