"""A document store as people ask about it: endpoints, a scan, a trial, counts and answer times.

Rules of this file: nothing is changed, and no more than so many timeouts are listed for a count.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, inspect, select

from migrator.database.engine import retrying_read, writing
from migrator.errors import LedgerError, StoreError, StoreUnavailable, UnknownEndpoint
from migrator.ledger.claims import insert_trial_run
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.documents.ledger import DocumentLedger, insert_claim
from migrator.stores.documents.ports import NONEXISTENT_ID, Document, DocumentStore, DueRange
from migrator.stores.ports import DueTime, StoreRemark, TableCount, by_span, until
from migrator.stores.requests import ScannedRow, SummaryRequest, trial_request
from migrator.stores.sql.legacy_table import LATEST

_MOST: Final = 20_000
T = TypeVar("T")
_KEPT_FOR_S: Final = 60.0
"""A document store is not listed more often than that for a page."""


class DocumentStoreView:
    """Implements ``Store`` over a document store and the ledger."""

    def __init__(
        self,
        engine: Engine,
        ledger: LedgerTables,
        records: DocumentLedger,
        documents: DocumentStore,
        *,
        named: Sequence[str] = (),
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._records = records
        self._documents = documents
        self._named = frozenset(named)
        self._counted: dict[str, tuple[float, Sequence[datetime]]] = {}

    @property
    def kind(self) -> str:
        return self._documents.kind

    def endpoints(self) -> Sequence[StoreEndpoint]:
        """An endpoint whose last timeout was claimed is in the ledger only."""
        found = {each.source: each for each in self._documents.endpoints()}
        found |= {each.source: each for each in self._in_ledger()}
        return sorted(found.values(), key=attrgetter("name"))

    def find(self, name: str) -> StoreEndpoint:
        """An endpoint without a timeout is known if the settings or the ledger name it."""
        endpoint = self._endpoint(name)
        if name in self._named or endpoint in self._in_ledger():
            return endpoint
        known = self.endpoints()
        if endpoint not in known:
            raise UnknownEndpoint(name, tuple(each.name for each in known))
        return endpoint

    def expected(self, name: str) -> StoreEndpoint:
        return self._endpoint(name)

    def scan(self, endpoint: StoreEndpoint) -> Iterator[Sequence[ScannedRow]]:
        """Works without a ledger, too: then no timeout is in it."""
        has_ledger = self._has_ledger()
        for page in self._documents.list(endpoint, with_sizes=True):
            ids = [TimeoutId(each.id) for each in page if each.why_unclaimable is None]
            known = self._records.known(endpoint.source, ids) if has_ledger else set()
            yield [replace(each, is_in_ledger=each.id in known) for each in page]

    def summary(self, endpoint: StoreEndpoint, request: SummaryRequest) -> None:
        del endpoint, request

    def due_times(self, endpoint: StoreEndpoint, now: datetime) -> Sequence[DueTime]:
        del endpoint, now
        return ()

    def trial_claim(self, endpoint: StoreEndpoint) -> None:
        """Write a claim into the ledger and roll back, and prove the rights at the store."""
        doing = f"a trial claim from {endpoint.source}; nothing was changed"
        with writing(self._engine, StoreError, doing=doing) as connection:
            run = insert_trial_run(connection, self._ledger, endpoint)
            request = trial_request(run, endpoint)
            insert_claim(connection, self._ledger, request, [_invented()])
            connection.rollback()
        self._documents.probe(endpoint)

    def unfinished_vendor_runs(self) -> Sequence[str]:
        return self._documents.unfinished_vendor_runs()

    def remarks(self) -> Sequence[StoreRemark]:
        return ()

    def count(
        self,
        source: str,
        now: datetime,
        *,
        limits: Sequence[datetime] = (),
        most: int = _MOST,
    ) -> TableCount:
        """Return how many timeouts *source* has, and how soon they are due, as of *now*.

        Of more than *most* the soonest are counted; what was listed is kept for a minute.
        """
        listed = self._listed(source, most)
        dues = Counter(listed[:most])
        return TableCount(
            rows=len(listed),
            is_all=len(listed) <= most,
            due=by_span(dues, now),
            until=until(dues, limits),
        )

    def _listed(self, source: str, most: int) -> Sequence[datetime]:
        at_s, kept = self._counted.get(source, (0.0, ()))
        if source in self._counted and time.monotonic() - at_s < _KEPT_FOR_S:
            return kept
        endpoint = endpoint_at(self._documents, source)
        found = self._documents.soonest(endpoint, DueRange(None, LATEST), most + 1)
        listed = [each.due_at for each in found]
        self._counted[source] = (time.monotonic(), listed)
        return listed

    def read_anew(self, endpoint: StoreEndpoint) -> None:
        del endpoint

    def access_latency_s(self, source: str, *, timeout: timedelta) -> float:
        """Time a read of an id that does not exist; may take longer than *timeout*."""
        endpoint = endpoint_at(self._documents, source)
        began_s = time.monotonic()
        try:
            next(iter(self._documents.read(endpoint, [NONEXISTENT_ID])), None)
        except StoreUnavailable:
            took_s = time.monotonic() - began_s
            if took_s < timeout.total_seconds():
                raise
            return took_s
        return time.monotonic() - began_s

    def _endpoint(self, name: str) -> StoreEndpoint:
        return StoreEndpoint(name=EndpointName(name), source=self._documents.source_of(name))

    def _in_ledger(self) -> Sequence[StoreEndpoint]:
        if not self._has_ledger():
            return ()
        run = self._ledger.run
        met = self._asked(
            "looking for endpoints in the ledger",
            lambda c: c.execute(select(run.c.endpoint, run.c.source).distinct()).all(),
        )
        endpoints = [(self._endpoint(name), source) for name, source in met]
        return [endpoint for endpoint, source in endpoints if endpoint.source == source]

    def _has_ledger(self) -> bool:
        table = self._ledger.timeout
        return self._asked(
            "looking for the ledger",
            lambda c: inspect(c).has_table(table.name, schema=table.schema),
        )

    def _asked(self, doing: str, work: Callable[[Connection], T]) -> T:
        return retrying_read(self._engine, work, failed=LedgerError, doing=doing)


def _invented() -> Document:
    return Document(
        id=TimeoutId("trial"),
        destination=None,
        saga_id=None,
        due_at=LATEST,
        body=b"",
        headers_text=None,
        version="",
        extra="{}",
    )


def endpoint_at(documents: DocumentStore, source: str) -> StoreEndpoint:
    name = source.removeprefix(documents.source_of(""))
    return StoreEndpoint(name=EndpointName(name), source=source)
