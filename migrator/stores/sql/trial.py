"""Proving that claiming will work, by doing it and rolling it back."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, Engine, insert

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.database.portable import too_long
from migrator.database.types import database_now
from migrator.errors import StoreError
from migrator.ledger.claims import inserted_id
from migrator.ledger.states import Mode
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import Lane, RunId
from migrator.stores.ports import ClaimRequest
from migrator.stores.sql.claims import LegacyTables, SqlClaims
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import LATEST, LegacyTable

_BYTES: Final = 1024 * 1024


def trial_claim(
    engine: Engine, tables: LegacyTables, ledger: LedgerTables, endpoint: StoreEndpoint
) -> None:
    """Claim one row, put it back, and roll all of it back; see ``ports.Store.trial_claim``."""
    legacy = tables.legacy_table(endpoint.source)
    claims = SqlClaims(engine, ledger, tables)
    doing = f"a trial claim from {legacy.source}; nothing was changed"
    with translating(StoreError, doing=doing), writing(engine) as connection:
        _check_rights(connection, legacy)
        request = _request(insert_run(connection, ledger, endpoint), endpoint)
        claim = claims.claim_within(connection, legacy, request)
        # without a row, too: the right to insert is looked at all the same
        batch = claim.batch.id if claim else None
        claims.put_back(connection, legacy, ledger.timeout.c.batch_id == batch)
        connection.rollback()


def _check_rights(connection: Connection, legacy: LegacyTable) -> None:
    """Tell which right is missing; the server's own message names only the table."""
    dialect = dialect_for(connection.dialect.name)
    obstacle = dialect.obstacle(connection, legacy)
    if obstacle is not None:
        raise StoreError(f"nothing can be claimed from {legacy.source}: {obstacle}")
    missing = dialect.missing_rights(connection, legacy)
    if missing:
        raise StoreError(
            f"the database user lacks {', '.join(missing)} on {legacy.source}; nothing was "
            "changed: have your DBA run what `migrator db grants` prints"
        )


def insert_run(connection: Connection, ledger: LedgerTables, endpoint: StoreEndpoint) -> RunId:
    """Write the run a trial pretends to belong to; the caller rolls it back.

    Raises:
        StoreError: The ledger has no room for the endpoint's name or place.
    """
    if (why := too_long(endpoint, connection.dialect.name)) is not None:
        raise StoreError(why)
    statement = insert(ledger.run).values(
        endpoint=endpoint.name,
        source=endpoint.source,
        options="{}",
        tool_version="trial",  # nothing empty: on Oracle that would be NULL
        status="trial",
        begun_at=database_now(),
    )
    return RunId(inserted_id(connection.execute(statement)))


def _request(run: RunId, endpoint: StoreEndpoint) -> ClaimRequest:
    return ClaimRequest(
        run=run,
        endpoint=endpoint,
        lease=Lease(lane=Lane(0), owner="trial", token=0),
        mode=Mode.STAGED,
        due_after=None,
        due_until=LATEST - timedelta(days=1),
        max_rows=1,
        max_bytes=_BYTES,
        cursor=None,
    )
