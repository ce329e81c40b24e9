"""The page of ``migrator verify``: is every timeout accounted for? For those who have to know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from migrator.reports import pictures
from migrator.reports.pages import About, Document, Figure, Line, Step, Tone, Verdict, page
from migrator.reports.pictures import Share
from migrator.reports.words import DISCREPANCIES, counted
from migrator.verify.report import Verdict as Outcome

DRAWN: Final = 15
"""Destinations in the picture; the table has more."""
LISTED: Final = 200
"""Destinations in the table; the JSON document has all."""

_STATES: Final = (
    ("handed", "handed over", "handed_over", "the broker has them, or has delivered them since"),
    ("sent", "dispatched", "dispatched", "sent by migrator when they were due"),
    ("flight", "in flight", "in_flight", "on their way to the broker, safe in the ledger"),
    ("aside", "set aside", "quarantined", "kept with the reason, not sent"),
    ("stays", "released", "released", "given back to the table before they were handed over"),
    ("back", "recalled", "recalled", "brought back to the table after they were handed over"),
    ("bad", "doubtful", "doubtful", "nobody can tell whether the broker has them"),
    ("gone", "purged", "purged", "finished, and forgotten by the ledger"),
)
_TITLES: Final = {
    Outcome.BALANCED: "Everything agrees",
    Outcome.DOUBTFUL: "Of some batches nobody can tell",
    Outcome.DISCREPANT: "Something does not agree",
}


def verify_page(document: Document, *, about: About) -> str:
    """Return the page for a document ``migrator/verify/1``."""
    books = _books(document["endpoints"])
    places = _destinations(document["destinations"])
    rungs = _rungs(document["levels"])
    return page(
        "verify.html",
        about=about,
        document=document,
        verdict=_verdict(document, about),
        figures=list(_figures(document)),
        books=books,
        books_legend=pictures.legend(books),
        lines={each["endpoint"]: list(_lines(each)) for each in document["endpoints"]},
        destinations=places[:DRAWN],
        destinations_left=max(0, len(places) - DRAWN),
        destinations_legend=pictures.legend(places),
        rungs=rungs,
        rungs_legend=pictures.legend(rungs),
        words=DISCREPANCIES,
        listed=LISTED,
        not_checked=[*document["not_checked"], *about.not_checked],
    )


def _sum(document: Document, key: str) -> int:
    return sum(int(each[key]) for each in document["endpoints"])


# ── what it comes to ────────────────────────────────────────────────────────────────────────────


def _verdict(document: Document, about: About) -> Verdict:
    outcome = Outcome(document["verdict"])
    is_whole = document["is_complete"] and not about.not_checked
    tone = {Outcome.DISCREPANT: Tone.BAD, Outcome.DOUBTFUL: Tone.CARE}.get(outcome, Tone.GOOD)
    title = _TITLES[outcome]
    if outcome is Outcome.BALANCED and not is_whole:
        tone, title = Tone.CARE, "Everything that was looked at agrees"
    if tone is Tone.GOOD and _sum(document, "quarantined"):
        tone, title = Tone.CARE, "Everything agrees; some timeouts are set aside"
    return Verdict(
        tone=tone,
        title=title,
        meaning=list(_meaning(document, outcome, is_whole=is_whole)),
        steps=list(_steps(document, about, outcome))
        or [Step(text="There is nothing to do. Keep this report.")],
    )


def _meaning(document: Document, outcome: Outcome, *, is_whole: bool) -> Iterator[str]:
    yield (
        "A timeout is a message that waits for its time. Since the migration began "
        f"{counted(_sum(document, 'claimed'), 'timeout')} came into migrator's books, and each "
        "has to be somewhere."
    )
    if outcome is Outcome.BALANCED:
        yield (
            "Every one of them is accounted for: the database, migrator's books and the broker "
            "say the same."
            if is_whole
            else "The books add up, and nothing that was looked at contradicts them. Not "
            "everything was looked at; what was left out is listed at the end."
        )
    if outcome is Outcome.DISCREPANT:
        yield (
            f"Found: {counted(sum(document['counts'].values()), 'contradiction')} between the "
            "database, migrator's books and the broker. This report has changed nothing; each "
            "kind is explained below."
        )
    if document["doubtful"]:
        yield (
            f"Doubtful: {counted(_sum(document, 'doubtful'), 'timeout')}. Nobody can tell from "
            "here whether the broker has them. They are kept, and a person has to decide."
        )
    if _sum(document, "quarantined"):
        yield (
            f"Set aside: {counted(_sum(document, 'quarantined'), 'timeout')}, kept with the "
            "reason, not sent until somebody decides, and not lost."
        )


def _steps(document: Document, about: About, outcome: Outcome) -> Iterator[Step]:
    if outcome is Outcome.DISCREPANT:
        yield Step(
            text="Delete and purge nothing, neither in the database nor at the broker, before it "
            "is understood. What to do for each kind is said below."
        )
    if document["doubtful"]:
        yield Step(
            text="Decide about the doubtful batches; this says what is known.",
            command="migrator batch list",
        )
    if _sum(document, "quarantined"):
        yield Step(
            text="Look at what was set aside, put it right, and let it be tried again.",
            command="migrator quarantine list",
        )
    if not any(each["ours"] is not None for each in document["levels"]):
        yield Step(
            text="Let each message in the delays be looked at as well.",
            command=f"migrator verify --scan {about.options}".strip(),
        )
    elif document["not_checked"]:
        yield Step(text="Read what was not checked, below, and verify again when it can be.")


def _figures(document: Document) -> Iterator[Figure]:
    wrong = sum(document["counts"].values())
    yield Figure(value=_sum(document, "claimed"), label="came into the books")
    yield Figure(value=document["waiting"], label="have to wait at the broker")
    yield Figure(value=document["rows_checked"], label="rows compared")
    yield Figure(value=wrong, label="do not agree")
    if document["doubtful"]:
        yield Figure(value=_sum(document, "doubtful"), label="doubtful")


# ── pictures ────────────────────────────────────────────────────────────────────────────────────


def _books(endpoints: Sequence[Mapping[str, Any]]) -> Sequence[pictures.Bar]:
    return pictures.bars(
        (
            each["endpoint"],
            [
                *(Share(kind=kind, label=text, count=each[key]) for kind, text, key, _ in _STATES),
                Share(kind="lost", label="unaccounted", count=max(0, each["unaccounted"])),
            ],
        )
        for each in endpoints
    )


def _destinations(places: Sequence[Mapping[str, Any]]) -> Sequence[pictures.Bar]:
    ranked = sorted(places, key=lambda each: (-each["waiting"] - each["left"], each["endpoint"]))
    return pictures.bars(
        (
            each["destination"] or "(none)",
            [
                Share(kind="handed", label="wait", count=each["waiting"]),
                Share(kind="sent", label="have left", count=each["left"]),
                Share(kind="aside", label="set aside", count=each["quarantined"]),
            ],
        )
        for each in ranked
    )


def _rungs(levels: Sequence[Mapping[str, Any]]) -> Sequence[pictures.Bar]:
    """Return a rung for each level; what two generations have in one is drawn together."""
    together: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for each in levels:
        together[each["level"]].append(each)
    if not together:
        return ()
    return pictures.ladder(
        {level: _shares(found) for level, found in together.items()},
        counts={level: _total(found) for level, found in together.items()},
    )


def _total(found: Sequence[Mapping[str, Any]]) -> int | None:
    totals = [each["total"] for each in found]
    return None if None in totals else sum(totals)


def _shares(found: Sequence[Mapping[str, Any]]) -> Sequence[Share]:
    """Return ours and of others where each was looked at; what nobody looked at is just there."""
    ours = sum(each["ours"] or 0 for each in found)
    foreign = sum(each["foreign"] or 0 for each in found)
    total = sum(each["total"] or 0 for each in found)
    return (
        Share(kind="handed", label="of this migration", count=ours),
        Share(kind="stays", label="of others", count=foreign),
        Share(kind="near", label="not looked at", count=max(0, total - ours - foreign)),
    )


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


def _lines(endpoint: Mapping[str, Any]) -> Iterator[Line]:
    yield Line(
        label="came into the books", count=endpoint["claimed"], meaning="taken out of the table"
    )
    for _, label, key, meaning in _STATES:
        yield Line(label=label, count=endpoint[key], meaning=meaning, is_part=True)
    yield Line(
        label="unaccounted",
        count=endpoint["unaccounted"],
        meaning="has to be 0" if not endpoint["unaccounted"] else "has to be 0, and is not",
        is_part=True,
    )
    yield Line(
        label="still in the table",
        count=endpoint["in_store"],
        meaning="the table is gone" if endpoint["in_store"] is None else "not taken yet",
    )
