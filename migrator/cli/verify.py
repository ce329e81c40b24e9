"""``migrator verify``: do store, ledger and broker agree?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Annotated, Final

import typer

from migrator import __version__
from migrator.app import App
from migrator.app.commands import new_verifier
from migrator.cli.evidence import EvidenceFile, open_evidence
from migrator.cli.opening import opened
from migrator.cli.output import console, json_text, say, write_table, write_text
from migrator.cli.results import Format, Output, about_of, chosen_form, write_result
from migrator.cli.session import Endpoints, Json, given, session_of, some_time
from migrator.delays.scan import ScanLimits
from migrator.errors import ExitCode
from migrator.ledger.exclusive import scanning_alone
from migrator.ledger.states import BatchState, RowState
from migrator.nservicebus.timeouts import EndpointName
from migrator.reports.pages import About
from migrator.reports.verify import verify_page
from migrator.verify.plan import VerifyPlan
from migrator.verify.report import EndpointBalance, Found, Verdict, Verification

EPILOG: Final = """\b
Examples:
  migrator verify
  migrator verify --scan --endpoint Sales
  migrator verify --scan --rate 5000 --evidence sales.jsonl
  migrator verify --scan --format html --output sales.html

\b
Exit codes: 0 balanced; 3 somebody recalls or scans; 4 store or broker unreachable;
  5 balanced, but rows are in quarantine; 6 something does not agree, or batches are doubtful."""

_STATES: Final = (
    ("handed over", BatchState.HANDED_OVER),
    ("dispatched", BatchState.DISPATCHED),
    ("quarantined", RowState.QUARANTINED),
    ("released", RowState.RELEASED),
    ("recalled", RowState.RECALLED),
    ("doubtful", BatchState.DOUBTFUL),
)


def verify(
    context: typer.Context,
    scan: Annotated[
        bool, typer.Option("--scan", help="Look at each message in the delay levels, too.")
    ] = False,
    endpoint: Endpoints = None,
    hold: Annotated[
        str, typer.Option(metavar="DURATION", help="Hold the messages of a level no longer.")
    ] = "20s",
    deepest: Annotated[
        int, typer.Option(metavar="N", min=0, help="Do not look into levels with more messages.")
    ] = 200_000,
    rate: Annotated[
        int, typer.Option(metavar="ROWS/S", min=0, help="Rows hashed a second; 0: all at once.")
    ] = 0,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Write one line per timeout; interrupted, the same command goes on for a day.",
        ),
    ] = None,
    delays: Annotated[
        str | None,
        typer.Option(
            metavar="v1|v2",
            show_default=False,
            help="Look into this generation of delays only; else into each that exists.",
        ),
    ] = None,
    form: Format = "table",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Compare store, ledger and broker, and say whether every timeout is accounted for.

    Changes nothing, and may run beside `migrator run`. Without --scan the levels are counted
    only; with it, messages of everybody are held for a moment, and can be late by as much.
    """
    session = session_of(context, as_json=as_json)
    form = chosen_form(form, output, wants_json=session.wants_json)
    loaded = session.load(given("broker.delays", delays, "--delays"))
    plan = VerifyPlan(
        endpoints=frozenset(EndpointName(name) for name in endpoint or ()),
        is_scan=scan,
        delays=None if delays is None else loaded.settings.broker.delays,
        scan=ScanLimits(hold_s=some_time("--hold", hold).total_seconds()),
        deepest=deepest,
        rate=rate,
    )
    with opened(loaded) as app:
        found, digest = _looked(app, plan, evidence)
        about = about_of(app, context.params)
    if form == "table" and output is None:
        show(found)
    else:
        write_result(_rendered(found, digest, form, about), output)
    if evidence is not None and form != "json":
        say(f"{evidence} is written; SHA-256 of its lines before the last: {digest}")
    raise typer.Exit(exit_code(found))


def exit_code(found: Verification) -> ExitCode:
    """Return what the process tells its caller."""
    if found.verdict is not Verdict.BALANCED:
        return ExitCode.DOUBTFUL
    quarantined = sum(each.count(RowState.QUARANTINED) for each in found.endpoints)
    return ExitCode.QUARANTINED if quarantined else ExitCode.DONE


def _looked(app: App, plan: VerifyPlan, evidence: Path | None) -> tuple[Verification, str | None]:
    """Verify, alone if all levels are looked through, and write into the audit trail what came."""
    app.ledger_facts.verify()
    _demand_known(app, plan)
    with scanning_alone(app.leases, app.plan.lease) if plan.is_scan else nullcontext():
        found, digest = _verified(app, plan, evidence)
    app.runs.record("verified", detail=_summary(found), batch=None)
    return found, digest


def _demand_known(app: App, plan: VerifyPlan) -> None:
    """Demand that ledger or store have the endpoints that were named.

    Raises:
        UnknownEndpoint: Neither has one of them.
    """
    booked = {each.endpoint for each in app.books.progress().endpoints}
    for name in sorted(plan.endpoints - booked):
        app.store.find(name)


def _verified(app: App, plan: VerifyPlan, evidence: Path | None) -> tuple[Verification, str | None]:
    about = {
        "taken_at": app.clock.now().isoformat(),
        "ledger": app.ledger_id,
        "version": __version__,
        "delays": "all" if plan.delays is None else str(plan.delays),
        "scan": plan.is_scan,
        "endpoints": sorted(plan.endpoints),
    }
    with nullcontext() if evidence is None else open_evidence(evidence, about) as file:
        try:
            with _progress() as progress:
                found = new_verifier(app, plan, evidence=file, progress=progress).run()
        except BaseException:
            _say_interrupted(file)
            raise
        if file is None:
            return found, None
        ended_at = app.clock.now().isoformat()
        return found, file.finish({"ended_at": ended_at, **_summary(found)})


def _say_interrupted(file: EvidenceFile | None) -> None:
    if file is not None:
        say(f"{file.partial} has what was done; the same command goes on")


@contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    if not sys.stderr.isatty():
        yield lambda _what, _done: None
        return
    with console(sys.stderr).status("verifying") as line:
        yield lambda what, done: line.update(f"verifying: {what}, {done} looked at")


# ── what is said ────────────────────────────────────────────────────────────────────────────────


def _summary(found: Verification) -> dict[str, object]:
    """Return verdict and counts: for the ledger's events, and the evidence's last line."""
    return {
        "verdict": str(found.verdict),
        "rows_checked": found.rows_checked,
        "rows_taken_over": found.rows_taken_over,
        "waiting": found.waiting,
        "discrepancies": _counts(found),
        "doubtful": list(found.doubtful),
        "not_checked": list(found.not_checked),
    }


def _rendered(found: Verification, digest: str | None, form: str, about: About) -> str:
    """Return *found* in one of ``FORMS``, for a file or a pipe."""
    if form == "table":
        with redirect_stdout(StringIO()) as out:
            show(found)
        return out.getvalue().rstrip("\n")
    text = json_text({"schema": "migrator/verify/1", **document(found, digest)})
    return verify_page(json.loads(text), about=about) if form == "html" else text


def _counts(found: Verification) -> Mapping[str, int]:
    return {str(kind): count for kind, count in sorted(found.counts.items()) if count}


def document(found: Verification, digest: str | None = None) -> dict[str, object]:
    """Return *found* as plain values for JSON."""
    return {
        "taken_at": found.taken_at,
        "verdict": str(found.verdict),
        "is_complete": found.is_complete,
        "rows_checked": found.rows_checked,
        "rows_taken_over": found.rows_taken_over,
        "waiting": found.waiting,
        "endpoints": [_endpoint(each) for each in found.endpoints],
        "destinations": [
            {
                "endpoint": each.endpoint,
                "destination": each.destination,
                "waiting": each.waiting,
                "left": each.left,
                "quarantined": each.quarantined,
            }
            for each in found.destinations
        ],
        "levels": [
            {
                "delays": str(each.delays),
                "level": each.level,
                "total": each.total,
                "ours": each.ours,
                "foreign": each.foreign,
            }
            for each in found.levels
        ],
        "counts": _counts(found),
        "discrepancies": [_found(each) for each in found.discrepancies],
        "doubtful": list(found.doubtful),
        "not_checked": list(found.not_checked),
        "evidence_sha256": digest,
    }


def _endpoint(balance: EndpointBalance) -> dict[str, object]:
    return {
        "endpoint": balance.endpoint,
        "source": balance.source,
        "in_store": balance.in_store,
        "claimed": balance.claimed,
        "in_flight": balance.in_flight,
        **{name.replace(" ", "_"): balance.count(state) for name, state in _STATES},
        "purged": balance.purged,
        "unaccounted": balance.unaccounted,
    }


def _found(found: Found) -> dict[str, object]:
    return {
        "kind": str(found.kind),
        "endpoint": found.endpoint,
        "timeout_id": found.timeout_id,
        "batch": found.batch,
        "detail": found.detail,
    }


def show(found: Verification) -> None:
    """Write *found* for people, the verdict last."""
    states = [name for name, _ in _STATES]
    write_table(
        ("endpoint", "claimed", "in flight", *states, "purged", "unaccounted", "in store"),
        (
            (
                each.endpoint,
                each.claimed,
                each.in_flight,
                *(each.count(state) for _, state in _STATES),
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
    _show_discrepancies(found.discrepancies, _counts(found))
    for text in found.not_checked:
        write_text(f"not checked: {text}")
    for line in _verdict(found):
        write_text(line)


def _show_levels(found: Verification) -> None:
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
        write_text(f"{kind}: {count}")


def _verdict(found: Verification) -> Iterator[str]:
    if found.doubtful:
        listed = ", ".join(map(str, found.doubtful))
        yield f"doubtful: batches {listed}; `migrator batch list` says what is known"
    yield f"{found.rows_checked} rows compared with what was claimed"
    if found.rows_taken_over:
        yield f"{found.rows_taken_over} rows more were compared by the call that was interrupted"
    texts = {
        Verdict.BALANCED: "everything that was looked at agrees",
        Verdict.DOUBTFUL: "everything agrees, but of the doubtful batches nobody can tell",
        Verdict.DISCREPANT: f"{sum(found.counts.values())} things do not agree",
    }
    yield f"{found.verdict}: {texts[found.verdict]}"
