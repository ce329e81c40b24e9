"""Claims into the ledger: proving that lane and batch are still ours, and opening a batch.

Rules of this file: the lane first, then the batch, as whoever takes a lane over locks them. What
locks rows of a legacy table (claiming, storing, giving back, recalling) does it the other way
round, but on PostgreSQL: batch, rows, lane, for they wait for each other's rows. Who takes a lane
whose lease ran out under one of them may wait for its batch while it waits for the lane. The
database ends one of the two, or that one gives up, and it begins again.
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
    """Keep the lane from changing hands until the end of the transaction.

    On PostgreSQL, ``FOR KEY SHARE`` waits for no renewal and makes none wait; taking the lane
    over locks the row ``FOR UPDATE`` and therefore waits for us.

    Raises:
        LeaseLost: It has changed hands already.
    """
    table = ledger.lease
    query = select(table.c.token).where(
        table.c.name == ledger.lease_name(lease.lane), table.c.token == lease.token
    )
    if connection.execute(for_update(query, table, shared=True)).first() is None:
        raise LeaseLost(f"lane {lease.lane} no longer belongs to {lease.owner}")


@contextmanager
def under_lease(connection: Connection, ledger: LedgerTables, lease: Lease) -> Iterator[None]:
    """Do work of unknown length that may be committed only while the lane is the lease's.

    PostgreSQL holds the lane from the beginning, and renewals do not wait. Elsewhere they would,
    until the lease ran out under the work: there, the lane is looked at first, and held at the
    end. Whoever took it over meanwhile makes the work be rolled back.

    Raises:
        LeaseLost: It has changed hands. The caller rolls back.
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
    """Have each batch under way in the lane be its owner's; the caller holds the lane."""
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
    """Keep the batch as it is until the end of the transaction; return its size and body bytes.

    Raises:
        LeaseLost: It is not what the caller believes, or not the lease's any more.
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
    """Write the row of a new batch, in the caller's transaction; its timeouts are not in it yet.

    *size* and *body_bytes* as far as they are known; *values* are further columns.
    """
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
    """Return the id the database gave the row that was just inserted."""
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
    """Write the row of a new run, in the caller's transaction; *values* are further columns."""
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
    """Return the run of an endpoint that began last; None: none is known."""
    run = ledger.run.c
    query = select(func.max(run.id)).where(run.source == source, run.endpoint == endpoint)
    found = connection.scalar(query)
    return None if found is None else RunId(found)


def insert_trial_run(
    connection: Connection, ledger: LedgerTables, endpoint: StoreEndpoint
) -> RunId:
    """Write the run a trial pretends to belong to; the caller rolls it back.

    Raises:
        StoreError: The ledger has no room for the endpoint's name or place.
    """
    if (why := too_long(endpoint, connection.dialect.name)) is not None:
        raise StoreError(why)
    # nothing empty: on Oracle that would be NULL
    return insert_run(connection, ledger, endpoint, options={}, version="trial", status="trial")


def too_long(endpoint: StoreEndpoint, dialect: str) -> str | None:
    """Return why a ledger cannot write down whose timeouts are where; None: it can."""
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
