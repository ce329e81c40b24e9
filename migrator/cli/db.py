"""``migrator db``: the ledger's tables; longer verbs have a module of their own."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from migrator.cli.lazy import LazyGroup, new_group
from migrator.cli.options import DryRun, Run, Yes
from migrator.cli.session import confirmed, duration, session_of
from migrator.nservicebus.timeouts import RunId
from migrator.text import counted


class Verbs(LazyGroup):
    """Those with a module of their own."""

    lines: ClassVar = {
        "grants": "Print the rights the daemon needs, in database or broker.",
        "resolve": "Record the outcome of a doubtful or half-done batch, or list them.",
        "adopt": "Make a ledger that was copied or moved this database's own.",
    }
    order: ClassVar = ("upgrade", "sql", "grants", "resolve", "adopt", "purge")


verbs = new_group("The ledger's tables: upgrade, sql, grants, resolve, adopt, purge.", cls=Verbs)


@verbs.command(short_help="Create the ledger, or bring it to the version needed here.")
def upgrade(context: typer.Context, dry_run: DryRun = False) -> None:
    """Create the ledger, or bring it to the version this program needs.

    Needs the right to create tables. Safe to repeat; a second one at a time waits for the first.

    Examples:
      migrator db upgrade
      migrator db upgrade --dry-run --json
      migrator --store-url postgresql+psycopg://owner@db/sales db upgrade
    """
    from migrator.app.schema import upgrade_ledger
    from migrator.ledger.version import UpgradeDocument

    session = session_of(context)
    before, after, needed = upgrade_ledger(session.settings(), is_dry_run=dry_run)
    document = UpgradeDocument(before=before, after=after, needed=needed, dry_run=dry_run)
    text = "already" if before == after else f"now (before: {before or 'none'})"
    if dry_run:
        text = f"(needed: {needed})"
    session.tell(document, f"the ledger has version {after or 'none'} {text}")


@verbs.command(short_help="Print the SQL that creates the ledger in an empty database.")
def sql(
    context: typer.Context,
    dialect: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Kind of database: postgresql, mysql (and MariaDB), mssql, oracle, sqlite.",
        ),
    ] = "postgresql",
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The ledger's schema.  [env: MIGRATOR_STORE__LEDGER_SCHEMA]"
        ),
    ] = None,
) -> None:
    """Print the SQL that creates the ledger in an empty database, for a DBA to read and run.

    It is what `db upgrade` would do. Connects nowhere.

    Examples:
      migrator db sql > ledger.sql
      migrator db sql --dialect postgresql --schema migrator
    """
    from migrator.ledger import migrations

    session = session_of(context)
    text = migrations.sql(dialect, schema or session.settings().store.ledger_schema)
    session.write(migrations.SqlDocument(dialect=dialect, sql=text), text.rstrip("\n"))


@verbs.command(short_help="Delete bodies and headers of rows that were settled long ago.")
def purge(
    context: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Only rows settled, and due, longer ago than this."),
    ] = "30d",
    run: Run = None,
    yes: Yes = False,
) -> None:
    """Delete bodies and headers of rows that were handed over or given back long ago.

    The counts stay, and so do rows in quarantine and rows that are not due yet.

    Examples:
      migrator db purge --older-than 90d --yes
      migrator db purge --run 12 --yes
    """
    from migrator.app.purge import purge_ledger
    from migrator.ledger.purge import PurgeDocument

    session = session_of(context)
    age = duration("--older-than", older_than)
    confirmed(
        yes=yes, what=f"rows settled and due more than {older_than} ago would be deleted for good"
    )
    before, count = purge_ledger(session.settings(), age, None if run is None else RunId(run))
    document = PurgeDocument(before=before, rows=count)
    session.tell(document, f"{counted(count, 'row')} deleted")
