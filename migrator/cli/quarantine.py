"""``migrator quarantine``: rows kept aside with a reason."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import Endpoints, Yes
from migrator.cli.output import (
    demand_place,
    replacing,
    say,
    write_document,
    write_table,
    write_text,
)
from migrator.cli.session import Session, confirmed, session_of
from migrator.errors import ConfigError
from migrator.ledger.report import QuarantinedTimeout, QuarantineFilter
from migrator.nservicebus.conversion import Reason
from migrator.quarantine import decisions
from migrator.reports import json_text
from migrator.text import counted

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from migrator.app.quarantine import QuarantineParts
    from migrator.quarantine.rows import SqlQuarantine

verbs = new_group("Rows kept aside with a reason: list, show, retry, export, discard.")

_BODY_SHOWN_BYTES: Final = 2000

ReasonCode = Annotated[
    str | None, typer.Option("--reason", metavar="CODE", help="Only with this reason.")
]
Id = Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this timeout.")]


def _filter(
    endpoints: Sequence[str] | None, reason: str | None, timeout_id: str | None
) -> QuarantineFilter:
    if reason is not None and reason not in set(Reason):
        raise ConfigError(f"--reason {reason!r} must be one of {', '.join(Reason)}")
    return QuarantineFilter(endpoints=endpoints or None, reason=reason, timeout_id=timeout_id)


def _opened(session: Session) -> AbstractContextManager[QuarantineParts]:
    from migrator.app.quarantine import open_quarantine

    return open_quarantine(session.settings())


@verbs.command("list")
def list_rows(
    context: typer.Context,
    endpoint: Endpoints = None,
    reason: ReasonCode = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The most rows to list.")] = 100,
) -> None:
    """List rows in quarantine, without their content.

    Examples:
      migrator quarantine list
      migrator quarantine list --endpoint Sales --endpoint Billing --json
    """
    from migrator.quarantine.documents import ListDocument

    session = session_of(context)
    which = _filter(endpoint, reason, None)
    with _opened(session) as quarantine:
        rows = quarantine.rows.page(which, limit=limit)
    if session.wants_json:
        listed = {"rows": [decisions.row_document(row) for row in rows]}
        write_document(ListDocument.model_validate(listed))
    else:
        write_table(
            ("endpoint", "timeout", "due", "destination", "reason", "detail"),
            ((r.endpoint, r.timeout_id, r.due_at, r.destination, r.reason, r.detail) for r in rows),
        )
        say(counted(len(rows), "row") + ("; there may be more, see --limit" * (len(rows) == limit)))


@verbs.command()
def show(
    context: typer.Context,
    timeout_id: Annotated[str, typer.Argument(metavar="ID", help="The timeout's id.")],
    endpoint: Endpoints = None,
) -> None:
    """Show one row with its headers and its body.

    Examples:
      migrator quarantine show 7d0c1b52-9e4f-4a3b-1234-08da9f3c5e7b
      migrator quarantine show 7d0c1b52-9e4f-4a3b-1234-08da9f3c5e7b --json
    """
    from migrator.quarantine.documents import ShowDocument

    session = session_of(context)
    with _opened(session) as quarantine:
        found = quarantine.rows.full(_filter(endpoint, None, timeout_id))
    if not found:
        raise ConfigError(f"no timeout {timeout_id!r} is in quarantine")
    if session.wants_json:
        shown = {"rows": [decisions.timeout_document(each) for each in found]}
        write_document(ShowDocument.model_validate(shown))
        return
    for each in found:
        _write_one(each)


@verbs.command()
def retry(
    context: typer.Context,
    endpoint: Endpoints = None,
    reason: ReasonCode = None,
    timeout_id: Id = None,
) -> None:
    """Try rows again, once the cause has been fixed.

    They go to lane 0; a running `migrator run`, or the next one, hands them over. Rows that a
    dispatcher was to send go back into their tables, where it finds them.

    Examples:
      migrator quarantine retry --reason destination-unbound
      migrator quarantine retry --id 7d0c1b52-9e4f-4a3b-1234-08da9f3c5e7b
    """
    from migrator.quarantine.documents import RetryDocument

    session = session_of(context)
    which = _filter(endpoint, reason, timeout_id)
    with _opened(session) as quarantine:
        done = quarantine.retry(which)
    rows = counted(done.rows, "row")
    back = counted(done.returned, "of them is", "of them are")
    session.tell(
        RetryDocument(rows=done.rows),
        f"{rows} to be tried again: by a running `migrator run` within seconds, "
        "else by the next one",
        *([f"{back} back in their tables for a dispatcher"] if done.returned else ()),
    )


@verbs.command(short_help="Write rows with all the store had, one JSON document a line.")
def export(
    context: typer.Context,
    endpoint: Endpoints = None,
    reason: ReasonCode = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write there instead of stdout.")
    ] = None,
) -> None:
    """Write rows with everything the store had, one JSON document per line; bodies as base64.

    The first line names the format: migrator/quarantine-export/1. Nothing leaves the quarantine.
    A new file is readable for its owner only; one that is there is replaced when all is written.

    Examples:
      migrator quarantine export --output quarantine.jsonl
      migrator quarantine export --endpoint Sales > quarantine.jsonl
    """
    session = session_of(context)
    which = _filter(endpoint, reason, None)
    if output is not None:
        demand_place(output)
    with _opened(session) as quarantine:
        if output is None:
            count = _export(quarantine.rows, which, sys.stdout)
        else:
            with replacing(output) as stream:
                count = _export(quarantine.rows, which, stream)
    say(f"{counted(count, 'row')} written")


def _export(rows: SqlQuarantine, which: QuarantineFilter, stream: TextIO) -> int:
    stream.write(json_text(decisions.EXPORT_HEADER) + "\n")
    count = 0
    for row in decisions.exported(rows, which):
        stream.write(json_text(row))  # a body in it is large enough without a copy
        stream.write("\n")
        count += 1
    return count


@verbs.command(short_help="Give rows up for good: they are never sent.")
def discard(
    context: typer.Context,
    endpoint: Endpoints = None,
    reason: ReasonCode = None,
    timeout_id: Id = None,
    yes: Yes = False,
) -> None:
    """Give rows up: they are never sent, and `decommission` does not wait for them any more.

    The ledger keeps them as `discarded` until `migrator db purge`; its events say how many.
    This cannot be undone: export them first.

    Examples:
      migrator quarantine discard --reason body-missing --yes
      migrator quarantine discard --id 7d0c1b52-9e4f-4a3b-1234-08da9f3c5e7b --yes
    """
    from migrator.quarantine.documents import DiscardDocument

    session = session_of(context)
    which = _filter(endpoint, reason, timeout_id)
    confirmed(yes=yes, what="these rows of the quarantine would never be sent")
    with _opened(session) as quarantine:
        done = quarantine.discard(which)
    session.tell(DiscardDocument(rows=done.rows), f"{counted(done.rows, 'row')} discarded")


def _write_one(found: QuarantinedTimeout) -> None:
    row = found.row
    facts = [
        ("timeout", row.timeout_id),
        ("endpoint", f"{row.endpoint} ({row.source})"),
        ("destination", row.destination),
        ("due", row.due_at),
        ("saga", found.saga_id),
        ("batch", row.batch),
        ("reason", row.reason),
        ("detail", row.detail),
    ]
    write_table(("", ""), ((name, None if value is None else str(value)) for name, value in facts))
    write_text(f"headers:\n{found.headers_text or ''}")
    body = found.body or b""
    shown = body[:_BODY_SHOWN_BYTES].decode("utf-8", errors="backslashreplace")
    more = f"\n… {counted(len(body) - _BODY_SHOWN_BYTES, 'more byte')}; see export" * (
        len(body) > _BODY_SHOWN_BYTES
    )
    write_text(f"body ({counted(len(body), 'byte')}):\n{shown}{more}")
