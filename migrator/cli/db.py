"""``migrator db``: the ledger's tables; ``migrator ledger``: what is kept of settled rows."""

from __future__ import annotations

from typing import Annotated

import typer

from migrator.cli.adoption import adopt_ledger, keep_ledger, settle_lost_window
from migrator.cli.lazy import new_group
from migrator.cli.recall import DEEPEST, HOLD, MARGIN, Deepest, Hold, Margin, terms_of
from migrator.cli.session import (
    AllEndpoints,
    DryRun,
    Endpoints,
    Json,
    Run,
    Yes,
    confirmed,
    duration,
    endpoint_names,
    session_of,
)
from migrator.errors import ConfigError
from migrator.ledger import version
from migrator.ledger.grants import GrantedTable
from migrator.ledger.grants import grants as ledger_grants
from migrator.nservicebus.timeouts import RunId
from migrator.stores.endpoints import chosen_endpoints
from migrator.stores.sql.legacy_table import LegacyTable

verbs = new_group("The ledger's tables: upgrade, current, sql, grants, adopt.")


@verbs.command()
def upgrade(context: typer.Context, as_json: Json = False) -> None:
    """Create the ledger, or bring it to the version this program needs.

    Needs the right to create tables. Repeating is harmless; two at once wait for each other.

    Examples:
      migrator db upgrade
      migrator --store-url postgresql+psycopg://owner@db/sales db upgrade
    """
    from migrator.ledger import migrations

    session = session_of(context)
    with session.opened() as app:
        before = version.current(app.engine, app.tables)
        migrations.upgrade(app.engine, app.tables)
        after = version.current(app.engine, app.tables)
    text = "already" if before == after else f"now (before: {before or 'none'})"
    document = {"before": before, "after": after}
    session.tell("db-upgrade", document, f"the ledger has version {after} {text}")


@verbs.command()
def current(context: typer.Context, as_json: Json = False) -> None:
    """Show the ledger's version, and the one this program needs.

    Examples:
      migrator db current
      migrator db current --json
    """
    session = session_of(context)
    with session.opened() as app:
        found = version.current(app.engine, app.tables)
    needed = version.head()
    document = {"current": found, "needed": needed, "fits": found == needed}
    session.write("db-current", document, f"{found or 'none'} (needed: {needed})")


@verbs.command()
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
        typer.Option(metavar="NAME", help="The ledger's.  [env: MIGRATOR_STORE__LEDGER_SCHEMA]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the SQL that makes the ledger in an empty database, for a DBA to read and run.

    It is what `db upgrade` would do. Connects nowhere.

    Examples:
      migrator db sql > ledger.sql
      migrator db sql --dialect postgresql --schema migrator
    """
    from migrator.ledger import migrations

    session = session_of(context)
    text = migrations.sql(dialect, schema or session.load().settings.store.ledger_schema)
    session.write("db-sql", {"dialect": dialect, "sql": text}, text.rstrip("\n"))


@verbs.command()
def grants(
    context: typer.Context,
    role: Annotated[str, typer.Option(metavar="NAME", help="The daemon's database user.")],
    endpoint: Endpoints = None,
    all_endpoints: AllEndpoints = False,
    as_json: Json = False,
) -> None:
    """Print the GRANTs the daemon needs, and no more. Changes nothing.

    With a ledger beside a store that is no SQL database, those on the ledger.

    Examples:
      migrator db grants --role migrator_daemon
      migrator db grants --role migrator_daemon --endpoint Sales > grants.sql
      migrator db grants --role migrator@10.0.0.7
    """
    session = session_of(context)
    with session.opened() as app:
        names = endpoint_names(app, endpoint, all_endpoints=all_endpoints)
        if app.settings.store.kind.has_own_ledger:
            tables = []
        else:
            store = app.sql_side(wanted_for="granting").store
            found = chosen_endpoints(store, names)
            tables = [_granted(store.legacy_table(each.source)) for each in found]
        text = ledger_grants(app.tables.names, role, tables)
    session.write("db-grants", {"role": role, "sql": text}, text.rstrip("\n"))


def _granted(legacy: LegacyTable) -> GrantedTable:
    table = legacy.table
    return GrantedTable(schema=table.schema or "", name=table.name, lock_column=legacy.lock_column)


@verbs.command()
def adopt(
    context: typer.Context,
    moved: Annotated[
        bool,
        typer.Option(
            "--moved",
            help="It is no copy: the database is here now, complete, and the former is gone.",
        ),
    ] = False,
    after_failover: Annotated[
        bool,
        typer.Option(
            "--after-failover",
            help="A replica took over: settle what it lacks by what is in the delay levels.",
        ),
    ] = False,
    margin: Margin = MARGIN,
    hold: Hold = HOLD,
    deepest: Deepest = DEEPEST,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make a ledger that came with a copied or moved database this database's own.

    A copy gets a new id, so that it never touches the queues of the original. Batches that were
    being handed over become doubtful: only the original knows what became of them. Refused while
    anybody works on it here; leases that were copied run out by themselves.

    With --moved it keeps its id, and the next run finishes what is under way. Refused while
    anybody works on it, here or, as far as the broker tells, at the former place. Only for all
    of the database: what lacks the last transactions (a replica that was behind) is a copy.

    With --after-failover it keeps its id, too. The levels are gone through: a row that is in the
    store again while its message waits there is recorded as handed over. What was due by then and
    is met nowhere may have been delivered: those rows become doubtful, for `migrator batch
    resolve`. --margin, --hold and --deepest are as in `migrator recall`. PostgreSQL only.

    Each needs the rights of `db upgrade`: the daemon's user may only read the ledger's id.

    Examples:
      migrator db adopt --yes
      migrator db adopt --moved --dry-run
      migrator db adopt --moved --yes
      migrator db adopt --after-failover --dry-run
      migrator db adopt --after-failover --yes
    """
    session = session_of(context)
    if moved and after_failover:
        raise ConfigError("--moved and --after-failover exclude each other")
    terms = terms_of(margin, hold, deepest)
    with session.opened() as app:
        if after_failover:
            raise typer.Exit(settle_lost_window(session, app, terms, yes=yes, is_dry_run=dry_run))
        if moved:
            keep_ledger(session, app, yes=yes, is_dry_run=dry_run)
        else:
            adopt_ledger(session, app, yes=yes and not dry_run)


ledger_verbs = new_group("What is kept of settled rows: purge.")


@ledger_verbs.command()
def purge(
    context: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Only rows settled, and due, longer ago than this."),
    ] = "30d",
    run: Run = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete bodies and headers of rows that were handed over or given back long ago.

    The counts stay; rows in quarantine stay, and rows that are not due yet.

    Examples:
      migrator ledger purge --older-than 90d --yes
      migrator ledger purge --run 12 --yes
    """
    session = session_of(context)
    age = duration("--older-than", older_than)
    confirmed(
        yes=yes, what=f"rows settled and due more than {older_than} ago would be deleted for good"
    )
    with session.opened(with_ledger=True) as app:
        before = app.clock.now() - age
        count = app.upkeep.purge(before=before, run=None if run is None else RunId(run))
        detail = {"before": before.isoformat(), "run": run, "rows": count}
        app.runs.record("ledger_purged", detail=detail, batch=None)
    session.tell("ledger-purge", {"before": before, "rows": count}, f"{count} rows deleted")
