"""``migrator decommission``: remove what nobody needs once an endpoint's timeouts are gone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Final, TextIO

import typer

from migrator.app import App
from migrator.cli.opening import opened
from migrator.cli.output import say, write_json, write_table, write_text
from migrator.cli.session import Json, Yes, confirmed, duration, session_of
from migrator.config import EndpointMode
from migrator.decommission.broker import DecommissionBroker
from migrator.decommission.queries import DecommissionLedger, DecommissionStore
from migrator.decommission.remove import Decommission
from migrator.decommission.report import Options, Report, Statement, Target, bindings_record
from migrator.decommission.rules import HOW_TO_DISABLE
from migrator.errors import ConfigError, ExitCode, UnknownEndpoint
from migrator.ledger.lease_keeper import current_owner
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, Entity

EPILOG: Final = """\b
Examples:
  migrator decommission --endpoint Sales --dry-run
  migrator decommission --endpoint Sales --yes
  migrator decommission --endpoint Sales --drop-table --yes

\b
Exit codes: 0 done, or nothing prevents it (--dry-run); 2 not confirmed; 3 refused, with all
  reasons; 4 store or broker unreachable."""


def decommission(
    context: typer.Context,
    endpoint: Annotated[
        str, typer.Option(metavar="NAME", help="The endpoint; as its input queue is spelled.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would happen; writes nothing.")
    ] = False,
    drop_table: Annotated[
        bool, typer.Option("--drop-table", help="Drop the legacy table, too, if it is empty.")
    ] = False,
    give_up_recall: Annotated[
        bool,
        typer.Option(
            "--give-up-recall",
            help="Drop the table although handed-over timeouts could still be recalled.",
        ),
    ] = False,
    wait: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long queues stay unbound before they go."),
    ] = "10s",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove the queues of an endpoint's timeout manager, and ours when nobody needs them.

    Switch the timeout manager off first. Refuses, with all reasons, while anything is left: rows,
    messages, consumers, batches. Prints the SQL that archives or drops the table.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load()
    options = Options(
        drops_table=drop_table,
        gives_up_recall=give_up_recall,
        wait_s=duration("--wait", wait).total_seconds(),
    )
    if not dry_run and not sys.stdin.isatty():
        what = f"decommission deletes queues; it wants to know that {endpoint}'s timeout manager"
        confirmed(yes=yes, what=f"{what} is switched off ({HOW_TO_DISABLE})")
    with opened(loaded) as app:
        app.ledger_facts.verify()
        work = opened_work(app, endpoint, options, owner=current_owner())
        report = work.planned(is_dry=dry_run)
        if not dry_run and (not report.refusals or report.bind_again):
            if not yes:
                _show(report, stream=sys.stderr)  # what is asked about is talk
                _ask(endpoint)
            report = work.carried_out(report)
    if session.wants_json:
        write_json("decommission", _document(report))
    else:
        _show(report)
    if report.refusals:
        raise typer.Exit(ExitCode.PREFLIGHT_REFUSED)


def opened_work(app: App, name: str, options: Options, *, owner: str) -> Decommission:
    """Return what removes the things of the endpoint called *name*.

    Raises:
        UnknownEndpoint: It has no table, and never had one that was dropped here.
    """
    tables = app.sql_side(wanted_for="decommissioning").store
    ledger = DecommissionLedger(app.engine, app.tables)
    try:
        endpoint = tables.find(name)
    except UnknownEndpoint:
        endpoint = StoreEndpoint(name=EndpointName(name), source=tables.source_of(name))
        if not ledger.knows(endpoint.source):
            raise
    own = app.settings.endpoint(name)
    others = {EndpointName(e.name): e for e in app.settings.endpoints if e.name != name}
    target = Target(
        endpoint=endpoint,
        queue=QueueName(own.input_queue),
        is_dispatched=own.mode is not EndpointMode.MIGRATE,
        forwarding=[n for n, each in others.items() if each.mode is EndpointMode.FORWARD],
        sharing=[
            n
            for n, each in others.items()
            if each.input_queue == own.input_queue or tables.source_of(n) == endpoint.source
        ],
    )
    return Decommission(
        target=target,
        options=options,
        broker=DecommissionBroker(app.connection, app.management, ledger_id=app.ledger_id),
        store=DecommissionStore(app.engine, tables),
        ledger=ledger,
        runs=app.runs,
        leases=app.leases,
        lease=app.plan.lease,
        dispatcher_lane=app.leases.dispatcher_lane,
        owner=owner,
        fault=app.fault,
    )


def _ask(endpoint: str) -> None:
    say(f"is the timeout manager of {endpoint} switched off? {HOW_TO_DISABLE}")
    if typer.prompt(f"type {endpoint} if it is, and all this shall go", err=True) != endpoint:
        raise ConfigError("not confirmed; nothing was changed")


# ── showing ─────────────────────────────────────────────────────────────────────────────────────


def _show(report: Report, *, stream: TextIO | None = None) -> None:
    rows = [("unbind", _binding(each), "") for each in report.unbind]
    rows += [("delete", f"{each.kind} {each.name}", "") for each in report.delete]
    rows += [("keep", f"{each.entity.kind} {each.entity.name}", each.why) for each in report.keep]
    rows += [("bind again", _binding(each), "") for each in report.bind_again]
    if rows:
        write_table(["", "what", "why"], rows, stream=stream)
    tell = write_text if stream is None else say
    for statement in report.sql:
        tell(f"-- {_fate(report, statement)}\n{statement.sql};")
    for note in report.notes:
        say(f"note: {note}")
    for refusal in report.refusals:
        say(f"refused ({refusal.code}): {refusal.text}; {refusal.remedy}")
    if report.is_done:
        say("done")


def _fate(report: Report, statement: Statement) -> str:
    if statement.purpose != "drop":
        return f"{statement.purpose}: run it yourself, or none"
    if report.is_table_dropped:
        return "drop: was done"
    wanted = report.wants_drop and not report.refusals
    return "drop: --yes does it" if wanted else "drop: --drop-table --yes does it"


def _binding(binding: Binding) -> str:
    key = f" ({binding.key})" if binding.key else ""
    return f"exchange {binding.source} → {binding.target.kind} {binding.target.name}{key}"


def _document(report: Report) -> Mapping[str, object]:
    target = report.target
    return {
        "endpoint": target.endpoint.name,
        "queue": target.queue,
        "source": target.endpoint.source,
        "dry_run": report.is_dry,
        "done": report.is_done,
        "refusals": [
            {"code": each.code, "text": each.text, "remedy": each.remedy}
            for each in report.refusals
        ],
        "unbind": bindings_record(report.unbind),
        "delete": [_entity(each) for each in report.delete],
        "keep": [_entity(each.entity) | {"why": each.why} for each in report.keep],
        "bind_again": bindings_record(report.bind_again),
        "sql": [_statement(report, each) for each in report.sql],
        "notes": list(report.notes),
    }


def _entity(entity: Entity) -> dict[str, str]:
    return {"kind": str(entity.kind), "name": entity.name}


def _statement(report: Report, statement: Statement) -> Mapping[str, object]:
    is_drop = statement.purpose == "drop"
    return {
        "purpose": statement.purpose,
        "sql": statement.sql,
        "wanted": is_drop and report.wants_drop,
        "done": is_drop and report.is_table_dropped,
    }
