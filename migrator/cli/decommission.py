"""``migrator decommission``: remove what nobody needs once an endpoint's timeouts are gone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TextIO

import typer

from migrator.app import App
from migrator.app.decommission import DecommissionWiring
from migrator.cli.opening import opened
from migrator.cli.output import say, write_json, write_table, write_text
from migrator.cli.session import Json, Yes, confirmed, duration, session_of
from migrator.decommission.ports import Statement
from migrator.decommission.record import bindings_record
from migrator.decommission.refusals import HOW_TO_DISABLE
from migrator.decommission.rules import Kept, Plan, Refusal, Wishes, still_whole
from migrator.decommission.run import alone
from migrator.decommission.work import Outcome, Subject
from migrator.errors import ConfigError, ExitCode
from migrator.ledger.owner import current_owner, is_surely_dead
from migrator.rabbitmq.entities import Binding, Entity

EPILOG: Final = """\b
Examples:
  migrator decommission --endpoint Sales --dry-run
  migrator decommission --endpoint Sales --yes
  migrator decommission --endpoint Sales --drop-table --yes

\b
Exit codes: 0 done, or nothing speaks against it (--dry-run); 2 not confirmed; 3 refused, with all
  reasons; 4 store or broker unreachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """What is shown: the plan, or what became of it."""

    subject: Subject
    is_dry: bool
    wants_drop: bool
    sql: Sequence[Statement]
    refusals: Sequence[Refusal]
    unbind: Sequence[Binding]
    delete: Sequence[Entity]
    keep: Sequence[Kept]
    bind_again: Sequence[Binding]
    notes: Sequence[str] = ()
    is_done: bool = False
    is_table_dropped: bool = False


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
    wait_s = duration("--wait", wait).total_seconds()
    if not dry_run and not sys.stdin.isatty():
        what = f"decommission deletes queues; it wants to know that {endpoint}'s timeout manager"
        confirmed(yes=yes, what=f"{what} is switched off ({HOW_TO_DISABLE})")
    wishes = Wishes(drops_table=drop_table, gives_up_recall=give_up_recall)
    owner = current_owner()
    with opened(loaded) as app:
        app.ledger_facts.verify()
        wiring = DecommissionWiring(
            app, wishes, ignoring=lambda other: other == owner or is_surely_dead(other)
        )
        subject = wiring.subject(endpoint)
        report = _planned(wiring, subject, wishes, is_dry=dry_run)
        if not dry_run and (not report.refusals or report.bind_again):
            if not yes:
                _show(report, stream=sys.stderr)  # what is asked about is talk
                _ask(endpoint)
            report = _carried_out(app, wiring, report, owner=owner, wait_s=wait_s)
    if session.wants_json:
        write_json("decommission", _document(report))
    else:
        _show(report)
    if report.refusals:
        raise typer.Exit(ExitCode.PREFLIGHT_REFUSED)


def _planned(
    wiring: DecommissionWiring, subject: Subject, wishes: Wishes, *, is_dry: bool
) -> _Report:
    plan: Plan = wiring.plan(subject)
    is_announced = is_dry or not plan.refusals  # what is refused is not done
    return _Report(
        subject=subject,
        is_dry=is_dry,
        wants_drop=wishes.drops_table,
        sql=wiring.store.statements(subject.endpoint.source),
        refusals=plan.refusals,
        unbind=plan.unbind if is_announced else (),
        delete=plan.delete if is_announced else (),
        keep=plan.keep,
        bind_again=still_whole(plan.bind_again, () if plan.refusals else plan.delete),
        notes=plan.notes,
    )


def _carried_out(
    app: App, wiring: DecommissionWiring, planned: _Report, *, owner: str, wait_s: float
) -> _Report:
    subject = planned.subject
    with alone(app, subject.endpoint, owner=owner) as guard:
        done: Outcome = wiring.decommission(wait_s=wait_s, guard=guard).run(subject)
    again = done.bound_again
    return _Report(
        subject=subject,
        is_dry=False,
        wants_drop=planned.wants_drop,
        sql=planned.sql,
        refusals=done.refusals,
        unbind=[each for each in done.unbound if each not in again],
        delete=done.deleted,
        keep=done.keep,
        bind_again=again,
        notes=planned.notes,
        is_done=not done.refusals,
        is_table_dropped=done.is_table_dropped,
    )


def _ask(endpoint: str) -> None:
    say(f"is the timeout manager of {endpoint} switched off? {HOW_TO_DISABLE}")
    if typer.prompt(f"type {endpoint} if it is, and all this shall go", err=True) != endpoint:
        raise ConfigError("not confirmed; nothing was changed")


# ── showing ─────────────────────────────────────────────────────────────────────────────────────


def _show(report: _Report, *, stream: TextIO | None = None) -> None:
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


def _fate(report: _Report, statement: Statement) -> str:
    if statement.purpose != "drop":
        return f"{statement.purpose}: run it yourself, or none"
    if report.is_table_dropped:
        return "drop: was done"
    wanted = report.wants_drop and not report.refusals
    return "drop: --yes does it" if wanted else "drop: --drop-table --yes does it"


def _binding(binding: Binding) -> str:
    key = f" ({binding.key})" if binding.key else ""
    return f"exchange {binding.source} → {binding.target.kind} {binding.target.name}{key}"


def _document(report: _Report) -> Mapping[str, object]:
    subject = report.subject
    return {
        "endpoint": subject.endpoint.name,
        "queue": subject.queue,
        "source": subject.endpoint.source,
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


def _statement(report: _Report, statement: Statement) -> Mapping[str, object]:
    is_drop = statement.purpose == "drop"
    return {
        "purpose": statement.purpose,
        "sql": statement.sql,
        "wanted": is_drop and report.wants_drop,
        "done": is_drop and report.is_table_dropped,
    }
