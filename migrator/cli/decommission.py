"""``migrator decommission``: remove what is unused once an endpoint's timeouts are gone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, TextIO

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import DryRun, Yes
from migrator.cli.output import say, write_document, write_table, write_text
from migrator.cli.session import confirmed, duration, session_of
from migrator.decommission.rules import HOW_TO_DISABLE, Options, Plan, Target, bindings_record
from migrator.errors import ConfigError, ExitCode
from migrator.rabbitmq.entities import Binding, Entity

verbs = new_group()


@verbs.command()
def decommission(
    context: typer.Context,
    endpoint: Annotated[
        str, typer.Option(metavar="NAME", help="One endpoint, spelled like its input queue.")
    ],
    dry_run: DryRun = False,
    drop_table: Annotated[
        bool, typer.Option("--drop-table", help="Also drop the legacy table, if it is empty.")
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
        typer.Option(
            metavar="DURATION", help="How long queues stay unbound before they are deleted."
        ),
    ] = "10s",
    yes: Yes = False,
) -> None:
    """Remove the queues of an endpoint's timeout manager, and migrator's if no longer needed.

    Switch the timeout manager off first. Refuses, with all reasons, while anything is left: rows,
    messages, consumers, batches. Prints the SQL that archives or drops the table.

    Examples:
      migrator decommission --endpoint Sales --dry-run
      migrator decommission --endpoint Sales --yes
      migrator decommission --endpoint Sales --drop-table --yes

    Exit codes: 0 done, or nothing prevents it (--dry-run); 2 not confirmed; 3 refused, with all
      reasons; 4 store or broker unreachable.
    """
    from migrator.app.decommission import open_decommission
    from migrator.decommission.documents import DecommissionDocument

    session = session_of(context)
    options = Options(
        drops_table=drop_table,
        gives_up_recall=give_up_recall,
        wait_s=duration("--wait", wait).total_seconds(),
    )
    if not dry_run and not sys.stdin.isatty():
        what = f"decommission deletes queues; confirm that {endpoint}'s timeout manager"
        confirmed(yes=yes, what=f"{what} is switched off ({HOW_TO_DISABLE})")
    with open_decommission(session.settings(), endpoint, options) as work:
        sql = work.statements()
        plan = work.planned()
        if not dry_run and plan.has_steps:
            if not yes:
                _show(plan, sql, options, stream=sys.stderr)  # what is asked about is talk
                _ask(endpoint)
            with work.alone() as guard:
                plan = work.run(guard)
        elif not dry_run:
            plan = plan.without_steps()
        if plan.refusals:
            sql = {}  # what is refused must not be run by hand either
    if session.wants_json:
        document = _document(work.target, plan, sql, options, is_dry=dry_run)
        write_document(DecommissionDocument.model_validate(document))
    else:
        _show(plan, sql, options)
    if plan.refusals:
        raise typer.Exit(ExitCode.PREFLIGHT_REFUSED)


def _ask(endpoint: str) -> None:
    say(f"is the timeout manager of {endpoint} switched off? {HOW_TO_DISABLE}")
    if typer.prompt(f"type {endpoint} to confirm, and to remove all of this", err=True) != endpoint:
        raise ConfigError("not confirmed; nothing was changed")


# ── showing ─────────────────────────────────────────────────────────────────────────────────────


def _show(
    plan: Plan, sql: Mapping[str, str], options: Options, *, stream: TextIO | None = None
) -> None:
    rows = [("unbind", _binding(each), "") for each in plan.unbind]
    rows += [("delete", f"{each.kind} {each.name}", "") for each in plan.delete]
    rows += [("keep", f"{each.kind} {each.name}", why) for each, why in plan.keep.items()]
    rows += [("bind again", _binding(each), "") for each in plan.bind_again]
    if rows:
        write_table(["", "what", "why"], rows, stream=stream)
    is_wanted = options.drops_table and not plan.refusals
    fates = {
        "archive": "not run; run it yourself if you want the archive",
        "drop": "--yes does it" if is_wanted else "--drop-table --yes does it",
    }
    if plan.is_done and plan.drops_table:
        fates["drop"] = "was done"
    tell = write_text if stream is None else say
    for purpose, statement in sql.items():
        tell(f"-- {purpose}: {fates[purpose]}\n{statement};")
    for note in plan.notes:
        say(f"note: {note}")
    for refusal in plan.refusals:
        say(f"refused ({refusal.code}): {refusal.text}; {refusal.remedy}")
    if plan.is_done:
        say("done")


def _binding(binding: Binding) -> str:
    key = f" ({binding.key})" if binding.key else ""
    return f"exchange {binding.source} → {binding.target.kind} {binding.target.name}{key}"


def _document(
    target: Target, plan: Plan, sql: Mapping[str, str], options: Options, *, is_dry: bool
) -> Mapping[str, object]:
    return {
        "endpoint": target.endpoint.name,
        "queue": target.queue,
        "source": target.source,
        "dry_run": is_dry,
        "done": plan.is_done,
        "refusals": [
            {"code": each.code, "text": each.text, "remedy": each.remedy} for each in plan.refusals
        ],
        "unbind": bindings_record(plan.unbind),
        "delete": [_entity(each) for each in plan.delete],
        "keep": [_entity(each) | {"why": why} for each, why in plan.keep.items()],
        "bind_again": bindings_record(plan.bind_again),
        "sql": [
            {
                "purpose": purpose,
                "sql": statement,
                "wanted": purpose == "drop" and options.drops_table,
                "done": purpose == "drop" and plan.is_done and plan.drops_table,
            }
            for purpose, statement in sql.items()
        ],
        "notes": list(plan.notes),
    }


def _entity(entity: Entity) -> dict[str, str]:
    return {"kind": str(entity.kind), "name": entity.name}
