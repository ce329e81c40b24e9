"""Keeping leases alive from a thread of its own, and knowing when one is no longer ours."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from migrator.domain.timeouts import Lane
from migrator.errors import LeaseLost, MigratorError
from migrator.ports import Lease, Leases

_log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 5


class HeldLease:
    """A lease in use: what its owner is doing, and until when it may go on without renewal."""

    def __init__(self, lease: Lease, *, valid_until_s: float, doing: Callable[[], str]) -> None:
        """Hold *lease* until the monotonic time *valid_until_s*, unless renewed."""
        self.lease = lease
        self.doing = doing
        self.valid_until_s = valid_until_s
        self.is_lost = False
        self.beat: Callable[[], None] = lambda: None
        """Called by whatever works or waits for the lane: a sign of life of its thread."""

    def check(self) -> None:
        """Return if the lane is still ours.

        Raises:
            LeaseLost: It was taken, or could not be renewed in time. Stop touching its batches.
        """
        if self.is_lost or time.monotonic() >= self.valid_until_s:
            raise LeaseLost(f"lane {self.lease.lane}: the lease is no longer ours")


def evict_dead(leases: Leases, is_surely_dead: Callable[[str], bool]) -> None:
    """End the leases of owners whose processes are provably gone, whatever their lanes are for."""
    for lane, owner in leases.holders():
        if is_surely_dead(owner):
            leases.evict(lane, owner)


class LeaseKeeper:
    """Acquires lanes and renews all leases that are held, until it is stopped."""

    def __init__(self, leases: Leases, *, owner: str, duration: timedelta) -> None:
        """Keep leases for *owner*, each for *duration* at a time."""
        self._leases = leases
        self._owner = owner
        self._duration = duration
        self._held: dict[Lane, HeldLease] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing; leases still held run out by themselves."""
        self._stopped.set()
        self._soon.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def renew_soon(self) -> None:
        """Renew all leases now, so that the ledger tells what their owners do; does not wait."""
        self._soon.set()

    def lanes(self) -> set[Lane]:
        """Return the lanes this process holds."""
        with self._lock:
            return set(self._held)

    def acquire(self, lane: Lane, doing: Callable[[], str]) -> HeldLease | None:
        """Take *lane*, or return None when somebody else has it."""
        with self._lock:
            if lane in self._held:  # another thread of this process; the ledger knows one owner
                return None
            asked_s = time.monotonic()
            lease = self._leases.acquire(lane, self._owner, self._duration)
            if lease is None:
                return None
            held = HeldLease(
                lease, valid_until_s=asked_s + self._duration.total_seconds(), doing=doing
            )
            self._held[lane] = held
        return held

    def surrender(self, held: HeldLease) -> None:
        """Give the lane back; when the ledger cannot be told, the lease runs out by itself."""
        with self._lock:
            self._held.pop(held.lease.lane, None)
        try:
            self._leases.surrender(held.lease)
        except MigratorError as exc:
            _log.warning(
                "the lease could not be given back; it runs out by itself",
                extra={"action": "surrender_failed", "lane": held.lease.lane, "error": str(exc)},
            )

    def _run(self) -> None:
        while True:
            self._soon.wait(self._duration.total_seconds() / _RENEWALS_PER_LEASE)
            self._soon.clear()
            if self._stopped.is_set():
                return
            with self._lock:
                held = tuple(self._held.values())
            for each in held:
                self._renew(each)

    def _renew(self, held: HeldLease) -> None:
        asked_s = time.monotonic()
        try:
            self._leases.renew(held.lease, self._duration, doing=held.doing())
        except LeaseLost:
            held.is_lost = True
            _log.warning(
                "somebody else took the lane",
                extra={"action": "lease_lost", "lane": held.lease.lane},
            )
        except MigratorError as exc:
            _log.warning(
                "a lease could not be renewed; trying again",
                extra={"action": "renew_failed", "lane": held.lease.lane, "error": str(exc)},
            )
        else:
            held.valid_until_s = asked_s + self._duration.total_seconds()
