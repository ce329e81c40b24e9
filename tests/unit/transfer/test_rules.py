"""When a message found in a level is due: never early, whatever its headers say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from migrator.delays.routing import DelaysVersion, delay_s, level_name
from migrator.delays.tagged import Place
from migrator.nservicebus import headers as h
from migrator.nservicebus.timeouts import MAX_DELAY_S
from migrator.nservicebus.wiretime import build_wire_time, parse_wire_time, seconds_up
from migrator.transfer.rules import (
    RETRIES,
    RETRIES_TIMESTAMP,
    TOLERANCE,
    Due,
    due_of,
    key_span,
    last_passed,
    new_headers,
)

V1, V2 = DelaysVersion.V1, DelaysVersion.V2
PUBLISHED = datetime(2026, 3, 1, 8, 0, 0, 123456, tzinfo=UTC)
_NOTHING: dict[str, object] = {}
_DELAYS = st.integers(1, MAX_DELAY_S) | st.integers(1, 600)
_MILLION = 1_000_000
_PART = st.integers(0, _MILLION - 1)
"""How much of a delay is over, in millionths."""
_AGE = st.timedeltas(timedelta(0), timedelta(days=4000))


def after(seconds: float, since: datetime = PUBLISHED) -> datetime:
    """Return a moment."""
    return since + timedelta(seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A message as it was seen in a level."""

    level: int
    delay_s: int
    seen_at: datetime
    headers: dict[str, Any]

    def due(self, **more: Any) -> Due:
        """Return when it is due."""
        place = Place(self.level, self.delay_s)
        return due_of(self.headers, place, seen_at=self.seen_at, **more)


def travelled(whole_s: int, part: int, headers: dict[str, Any], *, deaths: bool = True) -> Seen:
    """Return a message as it is seen when *part* of its delay is over; no level was late."""
    seen_at = PUBLISHED + timedelta(microseconds=whole_s * part)
    entered, passed = PUBLISHED, []
    for level in (n for n in range(27, -1, -1) if whole_s >> n & 1):
        left = after(2**level, entered)
        if seen_at < left:
            break
        time = left.replace(microsecond=0)
        passed.append({"queue": level_name(V2, level), "count": 1, "time": time})
        entered = left
    else:
        pytest.fail("it has left the levels")
    found = headers | ({"x-death": passed[::-1]} if passed and deaths else {})
    return Seen(level=level, delay_s=whole_s, seen_at=seen_at, headers=found)


def said(sent_at: datetime, header_s: int, **more: Any) -> dict[str, Any]:
    """Return the headers that the vendor's tools go by."""
    return {h.TIME_SENT: build_wire_time(sent_at), h.DELAY_IN_SECONDS: header_s} | more


# ── laws ────────────────────────────────────────────────────────────────────────────────────────


@given(_DELAYS, _PART, st.booleans())
def test_an_honest_message_keeps_its_moment(whole_s: int, part: int, deaths: bool) -> None:
    """TimeSent and delay add up to what the broker proves, so they are exactly believed."""
    seen = travelled(whole_s, part, said(PUBLISHED, whole_s), deaths=deaths)
    assert seen.due() == Due(at=after(whole_s))


@given(_DELAYS, _PART, _AGE, st.booleans())
def test_without_belief_nothing_is_early(
    whole_s: int, part: int, age: timedelta, deaths: bool
) -> None:
    """Whatever the headers say: not early, and late by no more than it says."""
    seen = travelled(whole_s, part, said(PUBLISHED - age, whole_s), deaths=deaths)
    due = seen.due(believe_headers=False)
    assert after(whole_s) <= due.at <= after(whole_s) + due.uncertainty
    if deaths and last_passed(seen.level, whole_s) is not None:
        assert due.uncertainty <= timedelta(seconds=1)


@given(_DELAYS, _PART, _AGE)
def test_a_lie_that_the_key_contradicts_is_not_believed(
    whole_s: int, part: int, age: timedelta
) -> None:
    """A TimeSent that is too old by more than the level leaves open never makes it early."""
    seen = travelled(whole_s, part, said(PUBLISHED - age, whole_s))
    lie = after(whole_s) - age
    proved = seen.due(believe_headers=False)
    assume(lie < proved.at - proved.uncertainty - TOLERANCE)
    assert seen.due() == proved
    assert after(whole_s) <= proved.at <= after(whole_s) + proved.uncertainty


@given(_DELAYS, _PART, _AGE, st.timedeltas(timedelta(0), timedelta(seconds=1)))
def test_the_vendor_tools_messages_are_never_early(
    whole_s: int, part: int, age: timedelta, rounded: timedelta
) -> None:
    """They carry an old TimeSent, a delay from today, and the Expire header of the timeout."""
    expire = after(whole_s) - rounded
    headers = said(PUBLISHED - age, whole_s, **{h.EXPIRE: build_wire_time(expire)})
    due = travelled(whole_s, part, headers).due()
    assert due.at >= expire
    assert due.at <= after(whole_s) + due.uncertainty


@given(_DELAYS, _PART, _AGE, st.booleans())
def test_delayed_retries_are_never_early(
    whole_s: int, part: int, age: timedelta, has_timestamp: bool
) -> None:
    """They carry the TimeSent of the original; when they were retried is another header."""
    more = {RETRIES: "1", h.EXPIRE: build_wire_time(PUBLISHED - age)}
    if has_timestamp:
        more[RETRIES_TIMESTAMP] = build_wire_time(PUBLISHED)
    due = travelled(whole_s, part, said(PUBLISHED - age, whole_s, **more)).due()
    assert after(whole_s) <= due.at <= after(whole_s) + due.uncertainty
    assert due.is_proved is not has_timestamp


@given(_DELAYS, _PART, _PART, _AGE, st.sampled_from(["honest", "retry", "tool", "none"]))
def test_moving_twice_adds_nothing(
    whole_s: int, first: int, second: int, age: timedelta, kind: str
) -> None:
    """What was moved once says when it is due; moving it again keeps that moment exactly."""
    headers: dict[str, Any] = {
        "honest": said(PUBLISHED, whole_s),
        "retry": said(PUBLISHED - age, whole_s, **{RETRIES: "1"}),
        "tool": said(PUBLISHED - age, whole_s, **{h.EXPIRE: build_wire_time(after(whole_s))}),
        "none": {RETRIES: "1", RETRIES_TIMESTAMP: "yesterday"},
    }[kind]
    seen = travelled(whole_s, first, headers)
    due_at = seen.due().at
    moved_s = delay_s(due_at, now=seen.seen_at)
    assume(0 < moved_s <= MAX_DELAY_S)
    written = headers | new_headers(headers, due_at, delay_s=moved_s)
    again = travelled(moved_s, second, written, deaths=False)
    shift = seen.seen_at - PUBLISHED
    found = replace(again, seen_at=again.seen_at + shift, headers=written).due().at
    assert due_at <= found < due_at + timedelta(seconds=1)


@given(st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)), _DELAYS)  # noqa: DTZ001  # made aware below
def test_new_headers_add_up_to_the_moment(sent: datetime, whole_s: int) -> None:
    """TimeSent stays where it can; the sum is the due time, rounded up to a second."""
    sent_at = sent.replace(tzinfo=UTC)
    due_at = after(0.5)
    written = new_headers(said(sent_at, 1), due_at, delay_s=whole_s)
    kept = {h.TIME_SENT: build_wire_time(sent_at)} | written
    total = parse_wire_time(str(kept[h.TIME_SENT])) + timedelta(
        seconds=int(written[h.DELAY_IN_SECONDS])
    )
    assert due_at <= total < due_at + timedelta(seconds=1)
    assert (h.TIME_SENT in written) == (sent_at > due_at)


# ── single facts ────────────────────────────────────────────────────────────────────────────────


def test_the_reference_example_is_not_delivered_early() -> None:
    """Sent on January 1, due on the 31st, moved by the vendor's tool on the 21st: not on the 25th.

    Its Expire header tells; and without it, the key alone keeps it from being early.
    """
    moved = datetime(2026, 1, 21, tzinfo=UTC)
    due = datetime(2026, 1, 31, tzinfo=UTC)
    headers = said(datetime(2026, 1, 1, tzinfo=UTC), 864_000)
    seen = Seen(level=19, delay_s=864_000, seen_at=moved + timedelta(days=4), headers=headers)
    told = replace(seen, headers=headers | {h.EXPIRE: build_wire_time(due)})
    assert told.due() == Due(at=due)
    proved = seen.due()
    assert due <= proved.at <= due + proved.uncertainty
    assert seconds_up(proved.uncertainty) == 2**19


def _entering(deaths: object, *, seen_s: float = 10) -> Due:
    """Return when a message of 24 s is due that says it left level 4 by *deaths*."""
    headers = said(PUBLISHED - timedelta(days=1), 24) | {"x-death": deaths}
    seen_at = after(16 + seen_s - 10 + 4)
    return Seen(level=3, delay_s=24, seen_at=seen_at, headers=headers).due()


def _death(**changes: Any) -> dict[str, Any]:
    time = after(16).replace(microsecond=0)
    return {"queue": level_name(V2, 4), "count": 1, "time": time, "reason": "expired"} | changes


def test_the_time_of_entry_narrows_what_the_key_leaves_open() -> None:
    """To the second that the broker wrote."""
    due = _entering([_death(), _death(queue="nsb.v2.delay-level-09")])
    assert due.uncertainty == timedelta(seconds=1)
    assert after(24) <= due.at <= after(25)


@pytest.mark.parametrize(
    "deaths",
    [
        None,
        "x",
        [],
        ["x"],
        [_death(queue=level_name(V1, 4))],
        [_death(count=2)],
        [_death(), _death()],
        [_death(time=None)],
        [_death(time=12)],
        [_death(time=PUBLISHED.replace(tzinfo=None))],
        [_death(time=PUBLISHED - timedelta(days=30))],
        [_death(time=PUBLISHED + timedelta(days=30))],
    ],
)
def test_a_time_of_entry_that_cannot_be_trusted_is_ignored(deaths: object) -> None:
    """Of another queue or another journey, twice, misshapen, or against what the key proves."""
    due = _entering(deaths)
    assert due.uncertainty == timedelta(seconds=8)
    assert due.at == after(16 + 4 + 8)


def test_times_of_another_clock_are_ignored() -> None:
    """The broker's seconds mean nothing where its clock is not ours."""
    headers = said(PUBLISHED - timedelta(days=1), 24) | {"x-death": [_death()]}
    seen = Seen(level=3, delay_s=24, seen_at=after(20), headers=headers)
    assert seen.due(has_our_clock=False) == Due(at=after(28), uncertainty=timedelta(seconds=8))


def test_a_level_that_is_late_costs_no_more() -> None:
    """A message that should have left its level is due as soon as the level lets it go."""
    due = _entering([_death()], seen_s=16)
    assert due == Due(at=after(26))


@pytest.mark.parametrize(
    "headers",
    [
        _NOTHING,
        {h.TIME_SENT: "yesterday", h.DELAY_IN_SECONDS: 24},
        {h.TIME_SENT: build_wire_time(PUBLISHED)},
        {h.TIME_SENT: build_wire_time(PUBLISHED), h.DELAY_IN_SECONDS: True},
        {h.TIME_SENT: build_wire_time(PUBLISHED), h.DELAY_IN_SECONDS: "24"},
        {h.TIME_SENT: build_wire_time(PUBLISHED), h.DELAY_IN_SECONDS: 2**31},
        {h.TIME_SENT: b"\xff", h.DELAY_IN_SECONDS: 24},
        {h.TIME_SENT: "9999-12-31 23:59:59:999999 Z", h.DELAY_IN_SECONDS: 25},
    ],
)
def test_without_usable_headers_the_key_decides(headers: dict[str, object]) -> None:
    """The latest moment that it allows."""
    due = Seen(level=4, delay_s=24, seen_at=after(4), headers=headers).due()
    assert due == Due(at=after(4 + 16 + 8), uncertainty=timedelta(seconds=16))
    assert due.is_proved


def test_of_several_claims_the_latest_counts() -> None:
    """DeliverAt tells of a delay that a too old TimeSent hides."""
    headers = said(PUBLISHED - timedelta(seconds=9), 24)
    headers[h.DELIVER_AT] = build_wire_time(after(23.5))
    due = Seen(level=4, delay_s=24, seen_at=after(2), headers=headers).due()
    assert due == Due(at=after(23.5))


def test_a_sum_that_was_written_on_purpose_is_believed() -> None:
    """Migrator's messages have a header delay of their own, also when they were retried before."""
    headers = said(PUBLISHED - timedelta(days=9), 24 + 9 * 86_400, **{RETRIES: "2"})
    due = Seen(level=4, delay_s=24, seen_at=after(2), headers=headers).due()
    assert due == Due(at=after(24))


def test_a_claim_hardly_outside_is_moved_inside() -> None:
    """Neither earlier than the key allows, nor later."""
    span = key_span(4, 24, seen_at=after(15))
    for sent_s, expected_s in ((-1.5, 23), (16.5, 39)):
        headers = said(after(sent_s), 24)
        seen = Seen(level=4, delay_s=24, seen_at=after(15), headers=headers)
        assert seen.due().at == after(expected_s) == span.clamp(after(sent_s + 24))
