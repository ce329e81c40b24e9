"""Destinations that cannot be reached: their rows stay in the store until they are tried again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.link_ports import Unreachable
from migrator.dispatcher.ports import HeldBooks, HeldDestination
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.conversion import Reason

_FIRST_WAIT: Final = timedelta(seconds=5)
LONGEST_WAIT: Final = timedelta(minutes=5)


class HeldDestinations:
    """What is held for one endpoint: in memory for claims, in the ledger for people."""

    def __init__(
        self,
        books: HeldBooks,
        endpoint: StoreEndpoint,
        *,
        longest_wait: timedelta = LONGEST_WAIT,
    ) -> None:
        """Know nothing yet; ``load`` reads what an earlier process held.

        *longest_wait* bounds the time between two looks; where messages came back, a message is
        the look, and there it does not count.
        """
        self._books = books
        self.endpoint = endpoint
        self._longest_wait = longest_wait
        self._held: dict[str, HeldDestination] = {}

    def __len__(self) -> int:
        """Return how many destinations are held."""
        return len(self._held)

    def load(self) -> None:
        """Take over what the ledger has."""
        self._held = {each.destination: each for each in self._books.held(self.endpoint)}

    def is_held(self, destination: str, *, now: datetime) -> bool:
        """Return whether *destination* is left alone at *now*."""
        held = self._held.get(destination)
        return held is not None and _waits(held, now)

    def not_now(self, now: datetime) -> Collection[str]:
        """Return the destinations whose rows are not to be claimed at *now*."""
        return [name for name, held in self._held.items() if _waits(held, now)]

    def left_out(self, now: datetime) -> Collection[str]:
        """Return the destinations that a look has to free before their rows are claimed.

        Of one whose messages came back, the next message after its time is the look.
        """
        return [
            name
            for name, held in self._held.items()
            if held.reason != Reason.UNROUTABLE or _waits(held, now)
        ]

    def to_try(self, now: datetime) -> Collection[HeldDestination]:
        """Return what is to be tried again at *now*."""
        return [held for held in self._held.values() if not _waits(held, now)]

    def hold(self, destination: str, why: Unreachable, *, now: datetime) -> HeldDestination:
        """Hold *destination* for a while, twice as long as the last time; return for how long."""
        before = self._held.get(destination)
        tries = 1 if before is None else before.tries + 1
        limit = LONGEST_WAIT if why.reason is Reason.UNROUTABLE else self._longest_wait
        held = HeldDestination(
            destination=destination,
            reason=str(why.reason),
            detail=why.detail,
            tries=tries,
            since=now if before is None else before.since,
            next_try_at=now + min(wait_after(tries), limit),
        )
        self._books.hold(self.endpoint, held)
        self._held[destination] = held
        return held

    def free(self, destinations: Iterable[str | None]) -> None:
        """Hold *destinations* no longer; harmless for those that are not held."""
        found = {name for name in destinations if name is not None and name in self._held}
        if found:
            self._books.free(self.endpoint, found)
        for name in found:
            del self._held[name]


def _waits(held: HeldDestination, now: datetime) -> bool:
    """Return whether the next try is to come; one too far off is of a clock that was put back."""
    return timedelta(0) < held.next_try_at - now <= LONGEST_WAIT


def is_over(held: HeldDestination, *, now: datetime) -> bool:
    """Return whether a destination that has a route again need not be held any longer.

    One whose messages came back may still lose them, so its next message decides; when none came
    for as long as the longest wait, there is none.
    """
    return held.reason != Reason.UNROUTABLE or now - held.next_try_at > LONGEST_WAIT


def wait_after(tries: int) -> timedelta:
    """Return how long a destination is left alone after *tries* vain ones: 5 s to 5 minutes."""
    doublings = min(tries - 1, 10)
    return min(_FIRST_WAIT * (1 << doublings), LONGEST_WAIT)
