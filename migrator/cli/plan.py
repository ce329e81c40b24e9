"""What ``migrator preview`` tells people of a plan: headline, counts, what would go wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from migrator.cli.findings import STYLES, drawn_findings
from migrator.cli.output import drawn_table
from migrator.config import EndpointMode
from migrator.preflight.context import Level, destination_rows, refusals, verdict
from migrator.preview.report import BEYOND, SHOWN_BURSTS, SPANS, Preview
from migrator.reports.plan import Plan
from migrator.stores.endpoints import EndpointPreview
from migrator.text import about, counted, grouped, rate_words, size_words, span_text, span_words

if TYPE_CHECKING:
    from rich.console import RenderableType

_WORTH_TELLING: Final = timedelta(seconds=1)
_SHOWN_DESTINATIONS: Final = 20
"""More are in the JSON document; those that cannot be reached are all shown."""


def drawn_plan(plan: Plan, *, is_whole: bool) -> Iterator[RenderableType]:
    """Yield the headline, the counts, and what would go wrong."""
    yield _headline(plan)
    if plan.preview is not None and plan.preview.modes:
        yield ""
        yield from _counts(plan.preview, plan)
    yield from drawn_findings(plan.findings, is_whole=is_whole)


def _headline(plan: Plan) -> RenderableType:
    """Return what a run would do in a sentence; green only if nothing is to be looked at."""
    from rich.text import Text

    worst = verdict(plan.findings)
    parts = (
        [] if plan.preview is None else [*_sums(plan.preview, sum((plan.waiting or {}).values()))]
    )
    if worst is Level.REFUSED:
        found = refusals(plan.findings)
        reasons = counted(sum(map(len, found.values())), "reason")
        if plan.served and None not in found:
            served = counted(len(plan.served), "endpoint")
            others = ", ".join(sorted(name for name in found if name is not None))
            parts.insert(0, f"a run would serve {served}, and refuse {others} for {reasons}")
        else:
            parts.insert(0, f"a run would be refused for {reasons}")
    if plan.waiting is None:
        parts.append("the broker was not asked" + " everything" * plan.asks_broker)
    is_fine = worst is Level.OK and plan.asks_broker and not _is_odd(plan)
    level = Level.OK if is_fine else Level.REFUSED if worst is Level.REFUSED else Level.WARNING
    text = "; ".join(parts)
    return Text(text[:1].upper() + text[1:] + ".", style=STYLES[level])


def _is_odd(plan: Plan) -> bool:
    """Return whether some rows would not simply move."""
    found = plan.preview
    if found is None:
        return True
    every = [*found.endpoints, *found.dispatched]
    return bool(found.bursts) or any(
        each.quarantined or (each.sample and each.sample.quarantine) or [*_warnings(each)]
        for each in every
    )


def _sums(found: Preview, waiting: int) -> Iterator[str]:
    every = [*found.endpoints, *found.dispatched]
    stored = sum(each.stored for each in every)
    yield f"{counted(stored, 'timeout')} of {counted(len(every), 'endpoint')}"
    moved = sum(each.to_hand_over for each in found.endpoints)
    sent = sum(each.to_send for each in found.dispatched)
    at_most = "at most " if any(each.sample for each in every) else ""
    moving = max(0, moved - waiting)
    if not moving + sent:
        yield "none would be moved now"
    for count, text in (
        (moving, f"{at_most}{{}} would be moved"),
        (sent, "{} would be sent when due"),
        (sum(each.left for each in found.endpoints), "{} due too soon to be moved"),
        (waiting, "{} would wait for a destination that cannot be reached"),
        (sum(each.quarantined for each in every), "{} would go to quarantine"),
    ):
        if count:
            yield text.format(grouped(count))


def _counts(found: Preview, plan: Plan) -> Iterator[RenderableType]:
    """Yield tables of what is stored, where it goes and why some does not."""
    waiting = plan.waiting
    every = [*found.endpoints, *found.dispatched]
    columns = ("endpoint", "mode", "stored", "shortest due", "longest due")
    yield drawn_table(
        (*columns, "move", "left", "later", "quarantine"),
        [_endpoint_row(each, found) for each in every],
    )
    yield ""
    odd = [(each, source) for each in every for source in _quarantines(each)]
    if odd:
        rows = [(each.endpoint, *source) for each, source in odd]
        yield drawn_table(("to quarantine", "reason", "rows", "such as", "detail"), rows)
        yield ""
    destinations = [*_destinations(every, waiting)]
    if destinations:
        yield drawn_table(("destination", "messages", "queue"), destinations)
        yield ""
    steps = [name for name, _ in SPANS] + [BEYOND]
    due = [(each.endpoint, *(each.due.get(step, 0) for step in steps)) for each in every]
    yield drawn_table(("due within", *steps), due)
    yield ""
    yield from _remarks(found, plan)
    yield ""


def _endpoint_row(each: EndpointPreview, found: Preview) -> tuple[object, ...]:
    mode = found.modes[each.endpoint]
    is_moved = mode is not EndpointMode.DISPATCH
    return (
        each.endpoint,
        str(mode),
        each.stored,
        _due_in(each.first_due, found.taken_at),
        _due_in(each.last_due, found.taken_at),
        each.to_hand_over if is_moved else 0,
        each.left,
        each.beyond_horizon if is_moved else each.to_send,
        each.quarantined,
    )


def _due_in(due_at: datetime | None, now: datetime) -> str:
    if due_at is None:
        return "none"
    seconds = int((due_at - now).total_seconds())
    return f"{span_text(-seconds)} ago" if seconds < 0 else f"in {span_text(seconds)}"


def _quarantines(each: EndpointPreview) -> Iterator[tuple[object, ...]]:
    for reason, entry in sorted(each.quarantine.items()):
        yield str(reason), entry.count, ", ".join(entry.examples), entry.detail
    if each.sample is None:
        return
    for reason, entry in sorted(each.sample.quarantine.items()):
        rows = f"{grouped(entry.count)} of {grouped(each.sample.rows)} sampled"
        yield str(reason), rows, ", ".join(entry.examples), entry.detail


def _destinations(
    every: list[EndpointPreview], waiting: Mapping[Any, int] | None
) -> Iterator[tuple[object, ...]]:
    sums = destination_rows(every)
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    for place, (name, count) in enumerate(ranked):
        queue = "not asked" if waiting is None else "cannot be reached: its rows wait"
        if waiting is not None and name not in waiting:
            queue = "can be reached"
        if place < _SHOWN_DESTINATIONS or name in (waiting or ()):
            yield name, count, queue
    if (more := len(ranked) - _SHOWN_DESTINATIONS) > 0:
        rows = sum(n for _, n in ranked[_SHOWN_DESTINATIONS:])
        yield f"{grouped(more)} more", rows, "--json lists them"


def _who_sends(each: EndpointPreview, found: Preview, plan: Plan) -> str:
    """Return what becomes of the rows that are due too soon to be moved."""
    if each.endpoint in found.attended:
        return f"{counted(each.left, 'row')} due too soon will be sent by migrator when due"
    asked = [f for f in plan.findings if (f.check, f.subject) == ("unattended-rows", each.endpoint)]
    if asked:
        return asked[0].text
    left = counted(each.left, "row")
    return f"{left} would be left to its timeout manager; whether it runs was not checked"


def _remarks(found: Preview, plan: Plan) -> Iterator[str]:
    """Yield what else is to be known of the rows, and how long all of it would take."""
    for each in (*found.endpoints, *found.dispatched):
        if each.sample:
            yield (
                f"{each.endpoint}: counted in the database; rows that look odd, and "
                f"{grouped(each.sample.rows)} of the others as a sample, were converted; --exact "
                "converts all"
            )
        if each.left:
            yield f"{each.endpoint}: {_who_sends(each, found, plan)}"
        yield from (f"warning: {each.endpoint}: {text}" for text in _warnings(each))
    yield from _late(found)
    total = sum(each.to_hand_over for each in found.endpoints)
    size = sum(each.bytes for each in found.endpoints)
    at = "the pace of the delay levels" if found.is_paced else rate_words(found.rate_per_s)
    yield (
        f"{counted(total, 'message')}, {size_words(size)}; "
        f"{about(found.estimated.total_seconds())} at {at}"
    )
    if kept := plan.content_kept:
        yield kept
    if (late := found.late_at_full_pace) >= _WORTH_TELLING:
        yield (
            'with handover.pace = "full" the last one would be '
            f"{span_words(late.total_seconds())} late at least; by default, hand-over is no "
            "faster than the levels let messages go"
        )


def _late(found: Preview) -> Iterator[str]:
    bursts = found.bursts or ()
    for burst in bursts[:SHOWN_BURSTS]:
        first, last = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (burst.due_from, burst.due_until))
        when = f"at {first}" if first == last else f"from {first} to {last}"
        rows = counted(burst.rows, "timeout falls", "timeouts fall")
        yield (
            f"warning: {rows} due {when}: the last will arrive "
            f"{about(burst.late_s)} late, whoever sends them"
        )
    if (more := len(bursts) - SHOWN_BURSTS) > 0:
        yield f"{counted(more, 'more such burst')}; --json lists all"


def _warnings(found: EndpointPreview) -> Iterator[str]:
    for offset, count in sorted(found.zone_offsets.items()):
        hours = offset.total_seconds() / 3600
        of = f", of {grouped(found.sample.rows)} sampled," if found.sample else ""
        yield (
            f"{counted(count, 'row')}{of} with a due column {hours:+g} h off its own header: was "
            "local time written instead of UTC? The column is used"
        )
    for why, entry in sorted(found.unclaimable.items()):
        such = ", ".join(entry.examples)
        yield f"{counted(entry.count, 'row')} never claimed, {why}; such as {such}"
    if without := found.without_due_time - sum(e.count for e in found.unclaimable.values()):
        yield f"{counted(without, 'row')} without a due time that a timeout manager would reach"
    if found.in_ledger:
        yield f"{counted(found.in_ledger, 'row')} in the ledger already, not claimed again"
    if found.unmeasured:
        yield (
            f"{counted(found.unmeasured, 'row')} with a body of unknown size: not in the sum, and "
            "any that is too large for the broker will go to quarantine"
        )
