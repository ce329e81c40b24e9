"""``migrator preview``: what would a migration do? Nothing is written anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from io import StringIO
from typing import Annotated, Final

import typer

from migrator.app.preview import take_preview
from migrator.cli.lazy import new_group
from migrator.cli.output import (
    Format,
    Output,
    about_of,
    chosen_form,
    json_text,
    rows_read,
    write_result,
    write_table,
)
from migrator.cli.session import (
    AllEndpoints,
    Cutoff,
    Delays,
    Endpoints,
    Horizon,
    Json,
    Map,
    Mode,
    NearDue,
    endpoint_names,
    session_of,
)
from migrator.config import EndpointMode
from migrator.config.values import build_duration
from migrator.nservicebus.conversion import Reason
from migrator.preview.forecast import Burst
from migrator.preview.report import BEYOND, SHOWN_BURSTS, SPANS, Preview, preview_document
from migrator.stores.endpoints import EndpointPreview, Quarantinable, Sample

verbs = new_group()

_NOTES: Final[Mapping[str, str]] = {
    EndpointMode.MIGRATE: "",
    EndpointMode.FORWARD: "mode forward: new timeouts go straight into the delays",
    EndpointMode.DISPATCH: "mode dispatch: nothing is moved, rows are sent when due",
}

Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Convert every row; else a SQL database counts, and odd rows and a sample of up to "
        "1 000 of the others are converted.",
    ),
]
_WORTH_TELLING: Final = timedelta(seconds=1)

Rate = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.1, help="Messages per second to assume for the estimate."),
]


@verbs.command()
def preview(
    context: typer.Context,
    endpoint: Endpoints = None,
    all_endpoints: AllEndpoints = False,
    mode: Mode = None,
    cutoff: Cutoff = None,
    near_due: NearDue = None,
    horizon: Horizon = None,
    rename: Map = None,
    delays: Delays = None,
    rate: Rate = None,
    exact: Exact = False,
    form: Format = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Count what a migration would do, endpoint by endpoint. Reads the store, writes nothing.

    Examples:
      migrator preview --endpoint Sales
      migrator preview --endpoint Sales --exact
      migrator preview --all-endpoints --cutoff 0s --horizon 30d
      migrator preview --format json --output preview.json
      migrator preview --endpoint Sales --format html --output preview.html
    """
    session = session_of(context)
    form = chosen_form(form, output, wants_json=session.wants_json)
    with session.opened() as app:
        names = endpoint_names(app, endpoint, all_endpoints=all_endpoints)
        with rows_read() as progress:
            found = take_preview(app, names, progress=progress, rate=rate, is_exact=exact)
        if form == "html":
            from migrator.reports.preview import preview_page

            about, document = about_of(app, context.params), json.loads(rendered(found, "json"))
            text = preview_page(document, about=about, attended=found.attended)
        else:
            text = rendered(found, form)
    write_result(text, output)


def rendered(found: Preview, form: str) -> str:
    """Return *found* as text for people or as JSON."""
    if form == "json":
        return json_text({"schema": "migrator/preview/1", **preview_document(found)})
    out = StringIO()
    for endpoint in found.endpoints:
        note = _NOTES[found.modes[endpoint.endpoint]]
        fates = _fates(endpoint, is_ours=endpoint.endpoint in found.attended)
        _write_endpoint(endpoint, out, note=note, fates=fates)
    for endpoint in found.dispatched:
        note = _NOTES[EndpointMode.DISPATCH]
        _write_endpoint(endpoint, out, note=note, fates=_dispatched_fates(endpoint))
    for text in _late(found.bursts or ()):
        out.write(f"warning: {text}\n")
    total = sum(endpoint.to_hand_over for endpoint in found.endpoints)
    size = sum(endpoint.bytes for endpoint in found.endpoints)
    at = "the pace of the delay levels" if found.is_paced else f"{found.rate_per_s:g} messages/s"
    out.write(
        f"{total} messages, {size / 2**20:.1f} MiB; about {build_duration(found.estimated)} "
        f"at {at}\n"
    )
    if (late := found.late_at_full_pace) >= _WORTH_TELLING:
        out.write(
            f'with handover.pace = "full" the last one would be {build_duration(late)} late at '
            "least; by default hand-over keeps to what the levels let go of\n"
        )
    return out.getvalue().rstrip("\n")


def _write_endpoint(
    found: EndpointPreview, out: StringIO, *, note: str, fates: Iterable[tuple[str, int]]
) -> None:
    title = f"{found.endpoint} ({found.source})"
    write_table(("rows", "count"), fates, title=title, stream=out)
    out.write(f"{note}\n" if note else "")
    out.write(f"{_how_counted(found.sample)}\n" if found.sample else "")
    out.write("\n")
    if found.quarantine:
        _write_reasons("to quarantine", found.quarantine, out)
    if found.sample and found.sample.quarantine:
        _write_reasons("to quarantine, of the sample alone", found.sample.quarantine, out)
    if found.destinations:
        rows = sorted(found.destinations.items(), key=lambda item: (-item[1], item[0]))
        write_table(("destination", "messages"), rows, stream=out)
        out.write("\n")
    steps = [name for name, _ in SPANS] + [BEYOND]
    write_table(("due within", "rows"), [(s, found.due.get(s, 0)) for s in steps], stream=out)
    out.write("\n")
    if found.entry_levels and note != _NOTES[EndpointMode.DISPATCH]:
        write_table(("entry level", "messages"), sorted(found.entry_levels.items()), stream=out)
        out.write("\n")
    for text in _warnings(found):
        out.write(f"warning: {text}\n")
    out.write("\n")


def _write_reasons(title: str, found: Mapping[Reason, Quarantinable], out: StringIO) -> None:
    reasons = [
        (str(reason), entry.count, entry.detail, ", ".join(entry.examples))
        for reason, entry in sorted(found.items())
    ]
    write_table((title, "rows", "detail of the first", "such as"), reasons, stream=out)
    out.write("\n")


def _how_counted(sample: Sample) -> str:
    return (
        f"counted in the database; rows that look odd, and {sample.rows} of the others as a "
        "sample, were converted; migrator preview --exact converts all"
    )


def _late(bursts: Sequence[Burst]) -> Iterator[str]:
    for burst in bursts[:SHOWN_BURSTS]:
        first, last = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (burst.due_from, burst.due_until))
        when = f"at {first}" if first == last else f"from {first} to {last}"
        yield (
            f"{burst.rows} timeouts are due {when}: the last will come about "
            f"{burst.late_s:.0f} s late, whoever sends them"
        )
    if (more := len(bursts) - SHOWN_BURSTS) > 0:
        yield f"there are {more} more such bursts; --json lists them"


def _fates(found: EndpointPreview, *, is_ours: bool) -> Iterator[tuple[str, int]]:
    whose = "sent by migrator when due" if is_ours else "left to the timeout manager"
    yield "stored", found.stored
    yield "  overdue, whatever becomes of them", found.overdue
    yield "  in the ledger already", found.in_ledger
    yield f"  {whose} (due before the cutoff)", found.left
    yield "  left until nearer (due after the horizon)", found.beyond_horizon
    yield "  left for good (no usable due time)", found.without_due_time
    yield "  to migrate now", found.to_migrate
    at_most, at_least = ("", "") if found.sample is None else (", at most", ", at least")
    yield f"    to hand over{at_most}", found.to_hand_over
    yield f"    to quarantine{at_least}", found.quarantined


def _dispatched_fates(found: EndpointPreview) -> Iterator[tuple[str, int]]:
    yield "stored", found.stored
    yield "  overdue, sent at once", found.overdue
    yield "  in the ledger already", found.in_ledger
    yield "  left for good (no usable due time)", found.without_due_time
    at_most, at_least = ("", "") if found.sample is None else (", at most", ", at least")
    yield f"  sent when due{at_most}", found.to_hand_over + found.beyond_horizon
    yield f"  to quarantine when due{at_least}", found.quarantined


def _warnings(found: EndpointPreview) -> Iterator[str]:
    for offset, count in sorted(found.zone_offsets.items()):
        hours = offset.total_seconds() / 3600
        of = f" of {found.sample.rows} sampled" if found.sample else ""
        yield (
            f"{count}{of} rows have a due column {hours:+g} h from their own header: "
            "was local time written where UTC belongs? The column counts"
        )
    for why, entry in sorted(found.unclaimable.items()):
        yield f"{entry.count} rows are never claimed, {why}; such as {', '.join(entry.examples)}"
    if without := found.without_due_time - sum(e.count for e in found.unclaimable.values()):
        yield f"{without} rows have no due time that a timeout manager would reach"
    if found.unmeasured:
        yield (
            f"of {found.unmeasured} rows nobody knows how large their bodies are: they are not in "
            "the sum, and one that is too large for the broker will go to quarantine"
        )
