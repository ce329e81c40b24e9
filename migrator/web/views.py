"""One look at a daemon as the templates show it: words, numbers and the geometry of pictures.

Pure. What is not known stays unknown: no number stands for it, and no bar is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from migrator.delays.depths import LevelDepths
from migrator.ledger.report import EndpointProgress, HeldDestination, QuarantineCount
from migrator.nservicebus.timeouts import EndpointName
from migrator.reports import pictures
from migrator.reports.pages import Tone
from migrator.reports.pictures import Bar, Piece, Share
from migrator.status.remaining import Phase, finished_text, left_text, needs_attention, percentage
from migrator.status.snapshot import EndpointView, Snapshot
from migrator.text import about, counted, grouped, listed, span_words
from migrator.throttle.reasons import LASTING, PauseReason, Signal
from migrator.web.control import Liveness, Readiness

MODES: Final[Mapping[str, str]] = {
    "migrate": "moved into the broker's delays",
    "dispatch": "sent when due",
    "forward": "forwarded, and moved",
}
"""What becomes of an endpoint's timeouts, by its mode."""

OLD_S: Final = 15.0
"""A look that is older is called old."""
TOO_OLD_S: Final = 60.0
"""An older one needs an operator: a ledger that takes a second to read is read every 20."""
_FEW: Final = 5
"""Of endpoints that are named in a line."""
_MIGRATE: Final = "migrate"
_FEW_PER_S: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How it is, in a line; the reasons to wait of all endpoints are told as well."""

    tone: Tone
    title: str
    reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointCard:
    """One endpoint."""

    view: EndpointView
    percent: str
    """How much is done; empty: it is not known, or the work has no end."""
    pieces: Sequence[Piece]
    counts: Sequence[tuple[str, int | None]]
    pace: str
    waits: Sequence[PauseReason]
    """Of this endpoint alone; those of all are told once."""
    finished: str
    """What it has done, and what is left; empty: it is not finished."""
    needs_attention: bool
    """It is finished, and rows remain that have no sender."""

    @property
    def can_wait(self) -> bool:
        """Whether it may be paused."""
        return self.view.mode == _MIGRATE

    @property
    def is_paused(self) -> bool:
        """Whether it is, alone."""
        return any(hold.signal in LASTING for hold in self.waits)


def look(snapshot: Snapshot, *, live: Liveness, ready: Readiness) -> Mapping[str, object]:
    """Return what the page shows of *snapshot*, by the names its template has for it."""
    depths = snapshot.levels
    progress = {each.endpoint: each for each in snapshot.progress.endpoints}
    cards = [_card(view, progress.get(view.endpoint)) for view in snapshot.endpoints]
    levels = () if depths is None else _levels(depths)
    paused = [hold.endpoint for hold in snapshot.holds if hold.signal in LASTING]
    return {
        "snapshot": snapshot,
        "is_old": snapshot.age_s > OLD_S,
        "state": state_of(snapshot, live, ready),
        "waits": _of_all(snapshot),
        "figures": list(_figures(snapshot)),
        "endpoints": cards,
        "endpoints_legend": {
            piece.share.kind: piece.share.label for card in cards for piece in card.pieces
        },
        "can_pause_all": any(card.can_wait for card in cards),
        "is_anything_paused": bool(paused),
        "are_all_paused": None in paused,
        "overall": _overall(snapshot, progress),
        "throughput": _throughput(snapshot.throughput),
        "rate_limit": "" if (limit := snapshot.settings.get("rate_limit", "0")) == "0" else limit,
        "levels": levels,
        "busy_levels": [level for level in levels if level.count != 0],
        "levels_legend": pictures.legend(levels),
        "frozen_levels": []
        if depths is None
        else [f"{step.level:02d}" for step in depths.steps if step.may_freeze],
        "due": pictures.bars(
            (span, [Share(kind="near" if span == "overdue" else "handed", label=span, count=rows)])
            for span, rows in snapshot.due
        ),
        "jobs": [job for job in snapshot.jobs if job.last is not None or job.missed],
    }


# ── what is said first ──────────────────────────────────────────────────────────────────────────


def _of_all(snapshot: Snapshot) -> Sequence[PauseReason]:
    return [hold for hold in snapshot.holds if hold.endpoint is None]


def state_of(snapshot: Snapshot, live: Liveness, ready: Readiness) -> State:
    """Return what is to be said first."""
    if not live.is_alive:
        silent = [
            f"{name} last made progress {span_words(seconds)} ago"
            for name, seconds in sorted(live.silent_s.items(), key=lambda item: -item[1])
        ]
        return State(tone=Tone.BAD, title="Part of it hangs", reasons=silent)
    if not ready.is_ready:
        return _not_ready(ready.reasons)
    if waits := _of_all(snapshot):
        is_paused = any(hold.signal is Signal.PAUSED for hold in waits)
        return State(tone=Tone.CARE, title="Paused" if is_paused else "Waiting")
    found = _running(snapshot)
    needs = [*_needs(snapshot)]
    if not needs:
        return found
    said = [need.reason for need in needs if need.reason]
    return State(
        tone=Tone.CARE,
        title="; ".join([found.title, *(need.what for need in needs if need.what)]),
        reasons=[*found.reasons, *said],
    )


def _running(snapshot: Snapshot) -> State:
    """Return how far the work is."""
    if snapshot.progress.doubtful:
        text = "It is not known whether the broker has some batches: see below."
        return State(tone=Tone.CARE, title="Running, with doubtful batches", reasons=[text])
    return _finished(snapshot) or State(tone=Tone.GOOD, title="Running")


def _finished(snapshot: Snapshot) -> State | None:
    """Return what is to be said once nothing is left to move; None: something is."""
    if not _are_all_finished(snapshot):
        return None
    progress = {each.endpoint: each for each in snapshot.progress.endpoints}
    said = [
        (view.endpoint, progress.get(view.endpoint), view.remaining)
        for view in snapshot.endpoints
        if view.phase is not None and view.remaining is not None
    ]
    is_care = any(needs_attention(found, remaining) for _, found, remaining in said)
    names = len(said) > 1
    texts = [
        f"{name}: {finished_text(found, remaining)}" if names else finished_text(found, remaining)
        for name, found, remaining in said
    ]
    more = [f"and {counted(len(texts) - _FEW, 'more endpoint')}"] if len(texts) > _FEW else []
    aside = sum(found.quarantined for _, found, _ in said if found)
    kept = f"; {counted(aside, 'row')} {'is' if aside == 1 else 'are'} in quarantine"
    return State(
        tone=Tone.CARE if is_care else Tone.GOOD,
        title="Finished" + kept * bool(aside),
        reasons=[*texts[:_FEW], *more],
    )


def _are_all_finished(snapshot: Snapshot) -> bool:
    phases = [view.phase for view in snapshot.endpoints if view.phase is not None]
    return bool(phases) and all(phase is Phase.FINISHED for phase in phases)


class _Need(NamedTuple):
    """What keeps the headline from being a good one."""

    what: str
    """For the headline; empty: that has it already."""
    reason: str = ""
    """Below it; empty: the headline says all."""


def _needs(snapshot: Snapshot) -> Iterator[_Need]:
    """Yield what needs an operator."""
    if snapshot.age_s > TOO_OLD_S:
        yield _Need(f"these numbers are {round(snapshot.age_s)} s old")
    if names := sorted(_waiting(snapshot)):
        yield _Need("some endpoints wait", f"Waiting: {listed(names, _FEW)}")
    if held := _held(snapshot):
        queues = sorted({each.destination for each in held})
        what = "a destination" if len(queues) == 1 else counted(len(queues), "destination")
        wait = counted(sum(each.rows for each in held), "row is parked", "rows are parked")
        yield _Need(f"{wait} for {what}", f"Takes no messages: {listed(queues, _FEW)}")
    unattended = [
        (view.endpoint, found)
        for view in snapshot.endpoints
        if view.phase is not None and (found := view.remaining) and found.unattended
    ]
    if rows := sum(found.unattended for _, found in unattended):
        what = "row remains and has no sender"
        yield _Need(counted(rows, what, "rows remain and have no sender"))
    if not _are_all_finished(snapshot):  # else it is said already
        for name, found in unattended[:_FEW]:
            yield _Need("", f"{name}: {left_text(found)}")


def _held(snapshot: Snapshot) -> Sequence[HeldDestination]:
    """Return the destinations that rows of these endpoints wait for."""
    names = {view.endpoint for view in snapshot.endpoints}
    return [each for each in snapshot.progress.held if each.endpoint in names and each.rows]


def _waiting(snapshot: Snapshot) -> set[str]:
    """Return the endpoints of which nothing is claimed, but those that wait for destinations."""
    held = {each.endpoint for each in snapshot.progress.held}
    return {str(hold.endpoint) for hold in snapshot.holds} | {
        str(view.endpoint)
        for view in snapshot.endpoints
        if view.phase is Phase.WAITING and view.endpoint not in held
    }


def _not_ready(reasons: Sequence[str]) -> State:
    if not set(reasons) <= {"starting", "ending"}:
        return State(tone=Tone.BAD, title="Something is wrong", reasons=reasons)
    if "ending" not in reasons:
        return State(tone=Tone.CARE, title="Starting")
    text = "What is claimed is finished; nothing more is claimed."
    return State(tone=Tone.CARE, title="Ending", reasons=[text])


def _figures(snapshot: Snapshot) -> Iterator[tuple[int | str, str]]:
    """Yield the numbers that one sees first, with what they are."""
    names = {view.endpoint for view in snapshot.endpoints}
    known = [each for each in snapshot.progress.endpoints if each.endpoint in names]
    modes = {view.mode for view in snapshot.endpoints}
    moved = [view for view in snapshot.endpoints if view.mode == _MIGRATE]
    if moved or not modes:
        yield sum(each.handed_over for each in known), "handed over"
    if modes - {_MIGRATE}:
        yield sum(each.dispatched for each in known), "sent when due"
    stored = _sum(view.in_store for view in snapshot.endpoints)
    yield "not known" if stored is None else stored, "still in the tables"
    rate = _sum(view.rate_per_s for view in snapshot.endpoints)
    yield _rate(rate), "over the last minute"
    if moved:
        yield _time_left(moved), "until they are moved"
    aside = sum(each.rows for each in snapshot.progress.quarantine)
    yield aside, "in quarantine"
    if doubtful := sum(each.size for each in snapshot.progress.doubtful):
        yield doubtful, "doubtful"


def _sum(numbers: Iterable[float | None]) -> int | None:
    """Return the sum; None: not all are known."""
    sum_ = 0.0
    for number in numbers:
        if number is None:
            return None
        sum_ += number
    return round(sum_)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """All endpoints whose work has an end."""

    percent: str
    pieces: Sequence[Piece]
    moved: int
    whole: int


def _overall(
    snapshot: Snapshot, progress: Mapping[EndpointName, EndpointProgress]
) -> Overall | None:
    """Return how far all endpoints are together; None: it is not known, or none has an end."""
    moved = [view for view in snapshot.endpoints if view.mode == _MIGRATE]
    if not moved or any(view.remaining is None for view in moved):
        return None
    done, whole = 0, 0
    for view in moved:
        shares = _shares(progress.get(view.endpoint))
        found = view.remaining
        done += sum(share.count for share in shares if share.kind in {"handed", "sent"})
        whole += sum(share.count for share in shares)
        whole += found.in_store - found.left if found else 0
    if not whole:
        return None
    tenths = min(done * 1000 // whole, 1000 if done == whole else 999)
    share = Share(kind="handed", label="moved", count=done)
    return Overall(
        percent=f"{tenths / 10:g} %",
        pieces=pictures.stacked([share], most=whole),
        moved=done,
        whole=whole,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The last hour as a picture: of each minute its place and height, 0 to 100."""

    bars: Sequence[tuple[float, float]]
    most: str
    first: str
    """How long ago the picture begins."""


def _throughput(rates: Sequence[float | None]) -> Throughput | None:
    """Return *rates*, a minute each, as a picture; None: nothing is known yet."""
    known = [rate for rate in rates if rate is not None]
    if not known:
        return None
    most, width = max(known), pictures.WHOLE / len(rates)
    bars = [
        (round(at * width, 2), round(pictures.WHOLE * rate / most, 1) if most else 0.0)
        for at, rate in enumerate(rates)
        if rate is not None
    ]
    return Throughput(bars=bars, most=_rate(most), first=f"{counted(len(rates), 'minute')} ago")


# ── endpoints ───────────────────────────────────────────────────────────────────────────────────


def _card(view: EndpointView, progress: EndpointProgress | None) -> EndpointCard:
    shares = _shares(progress)
    left = view.remaining.left if view.remaining else 0
    whole = sum(share.count for share in shares) + (view.in_store or 0) - left
    percent = percentage(progress, view.remaining) if whole and view.mode == _MIGRATE else None
    has_end = percent is not None
    is_finished = view.phase is Phase.FINISHED
    first = "sent" if view.mode == "dispatch" else "handed"
    return EndpointCard(
        view=view,
        percent="" if percent is None else f"{percent:g} %",
        pieces=pictures.stacked(shares, most=whole) if has_end else (),
        counts=[
            *((share.label, share.count) for share in shares if share.count or share.kind == first),
            ("in the table", view.in_store),
            *([("of them handled by the timeout manager", left)] if left else []),
        ],
        pace=_pace(view),
        waits=[hold for hold in view.holds if hold.endpoint is not None],
        finished=finished_text(progress, view.remaining) if is_finished and view.remaining else "",
        needs_attention=is_finished and needs_attention(progress, view.remaining),
    )


def _shares(progress: EndpointProgress | None) -> Sequence[Share]:
    """Return what the ledger has; what went back into the table is counted there."""
    if progress is None:
        return ()
    return (
        Share(kind="handed", label="handed over", count=progress.handed_over),
        Share(kind="sent", label="sent when due", count=progress.dispatched),
        Share(kind="flight", label="in flight", count=progress.in_flight),
        Share(kind="near", label="parked", count=progress.parked),
        Share(kind="aside", label="in quarantine", count=progress.quarantined),
        Share(kind="bad", label="doubtful", count=progress.doubtful),
    )


def _pace(view: EndpointView) -> str:
    if view.rate_per_s is None:
        return "too soon to say how fast"
    rate = _rate(view.rate_per_s)
    if view.mode != _MIGRATE:
        return rate
    if view.phase is Phase.FINISHED or view.in_store == 0:
        return "finished" if view.phase is Phase.FINISHED else "nothing is left in the table"
    if view.holds:
        return f"{rate}, waiting"
    if view.eta_s is None:
        return f"{rate}, time to go not known"
    return f"{rate}, {about(view.eta_s)} to go"


# ── the delays, the quarantine ────────────────────────────────────────────────────────────────────


def _levels(depths: LevelDepths) -> Sequence[Bar]:
    shares = {
        step.level: (
            Share(kind="handed", label="waiting", count=step.ready or 0),
            Share(kind="flight", label="being consumed", count=step.unacknowledged or 0),
            Share(kind="aside", label="expired, and not yet passed on", count=step.held or 0),
        )
        for step in depths.steps
    }
    counts = {
        step.level: None if step.ready is None or not step.exists else step.known
        for step in depths.steps
    }
    return pictures.level_bars(shares, counts=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Rows in quarantine by endpoint and reason."""

    reasons: Sequence[str]
    rows: Sequence[tuple[str, Sequence[int], int]]
    """Endpoint, its rows by reason, and their sum."""
    sums: Sequence[int]
    """By reason."""
    total: int


def matrix(counts: Sequence[QuarantineCount]) -> Matrix:
    """Return *counts* as a table with sums."""
    found = {(each.endpoint, each.reason): each.rows for each in counts}
    reasons = sorted({reason for _, reason in found})
    rows = []
    for endpoint in sorted({endpoint for endpoint, _ in found}):
        line = [found.get((endpoint, reason), 0) for reason in reasons]
        rows.append((str(endpoint), line, sum(line)))
    sums = [sum(line[at] for _, line, _ in rows) for at in range(len(reasons))]
    return Matrix(reasons=reasons, rows=rows, sums=sums, total=sum(sums))
