"""One look at a daemon as the templates show it: words, numbers and the geometry of pictures.

Pure. What is not known stays unknown: no number stands for it, and no bar is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from migrator.delays.depths import LevelDepths
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.report import AuditEvent, EndpointProgress
from migrator.reports import pictures
from migrator.reports.pages import Figure, Tone
from migrator.reports.pictures import Bar, Piece, Share
from migrator.reports.words import REASONS, grouped, span_words
from migrator.web.status import EndpointView, JobView, Liveness, Readiness, Snapshot

SIGNALS: Final[Mapping[Signal, str]] = {
    Signal.PAUSED: "Paused by an operator",
    Signal.WINDOW: "Not the time at which rows may be moved",
    Signal.CLOCK: "The clock of the database jumped",
    Signal.ALARM: "The broker raises an alarm",
    Signal.LEVEL_DEPTH: "The delay levels are full",
    Signal.DESTINATION_DEPTH: "A destination is full",
    Signal.LATENCY: "The database is slow",
    Signal.REPLICA_LAG: "A replica of the database is behind",
    Signal.CHECK: "A check of the broker refuses",
    Signal.VETO: "The veto address says no",
    Signal.TOUCH_FILE: "A file says so",
    Signal.TIME_ZONE: "Due times are of another time zone",
}
"""Why nothing new is claimed."""

MODES: Final[Mapping[str, str]] = {
    "migrate": "moved into the broker's delays",
    "dispatch": "sent when due",
    "forward": "passed on, and moved",
}
"""What becomes of an endpoint's timeouts, by its mode."""


_FEW: Final = 5
"""Of endpoints that are named in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One reason why nothing new is claimed."""

    title: str
    text: str
    since: datetime
    lasts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How it is, in a line."""

    tone: Tone
    title: str
    reasons: Sequence[str] = ()
    waits: Sequence[Wait] = ()


def state_of(snapshot: Snapshot, live: Liveness, ready: Readiness) -> State:
    """Return what is to be said first."""
    waits = [wait_of(hold, snapshot.taken_at) for hold in snapshot.holds if hold.endpoint is None]
    if not live.is_alive:
        silent = [
            f"{name} last went on {span_words(seconds)} ago"
            for name, seconds in sorted(live.silent_s.items(), key=lambda item: -item[1])
        ]
        return State(tone=Tone.BAD, title="Part of it hangs", reasons=silent, waits=waits)
    if not ready.is_ready:
        return _not_ready(list(ready.reasons), waits)
    if waits:
        title = "Paused" if are_all_paused(snapshot) else "Waiting"
        return State(tone=Tone.CARE, title=title, waits=waits)
    if names := sorted({hold.endpoint for hold in snapshot.holds if hold.endpoint is not None}):
        few = ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" * (len(names) > _FEW))
        return State(
            tone=Tone.CARE, title="Running; some endpoints wait", reasons=[f"These wait: {few}"]
        )
    if snapshot.progress.doubtful:
        text = "Of some batches nobody can tell whether the broker has them: see below."
        return State(tone=Tone.CARE, title="Running, with doubts", reasons=[text])
    return State(tone=Tone.GOOD, title="Running")


def are_all_paused(snapshot: Snapshot) -> bool:
    """Return whether an operator has paused everything."""
    return any(h.signal is Signal.PAUSED and h.endpoint is None for h in snapshot.holds)


def _not_ready(reasons: Sequence[str], waits: Sequence[Wait]) -> State:
    if set(reasons) <= {"starting", "ending"}:
        title = "Ending" if "ending" in reasons else "Starting"
        text = "What is claimed is finished; nothing more is claimed."
        told = [text] if "ending" in reasons else []
        return State(tone=Tone.CARE, title=title, reasons=told, waits=waits)
    return State(tone=Tone.BAD, title="Something is wrong", reasons=reasons, waits=waits)


def wait_of(hold: PauseReason, now: datetime) -> Wait:
    """Return one reason, as of *now*."""
    lasts_s = max(0.0, (now - hold.since).total_seconds())
    return Wait(
        title=SIGNALS[hold.signal],
        text=f"{hold.observed} ({hold.limit})" if hold.limit else hold.observed,
        since=hold.since,
        lasts=span_words(lasts_s),
    )


OLD_S: Final = 15.0
"""A look that is older is called old."""
_MIGRATE: Final = "migrate"
_LONGEST_CHARS: Final = 300
"""Of what is told of an event; the ledger has all."""
_FEW_PER_S: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointCard:
    """One endpoint."""

    name: str
    mode: str
    meaning: str
    percent: str
    """How much is done; empty: it is not known, or the work has no end."""
    pieces: Sequence[Piece]
    counts: Sequence[tuple[str, int | None]]
    pace: str
    waits: Sequence[Wait]
    """Of this endpoint alone; those of all are told once."""
    can_wait: bool
    """It may be paused."""
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineLine:
    """Rows of one endpoint that are kept aside for one reason."""

    endpoint: str
    reason: str
    meaning: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One entry of the audit trail."""

    at: datetime
    kind: str
    endpoint: str
    actor: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Everything on the page."""

    snapshot: Snapshot
    is_old: bool
    state: State
    figures: Sequence[Figure]
    endpoints: Sequence[EndpointCard]
    endpoints_legend: Mapping[str, str]
    can_pause_all: bool
    is_anything_paused: bool
    are_all_paused: bool
    rungs: Sequence[Bar]
    rungs_legend: Mapping[str, str]
    missing_levels: Sequence[str]
    frozen_levels: Sequence[str]
    due: Sequence[Bar]
    quarantine: Sequence[QuarantineLine]
    events: Sequence[EventLine]
    jobs: Sequence[JobView]
    """Those that have something to tell."""


def look(snapshot: Snapshot, *, live: Liveness, ready: Readiness) -> Look:
    """Return what the page shows of *snapshot*."""
    now, ladder = snapshot.taken_at, snapshot.ladder
    books = {each.endpoint: each for each in snapshot.progress.endpoints}
    cards = [_card(view, books.get(view.name), now) for view in snapshot.endpoints]
    rungs = () if ladder is None else _rungs(ladder)
    return Look(
        snapshot=snapshot,
        is_old=snapshot.age_s > OLD_S,
        state=state_of(snapshot, live, ready),
        figures=list(_figures(snapshot)),
        endpoints=cards,
        endpoints_legend={
            piece.share.kind: piece.share.label for card in cards for piece in card.pieces
        },
        can_pause_all=any(card.can_wait for card in cards),
        is_anything_paused=any(hold.signal is Signal.PAUSED for hold in snapshot.holds),
        are_all_paused=are_all_paused(snapshot),
        rungs=rungs,
        rungs_legend=pictures.legend(rungs),
        missing_levels=() if ladder is None else ladder.missing,
        frozen_levels=()
        if ladder is None
        else [f"{step.level:02d}" for step in ladder.steps if step.may_freeze],
        due=_due(snapshot.due),
        quarantine=[
            QuarantineLine(
                endpoint=each.endpoint,
                reason=each.reason,
                meaning=REASONS.get(each.reason, ""),
                rows=each.rows,
            )
            for each in snapshot.progress.quarantine
        ],
        events=[_event(each) for each in snapshot.events],
        jobs=[job for job in snapshot.jobs if job.last is not None or job.missed],
    )


# ── numbers that one sees first ─────────────────────────────────────────────────────────────────


def _figures(snapshot: Snapshot) -> Iterator[Figure]:
    names = {view.name for view in snapshot.endpoints}
    books = [each for each in snapshot.progress.endpoints if each.endpoint in names]
    modes = {view.mode for view in snapshot.endpoints}
    moved = [view for view in snapshot.endpoints if view.mode == _MIGRATE]
    if moved or not modes:
        yield Figure(value=sum(each.handed_over for each in books), label="handed over")
    if modes - {_MIGRATE}:
        yield Figure(value=sum(each.dispatched for each in books), label="sent when due")
    stored = _sum(view.in_store for view in snapshot.endpoints)
    yield Figure(value="not known" if stored is None else stored, label="still in the tables")
    rate = _sum(view.rate_per_s for view in snapshot.endpoints)
    yield Figure(value=_rate(rate), label="over the last minute")
    if moved:
        yield Figure(value=_time_left(moved), label="until they are moved")
    aside = sum(each.rows for each in snapshot.progress.quarantine)
    yield Figure(value=aside, label="set aside")
    if doubtful := sum(each.size for each in snapshot.progress.doubtful):
        yield Figure(value=doubtful, label="doubtful")


def _sum(numbers: Iterator[int | None] | Iterator[float | None]) -> int | None:
    found = list(numbers)
    known = [number for number in found if number is not None]
    return round(sum(known)) if len(known) == len(found) else None


def _time_left(moved: Sequence[EndpointView]) -> str:
    """Return how long the endpoint that takes longest will take."""
    if any(view.in_store is None for view in moved):
        return "not known"
    left = [view for view in moved if view.in_store]
    if not left:
        return "nothing is left"
    times = [view.eta_s for view in left if view.eta_s is not None and not view.holds]
    return span_words(max(times)) if len(times) == len(left) else "not known"


def _rate(per_s: float | None) -> str:
    if per_s is None:
        return "not known yet"
    if 0 < per_s < _FEW_PER_S:
        return f"{per_s:.1f}/s"
    return f"{grouped(round(per_s))}/s"


# ── endpoints ───────────────────────────────────────────────────────────────────────────────────


def _card(view: EndpointView, books: EndpointProgress | None, now: datetime) -> EndpointCard:
    shares = _shares(books)
    done = sum(share.count for share in shares if share.kind in {"handed", "sent"})
    whole = sum(share.count for share in shares) + (view.in_store or 0)
    is_known = view.in_store is not None and view.mode == _MIGRATE
    first = "sent" if view.mode == "dispatch" else "handed"
    return EndpointCard(
        name=view.name,
        mode=view.mode,
        meaning=MODES.get(view.mode, ""),
        percent=_percent(done, whole) if is_known and whole else "",
        pieces=pictures.stacked(shares, most=whole) if is_known and whole else (),
        counts=[
            *((share.label, share.count) for share in shares if share.count or share.kind == first),
            ("in the table", view.in_store),
        ],
        pace=_pace(view),
        waits=[wait_of(hold, now) for hold in view.holds if hold.endpoint is not None],
        can_wait=view.mode == _MIGRATE,
        is_paused=any(
            hold.signal is Signal.PAUSED and hold.endpoint == view.name for hold in view.holds
        ),
    )


def _shares(books: EndpointProgress | None) -> Sequence[Share]:
    """Return what the ledger has; what went back into the table is counted there."""
    if books is None:
        return ()
    return (
        Share(kind="handed", label="handed over", count=books.handed_over),
        Share(kind="sent", label="sent when due", count=books.dispatched),
        Share(kind="flight", label="in flight", count=books.in_flight),
        Share(kind="aside", label="set aside", count=books.quarantined),
        Share(kind="bad", label="doubtful", count=books.doubtful),
    )


def _percent(done: int, whole: int) -> str:
    """Return how much is done; 100 only when all is."""
    tenths = done * 1000 // whole
    return f"{tenths // 10}.{tenths % 10} %" if 0 < tenths < 1000 else f"{tenths // 10} %"


def _pace(view: EndpointView) -> str:
    if view.rate_per_s is None:
        return "too soon to say how fast"
    rate = _rate(view.rate_per_s)
    if view.mode != _MIGRATE:
        return rate
    if view.in_store == 0:
        return "nothing is left in the table"
    if view.holds:
        return f"{rate}, waiting"
    if view.eta_s is None:
        return f"{rate}, nobody can tell how long it takes"
    about = "about " if view.eta_s >= 1 else ""
    return f"{rate}, {about}{span_words(view.eta_s)} to go"


# ── the delays, due times, events ───────────────────────────────────────────────────────────────


def _rungs(ladder: LevelDepths) -> Sequence[Bar]:
    shares = {
        step.level: (
            Share(kind="handed", label="waiting", count=step.ready or 0),
            Share(kind="flight", label="being consumed", count=step.unacknowledged or 0),
            Share(kind="aside", label="expired, and not yet passed on", count=step.held or 0),
        )
        for step in ladder.steps
    }
    counts = {
        step.level: None if step.ready is None or not step.exists else step.known
        for step in ladder.steps
    }
    return pictures.ladder(shares, counts=counts)


def _due(spans: Sequence[tuple[str, int]]) -> Sequence[Bar]:
    return pictures.bars(
        (span, [Share(kind="near" if span == "overdue" else "handed", label=span, count=rows)])
        for span, rows in spans
    )


def _event(event: AuditEvent) -> EventLine:
    facts = {key: value for key, value in event.detail.items() if value not in (None, "")}
    named = facts.pop("endpoint", "")
    said = facts.pop("answer", None)
    text = ", ".join(f"{key}: {value}" for key, value in facts.items())
    if said is not None:
        text = f"{facts.pop('command', '')}: {said} (by {facts.pop('who', event.actor)})"
    if event.batch is not None:
        text = f"batch {event.batch}" + (f"; {text}" if text else "")
    return EventLine(
        at=event.at,
        kind=event.kind.replace("_", " "),
        endpoint=event.endpoint or str(named),
        actor=event.actor,
        text=text if len(text) <= _LONGEST_CHARS else f"{text[:_LONGEST_CHARS]}…",
    )
