"""When a message that waits in the delays is due, judged from what is found with it.

Its headers say so, but not always truly: delayed retries and the vendor's migration tool keep the
``TimeSent`` of long ago beside a delay that counts from today, and the vendor's own tools then
deliver days early. What cannot lie is the broker: the routing key's bits and the level a message
is found in leave a span of time in which it is due, and ``x-death`` makes that span short. A
header counts only within it. Known lies are always too early, so of several claims the latest
counts, and without any the end of the span: never early, and late by the span at most.
Source: reference ``native-delays.md`` sections 3, 4, 8 and 12; docs/delays.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.routing import DelaysVersion, level_name
from migrator.delays.tagged import Place
from migrator.nservicebus import headers as h
from migrator.nservicebus.wiretime import NotAWireTime, build_wire_time, parse_wire_time, seconds_up
from migrator.rabbitmq.names import PREFIX

RETRIES: Final = "NServiceBus.Retries"
RETRIES_TIMESTAMP: Final = "NServiceBus.Retries.Timestamp"
DEATHS: Final = "x-death"
DROPPED: Final = frozenset(
    {
        DEATHS,
        "x-delivery-count",
        "x-acquired-count",
        *(
            f"x-{which}-death-{what}"
            for which in ("first", "last")
            for what in ("exchange", "queue", "reason")
        ),
    }
)
"""Headers that tell of the way so far; a new way begins."""
TOLERANCE: Final = timedelta(seconds=2)
"""How far a header may lie outside what the broker proves: latencies, and clocks that differ."""
_SECOND: Final = timedelta(seconds=1)
_INT32: Final = range(-(2**31), 2**31)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest:
    """What an operator asked for."""

    verb: str
    """Names the poison queue."""
    source: DelaysVersion
    target: DelaysVersion
    target_url: str | None = None
    """None: the same broker."""
    believe_headers: bool = True
    is_dry: bool = False
    """Only count; everything goes back."""

    @property
    def poison_queue(self) -> str:
        """Where unreadable messages go, on the source."""
        return f"{PREFIX}poison.{self.verb}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From one moment to another, both aware and included."""

    earliest: datetime
    latest: datetime

    @property
    def width(self) -> timedelta:
        """Messages whose outcome is unknown."""
        return self.latest - self.earliest

    def near(self, moment: datetime) -> bool:
        """Return whether *moment* lies in the span or hardly outside."""
        return self.earliest - TOLERANCE <= moment <= self.latest + TOLERANCE

    def clamp(self, moment: datetime) -> datetime:
        """Return the moment of the span that is nearest to *moment*."""
        return min(max(moment, self.earliest), self.latest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """When a message is to be delivered."""

    at: datetime
    """Aware, UTC; never before the true moment."""
    uncertainty: timedelta = timedelta(0)
    """It may be late by so much; zero where a header could be believed."""

    @property
    def is_proved(self) -> bool:
        """Whether the broker's own facts were needed, for want of a credible header."""
        return bool(self.uncertainty)


def due_of(
    headers: Mapping[str, object],
    place: Place,
    *,
    seen_at: datetime,
    has_our_clock: bool = True,
    believe_headers: bool = True,
) -> Due:
    """Return when a message is due.

    Args:
        headers: Its own, as AMQP values; nothing in them can be trusted.
        place: Where it was found.
        seen_at: Aware, UTC: when the broker delivered it to us.
        has_our_clock: Whether the broker's clock is that of *seen_at*; if not, its times prove
            nothing.
        believe_headers: False: only what the broker proves counts, whatever the headers say.
    """
    entered_at = _entered_at(headers, place) if has_our_clock else None
    span = proved_span(place, seen_at=seen_at, entered_at=entered_at)
    claims = _claims(headers, place.delay_s) if believe_headers else ()
    claimed = [claim for claim in claims if span.near(claim)]
    if claimed:
        return Due(at=span.clamp(max(claimed)))
    return Due(at=span.latest, uncertainty=span.width)


# ── what the broker proves ──────────────────────────────────────────────────────────────────────


def proved_span(place: Place, *, seen_at: datetime, entered_at: datetime | None) -> Span:
    """Return when a message is due by where it is, and by when it came there if that is known."""
    level, delay_s, _ = place
    by_key = key_span(level, delay_s, seen_at=seen_at)
    if entered_at is None:
        return by_key
    rest = timedelta(seconds=2**level + lower_s(level, delay_s))
    # the broker writes whole seconds, cut off: it came within the second that began then
    by_time = Span(earliest=entered_at + rest, latest=entered_at + _SECOND + rest)
    return narrowed(by_key, by_time)


def lower_s(level: int, delay_s: int) -> int:
    """Return the seconds that a message still waits once it has left *level*."""
    return delay_s & ((1 << level) - 1)


def key_span(level: int, delay_s: int, *, seen_at: datetime) -> Span:
    """Return when a message is due that was seen in *level*, by its routing key alone.

    It leaves the level now at the earliest, and after the level's whole time at the latest; then
    it waits for the lower bits.
    """
    earliest = seen_at + timedelta(seconds=lower_s(level, delay_s))
    return Span(earliest=earliest, latest=earliest + timedelta(seconds=2**level))


def narrowed(span: Span, by: Span) -> Span:
    """Return the part of *span* that *by* leaves; *span* where the two contradict each other.

    A contradiction means clocks that differ, or a header that another journey left behind.
    """
    if not (span.near(by.earliest) or span.near(by.latest)):
        return span
    return Span(earliest=span.clamp(by.earliest), latest=span.clamp(by.latest))


def last_passed(level: int, delay_s: int) -> int | None:
    """Return the level that a message found in *level* has left last; None: it began here."""
    higher = delay_s >> level + 1
    if not higher:
        return None
    return level + (higher & -higher).bit_length()


def _entered_at(headers: Mapping[str, object], place: Place) -> datetime | None:
    """Return the beginning of the second in which the message left the level before.

    Only a single death in that queue counts: two mean that one of them was on another journey.
    """
    passed = last_passed(place.level, place.delay_s)
    deaths = headers.get(DEATHS)
    if passed is None or not isinstance(deaths, list):
        return None
    queue = level_name(place.version, passed)
    there = [d for d in deaths if isinstance(d, dict) and d.get("queue") == queue]
    if len(there) != 1 or there[0].get("count") != 1:
        return None
    moment = there[0].get("time")
    return moment if isinstance(moment, datetime) and moment.tzinfo is not None else None


# ── what the headers claim ──────────────────────────────────────────────────────────────────────


def _claims(found: Mapping[str, object], delay_s: int) -> Iterator[datetime]:
    """Yield when the message is due by its headers, as far as they can be meant so.

    A header delay that is not that of the routing key was written for the sake of the sum (by
    migrator, or before the vendor's tools moved it). One that is counts from the publishing, and
    ``TimeSent`` tells when that was, but not for a retry, nor for a timeout from a store.
    """
    header_s = _int32(found.get(h.DELAY_IN_SECONDS))
    counts_from_publishing = header_s in (None, delay_s)
    is_retry = RETRIES in found
    if counts_from_publishing and is_retry:
        yield from _sum(_moment(found.get(RETRIES_TIMESTAMP)), delay_s)
        return
    if not counts_from_publishing or h.EXPIRE not in found:
        yield from _sum(_moment(found.get(h.TIME_SENT)), header_s)
    if not is_retry:
        yield from _sum(_moment(found.get(h.EXPIRE)), 0)
        yield from _sum(_moment(found.get(h.DELIVER_AT)), 0)


def _sum(moment: datetime | None, delay_s: int | None) -> Iterator[datetime]:
    if moment is None or delay_s is None:
        return
    try:
        yield moment + timedelta(seconds=delay_s)
    except OverflowError:  # beyond the calendar, and so beyond any level
        return


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_wire_time(value)
    except NotAWireTime:
        return None


def _int32(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value in _INT32 else None


# ── what is written ─────────────────────────────────────────────────────────────────────────────


def new_headers(
    headers: Mapping[str, object], due_at: datetime, *, delay_s: int
) -> dict[str, str | int]:
    """Return the headers to be set so that ``TimeSent`` + ``DelayInSeconds`` is *due_at*.

    Args:
        headers: As the message has them; ``TimeSent`` stays where it can.
        due_at: Aware, UTC.
        delay_s: What its new routing key says. Where ``TimeSent`` is unusable, the header delay
            is made another, so that the sum is what counts the next time, too.
    """
    sent_at = _moment(headers.get(h.TIME_SENT))
    header_s = None if sent_at is None else _int32(seconds_up(due_at - sent_at))
    if header_s is not None and header_s >= 0:
        return {h.DELAY_IN_SECONDS: header_s}
    header_s = delay_s + 1
    sent_text = build_wire_time(due_at - timedelta(seconds=header_s))
    return {h.TIME_SENT: sent_text, h.DELAY_IN_SECONDS: header_s}
