"""Comparing the ledger with the legacy store.

Rules of this file: a SQL store is compared in one statement for each table, at one moment. A store
of documents is listed, never at the moment the ledger is read; so a timeout that seems to be in
both is looked at once more before it is told, and no transaction is open meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, Engine, func, or_, select

from migrator.database.portable import among
from migrator.errors import SourceGone, StoreError, StoreLocked, StoreUnavailable
from migrator.ledger.states import HALF_DONE, RowState
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.documents.ports import DocumentStore
from migrator.stores.documents.store import endpoint_at
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.store import TableStore
from migrator.verify.queries import LedgerAudit, counted
from migrator.verify.report import EndpointBalance, EvidenceRecord

_IDS_AT_A_TIME: Final = 500
"""Ids that any database takes as parameters of one query."""


class SqlAudit(LedgerAudit):
    """Compares within one database, which has ledger and legacy tables."""

    def __init__(self, engine: Engine, ledger: LedgerTables, store: TableStore) -> None:
        super().__init__(engine, ledger)
        self._store = store

    def in_both_places(
        self, endpoints: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[EvidenceRecord]]:
        """Return timeouts that are in their table, and open here."""
        sources = sorted(self._sources(endpoints))

        def read(connection: Connection) -> tuple[int, list[EvidenceRecord]]:
            total, first = 0, list[EvidenceRecord]()
            for source in sources:
                if legacy := self._legacy(source):
                    query = self._queries.also_in(legacy, endpoints, limit=max(at_most, 1))
                    count, found = counted(connection.execute(query).mappings())
                    total += count
                    first += [EvidenceRecord(**each) for each in found]
            return total, first[:at_most]

        return self._read("comparing legacy tables with the ledger", read, is_long=True)

    def _legacy(self, source: str) -> LegacyTable | None:
        if source in self.unread:
            return None
        try:
            legacy = self._store.legacy_table(source)
            self._store.demand_readable(source)
        except StoreLocked as exc:
            self.unread[source] = str(exc)
            return None
        except StoreUnavailable:
            raise
        except StoreError:  # it is gone
            return None
        return legacy

    def _in_store(self, connection: Connection, source: str) -> int | None:
        legacy = self._legacy(source)
        if legacy is None:
            return None
        counting = select(func.count()).select_from(legacy.table).where(*legacy.is_owned)
        return connection.execute(counting).scalar_one()


class DocumentAudit(LedgerAudit):
    """Compares a ledger with a store of documents, by listing that."""

    def __init__(self, engine: Engine, ledger: LedgerTables, documents: DocumentStore) -> None:
        super().__init__(engine, ledger)
        self._documents = documents

    def balances(self) -> Sequence[EndpointBalance]:
        """Return every endpoint's balance.

        The ledger is read at one moment, the store is listed right after it.
        """
        return [replace(each, in_store=self._count(each.source)) for each in super().balances()]

    def in_both_places(
        self, endpoints: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[EvidenceRecord]]:
        """Return timeouts that are in the store, and open here.

        What is half claimed or half released may be in both places, and is not told. What a
        recall has begun to restore is: until it is finished, a timeout manager and the broker
        would both send it.
        """
        total, first = 0, list[EvidenceRecord]()
        for source in sorted(self._sources(endpoints)):
            for ids in self._listed(source):
                suspects = self._open_here(source, ids, endpoints)
                if not suspects:
                    continue
                there = self._still_there(source, [each.timeout_id for each in suspects])
                both = [
                    each
                    for each in self._open_here(source, sorted(there), endpoints)
                    if each.timeout_id in there
                ]
                total += len(both)
                first += both[: max(at_most - len(first), 0)]
        return total, first

    def _open_here(
        self, source: str, ids: Collection[TimeoutId], endpoints: Collection[EndpointName]
    ) -> Sequence[EvidenceRecord]:
        row, batch = self._ledger.timeout, self._ledger.batch
        query = (
            self._queries.rows()
            .where(
                row.c.source == source,
                self._ledger.are_open(row, sorted(ids)),
                or_(row.c.going_back.is_(None), row.c.going_back == RowState.RECALLED),
                batch.c.state.not_in(HALF_DONE),
            )
            .order_by(row.c.id)
        )
        if endpoints:
            query = query.where(among(row.c.endpoint, endpoints))
        return self._records(query, "comparing the store with the ledger")

    def _still_there(self, source: str, ids: Sequence[TimeoutId]) -> set[TimeoutId]:
        return {each.id for each in self._documents.read(self._endpoint(source), ids)}

    def _listed(self, source: str) -> Iterator[Sequence[TimeoutId]]:
        with suppress(SourceGone):  # then none of it is in two places
            for page in self._documents.list(self._endpoint(source)):
                ids = [TimeoutId(each.id) for each in page if each.why_unclaimable is None]
                for start in range(0, len(ids), _IDS_AT_A_TIME):
                    yield ids[start : start + _IDS_AT_A_TIME]

    def _count(self, source: str) -> int | None:
        try:
            return sum(len(page) for page in self._documents.list(self._endpoint(source)))
        except SourceGone:
            return None

    def _endpoint(self, source: str) -> StoreEndpoint:
        return endpoint_at(self._documents, source)
