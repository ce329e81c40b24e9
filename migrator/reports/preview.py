"""The page of ``migrator preview``: what would become of every timeout, for those who decide.

Counted and drawn here; the words are in the template.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeVar

from migrator.nservicebus.conversion import Reason
from migrator.preflight.context import Level
from migrator.preview.report import SHOWN_BURSTS, DispatchedCounts, EndpointCounts
from migrator.reports import pictures
from migrator.reports.pages import DUE, About, Tone, page
from migrator.reports.pictures import Bar, Share
from migrator.reports.plan import PreviewDocument
from migrator.text import counted, grouped

DRAWN: Final = 15
"""Destinations in the picture; the tables have more."""
LISTED: Final = 200
"""Destinations in the table of an endpoint; the JSON document has all."""

_MOVED: Final = (
    ("handed", "to hand over to the broker", "to_hand_over"),
    ("aside", "to quarantine", "quarantined"),
    ("near", "due too soon to be moved", "left"),
    ("stays", "due too late to be moved yet", "beyond_horizon"),
    ("bad", "without a usable due time", "without_due_time"),
    ("back", "in the ledger already", "in_ledger"),
)
_SENT: Final = (
    ("sent", "to be sent when due", "to_send"),
    ("aside", "to quarantine", "quarantined"),
    ("bad", "without a usable due time", "without_due_time"),
    ("back", "in the ledger already", "in_ledger"),
)
_BROKER: Final = (
    "The broker, because of `--offline`: whether the delays, the destinations and their bindings "
    "exist, and whether there is room."
)
T = TypeVar("T")


def preview_page(
    document: PreviewDocument, *, about: About, attended: Collection[str] = frozenset()
) -> str:
    """Return the page.

    Args:
        document: What ``--json`` writes.
        about: Version, ledger, options.
        attended: Endpoints whose timeouts before the cutoff migrator itself sends when due.
    """
    moved, sent = document.endpoints, document.dispatched
    both: list[EndpointCounts | DispatchedCounts] = [*moved, *sent]
    sums = {
        "stored": sum(each.stored for each in both),
        "quarantined": sum(each.quarantined for each in both),
        "to_hand_over": sum(each.to_hand_over for each in moved),
        "bytes": sum(each.bytes for each in moved),
        "to_send": sum(each.to_send for each in sent),
        "waiting": sum((document.waiting or {}).values()),
    }
    sums["can_move"] = max(0, sums["to_hand_over"] - sums["waiting"])
    warned = [each for each in moved if _is_warned(each)]
    samples = [each.sample for each in both if each.sample]
    sampled = {
        "endpoints": len(samples),
        "rows": sum(each.rows for each in samples),
        "quarantined": sum(found.count for each in samples for found in each.quarantine),
    }
    bursts = document.bursts or []
    troubled = [f for f in document.findings if f.level in (Level.REFUSED, Level.WARNING)]
    refused = sum(f.level is Level.REFUSED for f in troubled)
    unseen = [f"{f.subject}: {f.text}" for f in document.findings if f.level is Level.NOT_CHECKED]
    if not document.asks_broker:
        unseen.insert(0, _BROKER)
    has_quarantine = sums["quarantined"] or sampled["quarantined"]
    is_good = not (warned or bursts or has_quarantine or troubled or unseen)
    parts = [
        f"Endpoint {each.endpoint}: only the first {counted(each.stored, 'row')}."
        for each in moved
        if not each.is_complete
    ]
    fates = _fates(moved, sent)
    return page(
        "preview.html",
        about=about,
        document=document,
        taken_at=document.taken_at,
        attended=attended,
        moved=moved,
        sent=sent,
        sums=sums,
        sampled=sampled,
        bursts=bursts,
        shown_bursts=SHOWN_BURSTS,
        tone=Tone.BAD if refused else Tone.GOOD if is_good else Tone.CARE,
        title=_title(sums, sampled, refused=refused, asks_broker=document.asks_broker),
        warned=warned,
        fates=fates,
        legend=pictures.legend(fates),
        due=_due(moved),
        level_bars=_level_bars(moved),
        destinations=_destinations(both),
        not_checked=[*unseen, *parts, *about.not_checked],
        troubled=sorted(troubled, key=attrgetter("level")),
        is_refused=bool(refused),
        reasons=Reason.meanings(),
        due_words=DUE,
        listed=LISTED,
        drawn=DRAWN,
        is_alone=len(both) == 1,
    )


def _is_warned(found: EndpointCounts) -> bool:
    """Return whether an operator has to read it; the template has the text."""
    return bool(
        found.zone_offsets_min or found.unclaimable or found.without_due_time or found.unmeasured
    )


def _title(
    sums: Mapping[str, int], sampled: Mapping[str, int], *, refused: int, asks_broker: bool
) -> str:
    """Return what comes first: that nothing would be started, or else what would become of all."""
    if refused:
        return f"A run would be refused for {counted(refused, 'reason')}"
    what = _what_would_be(sums, sampled)
    return what if asks_broker else f"{what}; the broker was not asked"


def _what_would_be(sums: Mapping[str, int], sampled: Mapping[str, int]) -> str:
    going, later, bad = sums["can_move"], sums["to_send"], sums["quarantined"]
    if not sums["stored"]:
        return "No timeouts are stored"
    if not going + bad + later + sums["waiting"]:
        return "Nothing would be moved now"
    what = [f"{counted(going, 'timeout')} can be moved"] if going or not later else []
    what += [f"{counted(later, 'timeout')} would be sent when due"] if later else []
    if sums["waiting"]:
        what.append(
            f"{grouped(sums['waiting'])} would wait for a destination that cannot be reached"
        )
    at_least = "at least " if sampled["endpoints"] else ""
    what += [f"{at_least}{grouped(bad)} would go to quarantine"] if bad else []
    if sampled["quarantined"]:
        of = counted(sampled["rows"], "sampled timeout")
        what.append(f"and of {of} {grouped(sampled['quarantined'])} would, too")
    return ", ".join(what)


def _fates(moved: Sequence[EndpointCounts], sent: Sequence[DispatchedCounts]) -> Sequence[Bar]:
    kinds = [(each, _MOVED) for each in moved] + [(each, _SENT) for each in sent]
    return pictures.bars(
        (
            each.endpoint,
            [
                Share(kind=kind, label=label, count=getattr(each, key))
                for kind, label, key in shares
            ],
        )
        for each, shares in kinds
    )


def _due(moved: Sequence[EndpointCounts]) -> Sequence[Bar]:
    sums = _sum(each.due for each in moved)
    return pictures.bars(
        (
            words,
            [Share(kind="near" if step == "overdue" else "handed", label=words, count=sums[step])],
        )
        for step, words in DUE.items()
    )


def _level_bars(moved: Sequence[EndpointCounts]) -> Sequence[Bar]:
    return pictures.level_bars(
        {
            level: [Share(kind="handed", label=f"level {level}", count=count)]
            for level, count in _sum(each.entry_levels for each in moved).items()
        }
    )


def _sum(counts: Iterable[Mapping[T, int]]) -> Counter[T]:
    return sum(map(Counter, counts), Counter[T]())


def _destinations(endpoints: Iterable[EndpointCounts | DispatchedCounts]) -> Sequence[Bar]:
    sums = _sum(each.destinations for each in endpoints)
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    drawn = [("handed", name, count) for name, count in ranked[:DRAWN]]
    if rest := sum(count for _, count in ranked[DRAWN:]):
        drawn.append(("stays", f"{grouped(len(ranked) - DRAWN)} others together", rest))
    return pictures.bars(
        (name, [Share(kind=kind, label=name, count=count)]) for kind, name, count in drawn
    )
