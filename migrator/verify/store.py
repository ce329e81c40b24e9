"""Reading the books of a ledger, and of the legacy tables beside it, to verify them.

Rules of this file: nothing is changed, and PostgreSQL is told so; what is compared was read at
one moment; no transaction is open when a call returns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, case, func, or_, select

from migrator.database.engine import reading
from migrator.database.failures import retrying
from migrator.database.portable import among
from migrator.errors import LedgerError, StoreError, StoreUnavailable
from migrator.ledger.states import BatchState
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId, content_hash
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.store import TableStore
from migrator.verify.auditing import AuditQueries, is_intact
from migrator.verify.ports import AuditedRow, KnownTimeout, LevelSighting
from migrator.verify.report import BatchGap, DestinationBalance, EndpointBalance

T = TypeVar("T")

_CONTENTS: Final = 50
"""Rows with headers and body that are read at a time, where the database cannot hash them."""


class LedgerVerifications:
    """What every store has in common; a subclass adds what its store has."""

    def __init__(self, engine: Engine, ledger: LedgerTables) -> None:
        """Compare *ledger* with itself."""
        self._dialect = dialect_for(engine.dialect.name)
        self._engine = self._dialect.read_only(engine)
        self._ledger = ledger
        self._queries = AuditQueries(ledger, self._dialect)

    # ── balances ────────────────────────────────────────────────────────────────────────────

    def balances(self) -> Sequence[EndpointBalance]:
        """Return every endpoint's balance, all at one moment; see ``ports.Verifications``."""
        row, batch = self._ledger.timeout, self._ledger.batch
        claiming = select(
            batch.c.endpoint, batch.c.source, func.sum(batch.c.size), func.sum(batch.c.purged)
        ).group_by(batch.c.endpoint, batch.c.source)
        counting = self._queries.with_batch(
            select(row.c.endpoint, row.c.source, self._queries.state(), func.count())
        ).group_by(row.c.endpoint, row.c.source, self._queries.state())

        def read(connection: Connection) -> list[EndpointBalance]:
            claimed = {(e, s): (size, gone) for e, s, size, gone in connection.execute(claiming)}
            rows = defaultdict[tuple[str, str], dict[str, int]](dict)
            for endpoint, source, state, count in connection.execute(counting):
                rows[endpoint, source][state] = count
            keys = sorted({*claimed, *rows})
            in_store = {source: self._in_store(connection, source) for _, source in keys}
            return [
                EndpointBalance(
                    endpoint=EndpointName(endpoint),
                    source=source,
                    in_store=in_store[source],
                    claimed=int(claimed.get((endpoint, source), (0, 0))[0]),
                    purged=int(claimed.get((endpoint, source), (0, 0))[1]),
                    rows=rows.get((endpoint, source), {}),
                )
                for endpoint, source in keys
            ]

        return self._read("adding up the ledger", read, is_long=True)

    def destinations(self, *, now: datetime) -> Sequence[DestinationBalance]:
        """Return what was handed over or set aside; see ``ports.Verifications``."""
        row = self._ledger.timeout
        is_handed_over, is_quarantined = (
            self._queries.is_handed_over(),
            self._queries.is_quarantined(),
        )

        def count(which: ColumnElement[bool]) -> ColumnElement[int]:
            return func.sum(case((which, 1), else_=0))

        query = (
            self._queries.with_batch(
                select(
                    row.c.endpoint,
                    row.c.destination,
                    count(is_handed_over & (row.c.due > now)),
                    count(is_handed_over & (row.c.due <= now)),
                    count(is_quarantined),
                )
            )
            .where(or_(is_handed_over, is_quarantined))
            .group_by(row.c.endpoint, row.c.destination)
        )

        def read(connection: Connection) -> list[DestinationBalance]:
            return [
                DestinationBalance(
                    endpoint=EndpointName(endpoint),
                    destination=destination,
                    waiting=int(waiting),
                    left=int(left),
                    quarantined=int(quarantined),
                )
                for endpoint, destination, waiting, left, quarantined in connection.execute(query)
            ]

        found = self._read("counting destinations", read, is_long=True)
        return sorted(found, key=lambda each: (each.endpoint, each.destination or ""))

    def gaps(
        self, endpoints: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[BatchGap]]:
        """Return batches with other rows than they should have; see ``ports.Verifications``."""
        gap = self._queries.gaps().subquery("gap")
        query = select(gap, func.count().over().label("total")).order_by(gap.c.id)
        if endpoints:
            query = query.where(among(gap.c.endpoint, endpoints))

        def read(connection: Connection) -> tuple[int, list[BatchGap]]:
            found = connection.execute(query.limit(max(at_most, 1))).all()
            return _total(found), [_gap(each) for each in found[:at_most]]

        return self._read("counting the rows of every batch", read, is_long=True)

    # ── rows ────────────────────────────────────────────────────────────────────────────────

    def rows(
        self, *, after: int, at_most: int, claimed_since: datetime | None = None
    ) -> Sequence[AuditedRow]:
        """Return the next rows of the ledger; see ``ports.Verifications``."""
        row, batch = self._ledger.timeout, self._ledger.batch
        query = self._queries.rows().where(row.c.id > after).order_by(row.c.id).limit(at_most)
        if claimed_since is not None:
            recent = select(batch.c.id).where(batch.c.claimed_at >= claimed_since)
            query = query.where(row.c.batch_id.in_(recent))

        def read(connection: Connection) -> list[AuditedRow]:
            return [audited_row(found) for found in connection.execute(query)]

        return self._read("reading the ledger's rows", read, is_long=claimed_since is not None)

    def intact(self, ids: Collection[int]) -> Mapping[int, bool]:
        """Return of each row whether it is as it was claimed; see ``ports.Verifications``."""
        if not ids:
            return {}
        query = self._queries.intact(ids)

        def read(connection: Connection) -> dict[int, bool | None]:
            found = connection.execute(query, execution_options={"yield_per": _CONTENTS})
            return {row.id: is_intact(row) for row in found}

        told = self._read("hashing the ledger's rows", read)
        return {
            id_: self._has_its_hash(id_) if is_same is None else is_same
            for id_, is_same in told.items()
        }

    def _has_its_hash(self, id_: int) -> bool:
        """Return whether a row is as it was claimed; it is too large for the database to hash."""

        def read(connection: Connection) -> bool:
            parts = [connection.scalar(query) for query in self._queries.content_of(id_)]
            return bool(parts[0] == content_hash(*parts[1:]))

        return self._read(f"reading the large row {id_} of the ledger", read)

    # ── sightings ───────────────────────────────────────────────────────────────────────────

    def known(self, sightings: Collection[LevelSighting]) -> Mapping[LevelSighting, KnownTimeout]:
        """Return sightings whose row the ledger has; see ``ports.Verifications``."""
        if not sightings:
            return {}
        query = self._queries.with_keys({_key(sighting) for sighting in sightings})

        def read(connection: Connection) -> dict[tuple[int, int], Row[Any]]:
            return {(row.batch_id, row.row_index): row for row in connection.execute(query)}

        found = self._read("looking for timeouts in the ledger", read)
        return {
            sighting: _known(found[_key(sighting)], sighting)
            for sighting in sightings
            if _key(sighting) in found
        }

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _sources(self, connection: Connection, endpoints: Collection[str]) -> Sequence[str]:
        batch = self._ledger.batch
        query = select(batch.c.source).distinct()
        if endpoints:
            query = query.where(among(batch.c.endpoint, endpoints))
        return connection.scalars(query).all()

    def _in_store(self, connection: Connection, source: str) -> int | None:
        """Return how many timeouts *source* has at the moment of *connection*; None: unknown."""
        del connection, source
        return None

    def _read(self, doing: str, read: Callable[[Connection], T], *, is_long: bool = False) -> T:
        def work() -> T:
            with self._reading(doing, is_long=is_long) as connection:
                return read(connection)

        return work() if is_long else retrying(work)

    @contextmanager
    def _reading(self, doing: str, *, is_long: bool) -> Iterator[Connection]:
        with reading(self._engine, LedgerError, doing=doing) as connection:
            if is_long:
                self._dialect.allow_long(connection)
            yield connection


class SqlVerifications(LedgerVerifications):
    """Implements ``ports.Verifications`` over one database with ledger and legacy tables."""

    def __init__(self, engine: Engine, ledger: LedgerTables, store: TableStore) -> None:
        """Compare *ledger* with itself and with the tables of *store*."""
        super().__init__(engine, ledger)
        self._store = store

    def in_both_places(
        self, endpoints: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[AuditedRow]]:
        """Return timeouts that are in their table, and open here; see ``ports.Verifications``."""

        def read(connection: Connection) -> tuple[int, list[AuditedRow]]:
            total, first = 0, list[AuditedRow]()
            for source in sorted(self._sources(connection, endpoints)):
                if legacy := self._legacy(source):
                    query = self._queries.also_in(legacy, endpoints, limit=max(at_most, 1))
                    found = connection.execute(query).all()
                    total += _total(found)
                    first += map(audited_row, found)
            return total, first[:at_most]

        return self._read("comparing legacy tables with the ledger", read, is_long=True)

    def _legacy(self, source: str) -> LegacyTable | None:
        try:
            return self._store.legacy_table(source)
        except StoreUnavailable:
            raise
        except StoreError:
            return None

    def _in_store(self, connection: Connection, source: str) -> int | None:
        legacy = self._legacy(source)
        if legacy is None:
            return None
        counting = select(func.count()).select_from(legacy.table).where(*legacy.is_owned)
        return connection.execute(counting).scalar_one()


def _total(found: Sequence[Row[Any]]) -> int:
    return found[0].total if found else 0


def _key(sighting: LevelSighting) -> tuple[int, int]:
    return sighting.row.batch, sighting.row.row_index


def _known(row: Row[Any], sighting: LevelSighting) -> KnownTimeout:
    return KnownTimeout(
        id=row.id,
        timeout_id=TimeoutId(row.store_id),
        batch=BatchId(row.batch_id),
        endpoint=EndpointName(row.endpoint),
        due_at=row.due,
        state=row.state,
        is_same_body=row.body_hash == sighting.body_hash,
    )


def _gap(row: Row[Any]) -> BatchGap:
    return BatchGap(
        batch=BatchId(row.id),
        endpoint=EndpointName(row.endpoint),
        state=BatchState(row.state),
        size=row.size,
        purged=row.purged,
        rows=row.rows,
    )


def audited_row(row: Row[Any]) -> AuditedRow:
    """Return a row of ``AuditQueries.rows`` as a value."""
    return AuditedRow(
        id=row.id,
        batch=BatchId(row.batch_id),
        row_index=row.row_index,
        endpoint=EndpointName(row.endpoint),
        source=row.source,
        timeout_id=TimeoutId(row.store_id),
        destination=row.destination,
        due_at=row.due,
        state=row.state,
        reason=row.reason,
        content_hash=row.content_hash,
        handed_over_at=row.handed_over_at,
    )
