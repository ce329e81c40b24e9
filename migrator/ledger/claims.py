"""Claims into the ledger: proving the ownership of lane and batch, and opening a batch.

Rules of this file: lock the lane first, then the batch, as when a lane is taken over. Transactions
that lock rows of a legacy table (claim, store, give back, recall) use the other order, except on
PostgreSQL: batch, rows, lane, because they wait for each other's rows. A process that takes over an
expired lane may then wait for the batch of a transaction that waits for the lane. The database ends
one of the two, or its timeout does, and that one begins again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    FromClause,
    func,
    insert,
    select,
    update,
)

from migrator.database import mssql
from migrator.database.portable import among, for_update
from migrator.database.types import KEY_CHARS, database_now
from migrator.errors import LeaseLost, StoreError
from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import OPEN, BatchState, Mode, RowState
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, RunId

_KNOWS_NO_LONGEST: Final = frozenset({"postgresql", "sqlite"})
_RENEWS_FREELY: Final = "postgresql"


def hold_lease(connection: Connection, ledger: LedgerTables, lease: Lease) -> None:
    """Keep the lane from changing its owner until the end of the transaction.

    On PostgreSQL, ``FOR KEY SHARE`` waits for no renewal and blocks none. Taking the lane over
    locks the row ``FOR UPDATE`` and therefore waits for this transaction.

    Raises:
        LeaseLost: The owner has changed already.
    """
    table = ledger.lease
    query = select(table.c.token).where(
        table.c.name == ledger.lease_name(lease.lane), table.c.token == lease.token
    )
    if connection.execute(for_update(query, table, shared=True)).first() is None:
        raise LeaseLost(f"lane {lease.lane} no longer belongs to {lease.owner}")


@contextmanager
def under_lease(connection: Connection, ledger: LedgerTables, lease: Lease) -> Iterator[None]:
    """Do work of unknown length that may be committed only while *lease* is current.

    PostgreSQL locks the lane from the beginning, and renewals do not wait. On other databases they
    would, until the lease ran out during the work: there, the lane is read first and locked at the
    end. If another process took it over meanwhile, the work is rolled back.

    Raises:
        LeaseLost: The owner has changed. The caller rolls back.
    """
    if connection.dialect.name == _RENEWS_FREELY:
        hold_lease(connection, ledger, lease)
        yield
        return
    table = ledger.lease
    query = select(table.c.token).where(table.c.name == ledger.lease_name(lease.lane))
    if connection.scalar(query) != lease.token:
        raise LeaseLost(f"lane {lease.lane} no longer belongs to {lease.owner}")
    yield
    hold_lease(connection, ledger, lease)


def take_over(connection: Connection, ledger: LedgerTables, lease: Lease) -> None:
    batch = ledger.batch
    connection.execute(
        update(batch)
        .where(
            batch.c.lane == lease.lane,
            batch.c.state.in_({*OPEN, BatchState.DOUBTFUL}),
            batch.c.lease_token != lease.token,
        )
        .values(lease_token=lease.token, owner=lease.owner)
    )


def hold_batch(
    connection: Connection, ledger: LedgerTables, batch: Batch, lease: Lease
) -> tuple[int, int]:
    """Lock the batch until the end of the transaction; return its size and body bytes.

    Raises:
        LeaseLost: Its state, attempt or token is not as expected.
    """
    table = ledger.batch
    query = select(table.c.size, table.c.body_bytes).where(
        table.c.id == batch.id,
        table.c.state == batch.state,
        table.c.attempt == batch.attempt,
        table.c.lease_token == lease.token,
    )
    found = connection.execute(for_update(query, table)).first()
    if found is None:
        raise LeaseLost(f"batch {batch.id} no longer belongs to {lease.owner}; nothing was changed")
    return found.size, found.body_bytes


def open_batch(
    connection: Connection,
    ledger: LedgerTables,
    *,
    run: RunId,
    endpoint: StoreEndpoint,
    lease: Lease,
    mode: Mode,
    state: BatchState,
    size: int = 0,
    body_bytes: int = 0,
    **values: Any,
) -> Batch:
    """Insert a new batch, whose timeouts follow in the same transaction; *values*: more columns."""
    written: dict[str, Any] = {
        "endpoint": endpoint.name,
        "source": endpoint.source,
        "lane": lease.lane,
        "mode": mode,
        "state": state,
        "attempt": 0,
        "size": size,
        "body_bytes": body_bytes,
    }
    statement = insert(ledger.batch).values(
        run_id=run, owner=lease.owner, lease_token=lease.token, **written, **values
    )
    return Batch(id=BatchId(inserted_id(connection.execute(statement))), run=run, **written)


def inserted_id(result: CursorResult[Any]) -> int:
    key = result.inserted_primary_key
    if key is None:
        raise StoreError("the database returned no id for a new row; rolled back")
    return int(key[0])


def insert_run(
    connection: Connection,
    ledger: LedgerTables,
    endpoint: StoreEndpoint,
    *,
    options: Mapping[str, object],
    version: str,
    status: str,
    **values: Any,
) -> RunId:
    statement = insert(ledger.run).values(
        endpoint=endpoint.name,
        source=endpoint.source,
        options=json.dumps(options, sort_keys=True),
        tool_version=version,
        status=status,
        begun_at=database_now(),
        **values,
    )
    return RunId(inserted_id(connection.execute(statement)))


def latest_run(
    connection: Connection, ledger: LedgerTables, source: str, endpoint: str
) -> RunId | None:
    run = ledger.run.c
    query = select(func.max(run.id)).where(run.source == source, run.endpoint == endpoint)
    found = connection.scalar(query)
    return None if found is None else RunId(found)


def insert_trial_run(
    connection: Connection, ledger: LedgerTables, endpoint: StoreEndpoint
) -> RunId:
    """The caller rolls it back. Raise ``StoreError`` if the ledger cannot store the endpoint."""
    if (why := too_long(endpoint, connection.dialect.name)) is not None:
        raise StoreError(why)
    # nothing empty: on Oracle that would be NULL
    return insert_run(connection, ledger, endpoint, options={}, version="trial", status="trial")


def too_long(endpoint: StoreEndpoint, dialect: str) -> str | None:
    """Return why the ledger cannot store the endpoint's name or source; None: it can."""
    if dialect in _KNOWS_NO_LONGEST:
        return None
    for what, text in (("name", endpoint.name), ("place", endpoint.source)):
        if (chars := mssql.length(text) if dialect == "mssql" else len(text)) > KEY_CHARS:
            return (
                f"the {what} of endpoint {endpoint.name} has {chars} characters, and a ledger in "
                f"{dialect} stores at most {KEY_CHARS}: its timeouts stay where they are; leave "
                "this endpoint out, by naming the others with --endpoint or in [[endpoints]], or "
                "give its table a shorter name"
            )
    return None


def in_quarantine(
    timeout: FromClause, batch: FromClause, which: QuarantineFilter
) -> list[ColumnElement[bool]]:
    """Return the conditions under which a row of *timeout* is in quarantine and *which* means it.

    Conditions on its batch are put as a subquery, so that *batch* need not be joined.
    """
    row = timeout.c
    found: list[ColumnElement[bool]] = [row.state == RowState.QUARANTINED]
    wanted = {"reason": which.reason, "store_id": which.timeout_id}
    found += [row[name] == value for name, value in wanted.items() if value is not None]
    if which.endpoints is not None:
        found.append(among(row.endpoint, which.endpoints))
    if which.mode is not None:
        of_mode = batch.alias("of_mode")
        found.append(row.batch_id.in_(select(of_mode.c.id).where(of_mode.c.mode == which.mode)))
    return found
