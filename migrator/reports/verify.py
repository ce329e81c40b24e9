"""The page of ``migrator verify``: is every timeout accounted for? For those who have to know.

Counted and drawn here; the words are in the template.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from migrator.reports import pictures
from migrator.reports.pages import DISCREPANCIES, About, Tone, page
from migrator.reports.pictures import Share
from migrator.verify.document import EndpointAccount, VerifyDocument
from migrator.verify.report import DestinationBalance, LevelBalance, Verdict, headline

DRAWN: Final = 15
"""Destinations in the picture; the table has more."""
LISTED: Final = 200
"""Destinations in the table; the JSON document has all."""

_STATES: Final = (
    ("handed", "handed over", "handed_over", "the broker has them, or has delivered them since"),
    ("sent", "dispatched", "dispatched", "sent by migrator when they were due"),
    ("flight", "in flight", "in_flight", "on their way to the broker, safe in the ledger"),
    ("near", "parked", "parked", "in the ledger until their destination takes messages"),
    ("aside", "in quarantine", "quarantined", "kept with the reason, not sent"),
    ("stays", "released", "released", "given back to the table before they were handed over"),
    ("back", "recalled", "recalled", "brought back to the table after they were handed over"),
    ("gone", "discarded", "discarded", "taken out of quarantine for good, by an operator"),
    ("bad", "doubtful", "doubtful", "it is not known whether the broker has them"),
    ("gone", "purged", "purged", "finished, and deleted from the ledger"),
)


def verify_page(document: VerifyDocument, *, about: About) -> str:
    """Return the page."""
    endpoints = document.endpoints
    sums = {
        "claimed": sum(each.claimed for each in endpoints),
        "doubtful": sum(each.doubtful for each in endpoints),
        "quarantined": sum(each.quarantined for each in endpoints),
    }
    verdict, not_checked = document.verdict, [*document.not_checked, *about.not_checked]
    wrong = sum(document.counts.values())
    is_good = verdict is Verdict.BALANCED and not not_checked and not sums["quarantined"]
    accounts = _accounts(endpoints)
    places = _destinations(document.destinations)
    level_bars = _level_bars(document.levels)
    return page(
        "verify.html",
        about=about,
        document=document,
        taken_at=document.taken_at,
        sums=sums,
        wrong=wrong,
        is_whole=not not_checked,
        tone=Tone.BAD if verdict is Verdict.DISCREPANT else Tone.GOOD if is_good else Tone.CARE,
        title=headline(
            verdict,
            contradictions=wrong,
            doubtful=len(document.doubtful),
            quarantined=sums["quarantined"],
            not_checked=len(not_checked),
        ),
        accounts=accounts,
        accounts_legend=pictures.legend(accounts),
        lines={
            each.endpoint: [
                (label, getattr(each, key), meaning) for _, label, key, meaning in _STATES
            ]
            for each in endpoints
        },
        destinations=places[:DRAWN],
        destinations_left=max(0, len(places) - DRAWN),
        destinations_legend=pictures.legend(places),
        level_bars=level_bars,
        level_legend=pictures.legend(level_bars),
        words=DISCREPANCIES,
        listed=LISTED,
        not_checked=not_checked,
    )


def _accounts(endpoints: Sequence[EndpointAccount]) -> Sequence[pictures.Bar]:
    return pictures.bars(
        (
            each.endpoint,
            [
                *(
                    Share(kind=kind, label=text, count=getattr(each, key))
                    for kind, text, key, _ in _STATES
                ),
                Share(kind="lost", label="unaccounted", count=max(0, each.unaccounted)),
            ],
        )
        for each in endpoints
    )


def _destinations(places: Sequence[DestinationBalance]) -> Sequence[pictures.Bar]:
    """Return a bar for each destination; what several endpoints send there is drawn together."""
    together: dict[str, Counter[str]] = defaultdict(Counter)
    for each in places:
        together[each.destination or "(none)"].update(
            waiting=each.waiting, left=each.left, quarantined=each.quarantined
        )
    ranked = sorted(together.items(), key=lambda item: (-item[1].total(), item[0]))
    return pictures.bars(
        (
            name,
            [
                Share(kind="handed", label="wait", count=sums["waiting"]),
                Share(kind="sent", label="have left", count=sums["left"]),
                Share(kind="aside", label="in quarantine", count=sums["quarantined"]),
            ],
        )
        for name, sums in ranked
    )


def _level_bars(levels: Sequence[LevelBalance]) -> Sequence[pictures.Bar]:
    """Return a bar for each level; what two generations have in one is drawn together."""
    together: dict[int, list[LevelBalance]] = defaultdict(list)
    for each in levels:
        together[each.level].append(each)
    if not together:
        return ()
    return pictures.level_bars(
        {level: _shares(found) for level, found in together.items()},
        counts={level: _total(found) for level, found in together.items()},
    )


def _total(found: Sequence[LevelBalance]) -> int | None:
    totals = [each.total for each in found if each.total is not None]
    return sum(totals) if len(totals) == len(found) else None


def _shares(found: Sequence[LevelBalance]) -> Sequence[Share]:
    """Return own and foreign messages where each was read, else only their number."""
    ours = sum(each.ours or 0 for each in found)
    foreign = sum(each.foreign or 0 for each in found)
    total = sum(each.total or 0 for each in found)
    return (
        Share(kind="handed", label="of this migration", count=ours),
        Share(kind="stays", label="of others", count=foreign),
        Share(kind="near", label="not looked at", count=max(0, total - ours - foreign)),
    )
