"""The page of ``migrator preview``: what would become of every timeout, for those who decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from migrator.reports import pictures
from migrator.reports.pages import About, Document, Figure, Line, Step, Tone, Verdict, page
from migrator.reports.pictures import Share
from migrator.reports.words import DUE, REASONS, counted, grouped, size_words, span_words

DRAWN: Final = 15
"""Destinations in the picture; the tables have more."""
LISTED: Final = 200
"""Destinations in the table of an endpoint; the JSON document has all."""

_MOVED: Final = (
    ("handed", "to hand over to the broker", "to_hand_over"),
    ("aside", "to set aside", "quarantined"),
    ("near", "due too soon to be moved", "left"),
    ("stays", "due too late to be moved yet", "beyond_horizon"),
    ("bad", "without a usable due time", "without_due_time"),
    ("back", "in the ledger already", "in_ledger"),
)
_SENT: Final = (
    ("sent", "to be sent when due", "to_send"),
    ("aside", "to set aside", "quarantined"),
    ("bad", "without a usable due time", "without_due_time"),
    ("back", "in the ledger already", "in_ledger"),
)
_OTHERS: Final = (
    ("without a usable due time", "without_due_time", "they stay for good"),
    ("in the ledger already", "in_ledger", "claimed before; not claimed a second time"),
)


def preview_page(
    document: Document, *, about: About, attended: Collection[str] = frozenset()
) -> str:
    """Return the page for a document ``migrator/preview/1``.

    Args:
        document: As ``--format json`` writes it.
        about: Version, ledger, options.
        attended: Endpoints whose timeouts before the cutoff migrator itself sends when due.
    """
    moved, sent = [_with_sums(each) for each in document["endpoints"]], document["dispatched"]
    fates = _fates(moved, sent)
    return page(
        "preview.html",
        about=about,
        document=document,
        moved=moved,
        sent=sent,
        verdict=_verdict(document, moved, sent, about),
        figures=list(_figures(document, moved, sent)),
        fates=fates,
        legend=pictures.legend(fates),
        due=_due(moved),
        rungs=_rungs(moved),
        destinations=_destinations([*moved, *sent]),
        lines={each["endpoint"]: _moved_lines(each, attended) for each in moved}
        | {each["endpoint"]: _sent_lines(each) for each in sent},
        warnings=[(each["endpoint"], text) for each in moved for text in _warnings(each)],
        not_checked=[*_not_checked(moved), *about.not_checked],
        reasons=REASONS,
        due_words=DUE,
        listed=LISTED,
        drawn=DRAWN,
        is_alone=len(moved) + len(sent) == 1,
        options=_settings(document),
    )


def _with_sums(endpoint: Mapping[str, Any]) -> dict[str, Any]:
    return {**endpoint, "quarantined": sum(each["count"] for each in endpoint["quarantine"])}


def _sum(endpoints: Sequence[Mapping[str, Any]], key: str) -> int:
    return sum(int(each[key]) for each in endpoints)


# ── what it comes to ────────────────────────────────────────────────────────────────────────────


def _verdict(
    document: Document,
    moved: Sequence[Mapping[str, Any]],
    sent: Sequence[Mapping[str, Any]],
    about: About,
) -> Verdict:
    going, aside = _sum(moved, "to_hand_over"), _sum([*moved, *sent], "quarantined")
    later, stored = _sum(sent, "to_send"), _sum([*moved, *sent], "stored")
    is_clean = aside == 0 and not any(list(_warnings(each)) for each in moved)
    return Verdict(
        tone=Tone.GOOD if is_clean else Tone.CARE,
        title=_title(stored, going=going, aside=aside, later=later),
        meaning=list(_meaning(document, going=going, aside=aside, later=later)),
        steps=list(_steps(moved, about, going=going, aside=aside, later=later)),
    )


def _title(stored: int, *, going: int, aside: int, later: int) -> str:
    if not stored:
        return "No timeouts are stored"
    if not going + aside + later:
        return "Nothing would be moved now"
    what = [f"{counted(going, 'timeout')} can be moved"] if going or not later else []
    what += [f"{counted(later, 'timeout')} would be sent when due"] if later else []
    what += [f"{grouped(aside)} would be set aside"] if aside else []
    return ", ".join(what)


def _meaning(document: Document, *, going: int, aside: int, later: int) -> Iterator[str]:
    yield (
        "A timeout is a message that waits for its time. This preview has looked at each one in "
        "the database and changed nothing, neither there nor at the broker."
    )
    if going:
        yield (
            "Moving takes a timeout out of the database and puts it into the broker's own delays, "
            "from where it reaches its destination when it is due. Estimate for all of them: "
            f"{span_words(document['estimated_s'])} at {_rate(document)} messages a second."
        )
    if later:
        yield "Endpoints in mode dispatch keep their timeouts; each is sent when it is due."
    if aside:
        yield (
            "What is set aside is kept with its reason and is not sent until somebody decides. "
            "It never stops the rest, and it is not lost."
        )


def _steps(
    moved: Sequence[Mapping[str, Any]], about: About, *, going: int, aside: int, later: int
) -> Iterator[Step]:
    if aside:
        yield Step(
            text=f"Look at the {counted(aside, 'timeout')} to set aside, below. What is put right "
            "beforehand is moved with the rest."
        )
    if any(list(_warnings(each)) for each in moved):
        yield Step(text="Have somebody who knows the endpoints read the warnings below.")
    if going or later or aside:
        yield Step(
            text="Ask the broker as well: are the delays there, and every destination?",
            command=f"migrator check {about.options}".strip(),
        )
        yield Step(
            text="Then do it. It can be stopped at any moment, and goes on where it was.",
            command=f"migrator run {about.options}".strip(),
        )
        yield Step(text="Afterwards let the books be compared.", command="migrator verify")
    else:
        yield Step(text="There is nothing to do now; look again when timeouts are stored.")


def _figures(
    document: Document, moved: Sequence[Mapping[str, Any]], sent: Sequence[Mapping[str, Any]]
) -> Iterator[Figure]:
    both = [*moved, *sent]
    remark = counted(len(both), "endpoint")
    yield Figure(value=_sum(both, "stored"), label="stored now", remark=remark)
    if moved or not sent:
        size = size_words(_sum(moved, "bytes"))
        yield Figure(value=_sum(moved, "to_hand_over"), label="can be moved", remark=size)
    if sent:
        yield Figure(value=_sum(sent, "to_send"), label="sent when due")
    yield Figure(value=_sum(both, "quarantined"), label="would be set aside")
    if moved:
        rate = f"at {_rate(document)} messages a second"
        yield Figure(value=span_words(document["estimated_s"]), label="to move them", remark=rate)


def _rate(document: Document) -> str:
    return f"{document['rate_per_s']:g}"


def _settings(document: Document) -> Sequence[tuple[str, str]]:
    horizon = document["horizon_s"]
    return [
        ("delays", document["delays"]),
        ("cutoff", span_words(document["cutoff_s"]) if document["cutoff_s"] else "none"),
        ("horizon", "the longest native delay" if horizon is None else span_words(horizon)),
    ]


def _warnings(endpoint: Mapping[str, Any]) -> Iterator[str]:
    for minutes, count in endpoint["zone_offsets_min"].items():
        yield (
            f"due times that are {int(minutes) / 60:+g} h from the row's own header: "
            f"{grouped(count)}. Was local time written where UTC belongs? The stored due time "
            "counts."
        )
    told = endpoint.get("unclaimable", [])
    for each in told:
        yield (
            f"rows that are never claimed, {each['reason']}: {grouped(each['count'])}, such as "
            f"{', '.join(each['examples'])}. They stay where they are."
        )
    if without := endpoint["without_due_time"] - sum(each["count"] for each in told):
        yield (
            "rows without a due time that a timeout manager would ever reach: "
            f"{grouped(without)}. They stay where they are."
        )
    if endpoint.get("unmeasured"):
        yield (
            "rows of which nobody knows how large their bodies are: "
            f"{grouped(endpoint['unmeasured'])}. They are not in the sum of bytes."
        )


def _not_checked(moved: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield (
        "The broker: a preview reads the database only. Whether the delays, the destinations and "
        "their bindings exist, and whether there is room, is asked by `migrator check`."
    )
    for each in moved:
        if not each["is_complete"]:
            yield f"Endpoint {each['endpoint']}: only the first {counted(each['stored'], 'row')}."


# ── pictures ────────────────────────────────────────────────────────────────────────────────────


def _fates(
    moved: Sequence[Mapping[str, Any]], sent: Sequence[Mapping[str, Any]]
) -> Sequence[pictures.Bar]:
    kinds = [(each, _MOVED) for each in moved] + [(each, _SENT) for each in sent]
    return pictures.bars(
        (
            each["endpoint"],
            [Share(kind=kind, label=label, count=each[key]) for kind, label, key in shares],
        )
        for each, shares in kinds
    )


def _due(moved: Sequence[Mapping[str, Any]]) -> Sequence[pictures.Bar]:
    sums: Counter[str] = Counter()
    for each in moved:
        sums.update(each["due"])
    kinds = {"overdue": "near"}
    return pictures.bars(
        (
            words,
            [Share(kind=kinds.get(step, "handed"), label=words, count=sums[step])],
        )
        for step, words in DUE.items()
    )


def _rungs(moved: Sequence[Mapping[str, Any]]) -> Sequence[pictures.Bar]:
    sums: Counter[int] = Counter()
    for each in moved:
        sums.update({int(level): count for level, count in each["entry_levels"].items()})
    return pictures.ladder(
        {
            level: [Share(kind="handed", label=f"level {level}", count=count)]
            for level, count in sums.items()
        }
    )


def _destinations(endpoints: Sequence[Mapping[str, Any]]) -> Sequence[pictures.Bar]:
    sums: Counter[str] = Counter()
    for each in endpoints:
        sums.update(each["destinations"])
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    drawn = [
        (name, [Share(kind="handed", label=name, count=count)]) for name, count in ranked[:DRAWN]
    ]
    rest = sum(count for _, count in ranked[DRAWN:])
    if rest:
        name = f"{grouped(len(ranked) - DRAWN)} others together"
        drawn.append((name, [Share(kind="stays", label=name, count=rest)]))
    return pictures.bars(drawn)


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


def _moved_lines(endpoint: Mapping[str, Any], attended: Collection[str]) -> Sequence[Line]:
    is_ours = endpoint["endpoint"] in attended
    return _lines(
        endpoint,
        ("stored", "stored", "in the table now"),
        ("to migrate now", "to_migrate", "`migrator run` would take them out of the table"),
        ("… to hand over", "to_hand_over", "they wait at the broker until they are due"),
        ("… to set aside", "quarantined", "kept in the ledger with the reason"),
        (
            "due before the cutoff",
            "left",
            "sent by migrator when due" if is_ours else "left to the timeout manager",
        ),
        ("due after the horizon", "beyond_horizon", "they stay in the table until nearer"),
        *_OTHERS,
        ("overdue", "overdue", "among these; whatever becomes of them"),
    )


def _sent_lines(endpoint: Mapping[str, Any]) -> Sequence[Line]:
    return _lines(
        endpoint,
        ("stored", "stored", "in the table now"),
        ("to send", "to_send", "migrator sends each when it is due"),
        ("to set aside", "quarantined", "kept with the reason when they are due"),
        *_OTHERS,
        ("overdue", "overdue", "among these; sent at once"),
    )


def _lines(endpoint: Mapping[str, Any], *rows: tuple[str, str, str]) -> Sequence[Line]:
    """Return a line for each of *rows* (label, key, meaning): a sum, its parts, and one beside."""
    last = len(rows) - 1
    return [
        Line(label=label, count=endpoint[key], meaning=meaning, is_part=0 < number < last)
        for number, (label, key, meaning) in enumerate(rows)
    ]
