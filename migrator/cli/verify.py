"""``migrator verify``: do store, ledger and broker agree?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import (
    MAX_DEPTH,
    MAX_HOLD,
    Endpoints,
    Evidence,
    Format,
    MaxDepth,
    MaxHold,
    Output,
    settings,
)
from migrator.cli.output import (
    chosen_form,
    json_text,
    progress,
    say,
    write_result,
    write_table,
    write_text,
)
from migrator.cli.session import about_of, duration, session_of
from migrator.errors import ExitCode
from migrator.ledger.states import RowState
from migrator.nservicebus.timeouts import EndpointName
from migrator.text import counted, grouped
from migrator.verify.report import (
    STATES,
    Found,
    Verdict,
    VerifyResult,
    counts_of,
    headline,
)

if TYPE_CHECKING:
    from migrator.reports.pages import About

verbs = new_group()


@verbs.command()
@settings("delays")
def verify(
    context: typer.Context,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read each message in the delay levels.")
    ] = False,
    endpoint: Endpoints = None,
    max_hold: MaxHold = MAX_HOLD,
    max_depth: MaxDepth = MAX_DEPTH,
    rate: Annotated[
        int, typer.Option(metavar="ROWS/S", min=0, help="Rows to hash per second; 0: no limit.")
    ] = 0,
    evidence: Evidence = None,
    form: Format = "table",
    output: Output = None,
) -> None:
    """Compare store, ledger and broker, and say whether every timeout is accounted for.

    Changes nothing, and may run beside `migrator run`. Without --deep the levels are only
    counted; with it, all senders' messages are held for a moment, and can be late by as much.
    With --delays only that generation is checked; otherwise every one that exists.

    Examples:
      migrator verify
      migrator verify --deep --endpoint Sales
      migrator verify --deep --rate 5000 --evidence sales.jsonl
      migrator verify --deep --format html --output sales.html

    Exit codes: 0 balanced; 3 a recall or another scan is under way; 4 store or broker
      unreachable; 5 balanced, but rows are in quarantine; 6 something does not agree, or batches
      are doubtful; 7 what could be read is balanced, and a table was locked.
    """
    from migrator.app.verify import open_verify
    from migrator.delays.scan import ScanLimits
    from migrator.verify.levels import VerifyPlan
    from migrator.verify.verify import verify as run_verify

    session = session_of(context)
    form = chosen_form(form, output, wants_json=session.wants_json)
    limits = ScanLimits(hold_s=duration("--max-hold", max_hold, is_some=True).total_seconds())
    given = session.settings()
    plan = VerifyPlan(
        endpoints=frozenset(EndpointName(name) for name in endpoint or ()),
        is_scan=deep,
        delays=given.broker.delays if "delays" in session.given else None,
        scan=limits,
        deepest=max_depth,
        rate=rate,
    )
    with progress("verifying") as tell:

        def advance(what: str, done: int) -> None:
            tell(f"{what}, {grouped(done)} read")

        with open_verify(given, advance) as work:
            found, digest = run_verify(work, plan, evidence)
            about = about_of(session, given, work.ledger_id, endpoint)
    if form == "table" and output is None:
        show(found)
    else:
        write_result(_rendered(found, digest, form, about), output)
    if evidence is not None and not session.wants_json:
        say(f"{evidence} is written; SHA-256 of its lines before the last: {digest}")
    raise typer.Exit(exit_code(found))


def exit_code(found: VerifyResult) -> ExitCode:
    """Return what the process tells its caller."""
    if found.verdict is not Verdict.BALANCED:
        return ExitCode.DOUBTFUL
    if found.unread:
        return ExitCode.PARTIAL
    quarantined = sum(each.count(RowState.QUARANTINED) for each in found.endpoints)
    return ExitCode.QUARANTINED if quarantined else ExitCode.DONE


# ── what is said ────────────────────────────────────────────────────────────────────────────────


def _rendered(found: VerifyResult, digest: str | None, form: str, about: About) -> str:
    """Return *found* as table, json or html, for a file or a pipe."""
    if form == "table":
        with redirect_stdout(StringIO()) as out:
            show(found)
        return out.getvalue().rstrip("\n")
    from migrator.reports.verify import verify_page
    from migrator.verify.document import verify_document

    document = verify_document(found, digest)
    return verify_page(document, about=about) if form == "html" else json_text(document.values)


def show(found: VerifyResult) -> None:
    """Write *found* for people, the verdict last."""
    states = [name for name, _ in STATES]
    write_table(
        ("endpoint", "claimed", "in flight", *states, "purged", "unaccounted", "in store"),
        (
            (
                each.endpoint,
                each.claimed,
                each.in_flight,
                *(each.count(state) for _, state in STATES),
                each.purged,
                each.unaccounted,
                each.in_store,
            )
            for each in found.endpoints
        ),
    )
    if found.destinations:
        write_table(
            ("destination", "endpoint", "waiting", "left", "quarantined"),
            (
                (each.destination, each.endpoint, each.waiting, each.left, each.quarantined)
                for each in found.destinations
            ),
        )
    _show_levels(found)
    _show_discrepancies(found.discrepancies, counts_of(found))
    if found.parked:
        write_table(
            ("parked destination", "endpoint", "reason"),
            ((each.destination, each.endpoint, each.reason) for each in found.parked),
        )
    for text in found.not_checked:
        write_text(f"not checked: {text}")
    for line in _verdict(found):
        write_text(line)


def _show_levels(found: VerifyResult) -> None:
    levels = [each for each in found.levels if each.total or each.ours or each.foreign]
    if levels:
        write_table(
            ("level", "messages", "ours", "of others"),
            ((f"{e.delays} {e.level:02d}", e.total, e.ours, e.foreign) for e in levels),
        )


def _show_discrepancies(first: Sequence[Found], counts: Mapping[str, int]) -> None:
    if not first:
        return
    by_kind = sorted(first, key=lambda each: str(each.kind))
    write_table(
        ("does not agree", "endpoint", "timeout", "batch", "detail"),
        (
            (each.kind, each.endpoint, each.timeout_id, each.batch and str(each.batch), each.detail)
            for each in by_kind
        ),
    )
    for kind, count in counts.items():
        write_text(f"{kind}: {grouped(count)}")


def _verdict(found: VerifyResult) -> Iterator[str]:
    if found.doubtful:
        listed = ", ".join(map(str, found.doubtful))
        yield f"doubtful: batches {listed}; `migrator db resolve` says what is known"
    yield f"{counted(found.rows_checked, 'row')} compared with what was claimed"
    yield headline(
        found.verdict,
        contradictions=sum(found.counts.values()),
        doubtful=len(found.doubtful),
        quarantined=sum(each.count(RowState.QUARANTINED) for each in found.endpoints),
        not_checked=len(found.not_checked),
    )
