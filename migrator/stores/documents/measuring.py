"""How much is in a document store and how fast it answers: bounded, and without changing anything.

Rules of this file: no more than so many timeouts are listed; what a claim needs first, a look for
the soonest due, is what is measured.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from migrator.errors import StoreUnavailable
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.documents.ports import DocumentStore
from migrator.stores.measuring_ports import TableCount
from migrator.stores.sql.counting import span_names, span_of
from migrator.stores.sql.legacy_table import LATEST

_MOST: Final = 20_000
_KEPT_FOR_S: Final = 60.0
"""A document store is not listed more often than that for a page."""


def endpoint_at(documents: DocumentStore, source: str) -> StoreEndpoint:
    """Return whose timeouts *source* has."""
    name = source.removeprefix(documents.source_of(""))
    return StoreEndpoint(name=EndpointName(name), source=source)


class DocumentCounting:
    """Counts by listing; an answer is kept for a minute."""

    def __init__(
        self, documents: DocumentStore, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """List *documents*."""
        self._documents = documents
        self._monotonic = monotonic
        self._kept: dict[str, tuple[float, TableCount]] = {}

    def count(self, source: str, now: datetime, *, most: int = _MOST) -> TableCount:
        """Return how many timeouts *source* has, and how soon they are due, as of *now*.

        Of more than *most* the soonest are counted; that there are more is told.
        """
        at_s, kept = self._kept.get(source, (0.0, None))
        if kept is not None and self._monotonic() - at_s < _KEPT_FOR_S:
            return kept
        listed = self._documents.soonest(
            endpoint_at(self._documents, source),
            due_after=None,
            due_until=LATEST,
            at_most=most + 1,
        )
        found = Counter(span_of(each.due_at - now) for each in listed[:most])
        names = span_names()
        due = [(names[index], found[index]) for index in sorted(found)]
        counted = TableCount(rows=len(listed), is_all=len(listed) <= most, due=due)
        self._kept[source] = (self._monotonic(), counted)
        return counted


class DocumentPulse:
    """Measures a look for the soonest due timeout."""

    def __init__(self, documents: DocumentStore) -> None:
        """Ask *documents*."""
        self._documents = documents

    def answer_s(self, source: str, *, patience: timedelta) -> float:
        """Return the seconds that the look takes; one that takes too long is at least *patience*.

        The look ends when the store's client gives up, which may be later than *patience*.
        """
        endpoint = endpoint_at(self._documents, source)
        began_s = time.monotonic()
        now = datetime.now(UTC)
        try:
            self._documents.soonest(
                endpoint, due_after=now - timedelta(hours=1), due_until=now, at_most=1
            )
        except StoreUnavailable:
            took_s = time.monotonic() - began_s
            if took_s < patience.total_seconds():
                raise
            return took_s
        return time.monotonic() - began_s
