"""Destinations that cannot be reached: their rows stay in the store until they are tried again.

``HeldDestinations`` knows them in memory for one endpoint's claims, ``SqlHeldDestinations`` in the
ledger, for the next process and for people.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from migrator.database import mssql
from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.database.portable import among
from migrator.delays.routing import Unreachable
from migrator.errors import LedgerError
from migrator.ledger.report import HeldDestination
from migrator.ledger.tables import STORE_ID_CHARS, LedgerPart
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.conversion import Reason

_log = logging.getLogger(__name__)

_FIRST_WAIT: Final = timedelta(seconds=5)
LONGEST_WAIT: Final = timedelta(minutes=5)
_LONGEST_REFUSED: Final = timedelta(seconds=15)
"""Room in a queue comes by itself."""
_MESSAGE_DECIDES: Final = frozenset({Reason.UNROUTABLE, Reason.REFUSED})
"""What a look at queue and binding does not see: only the next message tells whether it is over."""
_TRIES: Final = 50
"""Each vain one means that another process wrote or removed the same row meanwhile."""


class HeldDestinations:
    """What is held for one endpoint: in memory for claims, in the ledger for people."""

    def __init__(
        self,
        ledger: SqlHeldDestinations,
        endpoint: StoreEndpoint,
        *,
        longest_wait: timedelta = LONGEST_WAIT,
    ) -> None:
        """Know nothing yet; ``load`` reads what an earlier process held.

        *longest_wait* bounds the time between two looks; where a message is the look, it does not
        count.
        """
        self._ledger = ledger
        self.endpoint = endpoint
        self._longest_wait = longest_wait
        self._held: dict[str, HeldDestination] = {}

    def __len__(self) -> int:
        """Return how many destinations are held."""
        return len(self._held)

    def load(self) -> None:
        """Take over what the ledger has."""
        self._held = {each.destination: each for each in self._ledger.held(self.endpoint)}

    def is_held(self, destination: str, *, now: datetime) -> bool:
        """Return whether *destination* is left alone at *now*."""
        held = self._held.get(destination)
        return held is not None and _waits(held, now)

    def not_now(self, now: datetime) -> Collection[str]:
        """Return the destinations whose rows are not to be claimed at *now*."""
        return [name for name, held in self._held.items() if _waits(held, now)]

    def left_out(self, now: datetime) -> Collection[str]:
        """Return the destinations that a look has to free before their rows are claimed.

        Of one whose messages came back, or were refused, the next message after its time is the
        look.
        """
        return [
            name
            for name, held in self._held.items()
            if held.reason not in _MESSAGE_DECIDES or _waits(held, now)
        ]

    def to_try(self, now: datetime) -> Collection[HeldDestination]:
        """Return what is to be tried again at *now*."""
        return [held for held in self._held.values() if not _waits(held, now)]

    def hold(self, destination: str, why: Unreachable, *, now: datetime) -> HeldDestination:
        """Hold *destination* for a while, twice as long as the last time; return for how long."""
        before = self._held.get(destination)
        tries = 1 if before is None else before.tries + 1
        limits = {Reason.UNROUTABLE: LONGEST_WAIT, Reason.REFUSED: _LONGEST_REFUSED}
        held = HeldDestination(
            endpoint=self.endpoint.name,
            source=self.endpoint.source,
            destination=destination,
            reason=str(why.reason),
            detail=why.detail,
            tries=tries,
            since=now if before is None else before.since,
            next_try_at=now + min(wait_after(tries), limits.get(why.reason, self._longest_wait)),
        )
        self._ledger.hold(held)
        self._held[destination] = held
        return held

    def note_lost(self, destination: str, why: Unreachable, *, now: datetime) -> None:
        """Hold *destination*, and say so, unless it is left alone already.

        Then it is of a batch that was claimed before, or that somebody asked for: not a new try.
        """
        if self.is_held(destination, now=now):
            return
        held = self.hold(destination, why, now=now)
        _log.warning(
            "a destination cannot be reached; its timeouts wait in the store",
            extra={
                "action": "destination_held",
                "endpoint": self.endpoint.name,
                "destination": destination,
                "reason": held.reason,
                "detail": held.detail,
                "tries": held.tries,
                "next_try_at": held.next_try_at,
            },
        )

    def free(self, destinations: Iterable[str | None]) -> None:
        """Hold *destinations* no longer; harmless for those that are not held."""
        found = {name for name in destinations if name is not None and name in self._held}
        if found:
            self._ledger.free(self.endpoint, found)
        for name in found:
            del self._held[name]


class SqlHeldDestinations(LedgerPart):
    """What the ledger keeps of destinations that cannot be reached."""

    def held(self, endpoint: StoreEndpoint) -> Sequence[HeldDestination]:
        """Return the destinations whose rows wait, by name."""
        table = self._tables.held_destination
        query = select(table).where(table.c.source == endpoint.source).order_by(table.c.destination)
        doing = f"reading the held destinations of {endpoint.name}"
        return [HeldDestination(**row._mapping) for row in self._read(query, doing=doing)]

    def hold(self, held: HeldDestination) -> None:
        """Record that rows for a destination wait; replaces what was recorded for it."""
        doing = f"holding a destination of {held.endpoint}"
        for _ in range(_TRIES):
            with translating(LedgerError, doing=doing):
                try:
                    with writing(self._engine) as connection:
                        self._record(connection, held)
                except IntegrityError:  # somebody else wrote its first row just now
                    continue
            return
        raise LedgerError(f"{doing} failed: other processes keep changing it; try again")

    def _record(self, connection: Connection, held: HeldDestination) -> None:
        table = self._tables.held_destination
        values = asdict(held) | {"detail": held.detail or "-"}  # on Oracle, nothing would be NULL
        key = {name: values.pop(name) for name in ("source", "destination")}
        is_it = [table.c[name] == value for name, value in key.items()]
        if not connection.execute(update(table).where(*is_it).values(values)).rowcount:
            connection.execute(insert(table).values(key | values))

    def free(self, endpoint: StoreEndpoint, destinations: Collection[str]) -> None:
        """Record that destinations are reached again; repeating is harmless."""
        table = self._tables.held_destination
        statement = delete(table).where(
            table.c.source == endpoint.source, among(table.c.destination, destinations)
        )
        with self._writing(f"freeing destinations of {endpoint.name}") as connection:
            connection.execute(statement)


def can_be_held(column: str | None) -> bool:
    """Return whether the ledger has room for *column*, the text of a Destination column.

    Counted as SQL Server counts, which has two for a character beyond the first 65 536.
    """
    return bool(column) and mssql.length(column or "") <= STORE_ID_CHARS


def _waits(held: HeldDestination, now: datetime) -> bool:
    """Return whether the next try is to come; one too far off is of a clock that was put back."""
    return timedelta(0) < held.next_try_at - now <= LONGEST_WAIT


def is_over(held: HeldDestination, *, now: datetime) -> bool:
    """Return whether a destination that has a route again need not be held any longer.

    One whose messages came back, or were refused, may still do so, so its next message decides;
    when none came for as long as the longest wait, there is none.
    """
    return held.reason not in _MESSAGE_DECIDES or now - held.next_try_at > LONGEST_WAIT


def wait_after(tries: int) -> timedelta:
    """Return how long a destination is left alone after *tries* vain ones: 5 s to 5 minutes."""
    doublings = min(tries - 1, 10)
    return min(_FIRST_WAIT * (1 << doublings), LONGEST_WAIT)
