"""Renewing leases from a thread of its own, and noticing when one is lost.

What one process reads from the delay levels is hidden from all others. Recalls, settlements and
decommissions own the lane of recall while they work, for which every lane of hand-over has to be
free. Scans own the scan lane, and lanes of hand-over continue.

The owner's name in a lease shows whether its process is dead. A lease of a process on another
machine must expire. One of a dead process on *this* machine, in the same process namespace, can be
taken at once: the kernel has closed its sockets.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from migrator.errors import LeaseLost, MigratorError, PreflightRefused
from migrator.ledger.leases import SqlLeases
from migrator.ledger.work import Lease
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE, Lane

_log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 5
_RENEWALS_AT_ONCE: Final = 8
"""With 64 leases of 20 s, each renewal may take 2 s before one is lost."""


class OwnedLease:
    def __init__(
        self,
        lease: Lease,
        *,
        valid_until_s: float,
        doing: Callable[[], str],
        is_adopted: bool = False,
    ) -> None:
        self.lease = lease
        self.doing = doing
        self.valid_until_s = valid_until_s
        self.is_adopted = is_adopted
        """Taken to finish the open batches of a dead owner, and to be released in any case."""
        self.is_lost = False
        self.is_being_renewed = False

    def check(self) -> None:
        """Raise unless the lane still belongs to this process: then stop touching its batches."""
        if self.is_lost or time.monotonic() >= self.valid_until_s:
            raise LeaseLost(f"lane {self.lease.lane}: the lease no longer belongs to this process")


class LeaseKeeper:
    def __init__(self, leases: SqlLeases, *, owner: str, duration: timedelta) -> None:
        self._leases = leases
        self._owner = owner
        self._duration = duration
        self._owned: dict[Lane, OwnedLease] = {}
        self._taking: set[Lane] = set()
        self._due: SimpleQueue[OwnedLease | None] = SimpleQueue()
        self._renewers: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leases not released expire."""
        self._stopped.set()
        self._soon.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def renew_soon(self) -> None:
        """Renew all leases now, so that the ledger shows their owners' activity; does not wait."""
        self._soon.set()

    def working_lanes(self) -> set[Lane]:
        with self._lock:
            return {lane for lane, owned in self._owned.items() if not owned.is_adopted}

    def is_busy_with(self, lane: Lane) -> bool:
        with self._lock:
            return lane in self._owned or lane in self._taking

    def acquire(
        self, lane: Lane, doing: Callable[[], str], *, is_adopted: bool = False
    ) -> OwnedLease | None:
        with self._lock:
            if lane in self._owned or lane in self._taking:
                return None  # another thread of this process; the ledger knows one owner
            self._taking.add(lane)
        try:
            asked_s = time.monotonic()
            lease = self._leases.acquire(lane, self._owner, self._duration)
            if lease is None:
                return None
            valid_until_s = asked_s + self._duration.total_seconds()
            owned = OwnedLease(
                lease, valid_until_s=valid_until_s, doing=doing, is_adopted=is_adopted
            )
            with self._lock:
                self._owned[lane] = owned
            return owned
        finally:
            with self._lock:
                self._taking.discard(lane)

    def release(self, owned: OwnedLease) -> None:
        """If the ledger cannot be written, the lease expires."""
        with self._lock:
            self._owned.pop(owned.lease.lane, None)
        try:
            self._leases.release(owned.lease)
        except MigratorError as exc:
            _log.warning(
                "lease not released; it will expire",
                extra={"action": "surrender_failed", "lane": owned.lease.lane, "error": str(exc)},
            )

    def _run(self) -> None:
        while True:
            self._soon.wait(self._duration.total_seconds() / _RENEWALS_PER_LEASE)
            self._soon.clear()
            if self._stopped.is_set():
                break
            self._renew_all()
        for _ in self._renewers:
            self._due.put(None)

    def _renew_all(self) -> None:
        with self._lock:
            due = [owned for owned in self._owned.values() if not owned.is_being_renewed]
        while len(self._renewers) < min(len(due), _RENEWALS_AT_ONCE):
            renewer = threading.Thread(target=self._renew_due, name="lease-renewer", daemon=True)
            self._renewers.append(renewer)
            renewer.start()
        for owned in sorted(due, key=attrgetter("valid_until_s")):
            owned.is_being_renewed = True
            self._due.put(owned)

    def _renew_due(self) -> None:
        while (owned := self._due.get()) is not None:
            try:
                self._renew(owned)
            finally:
                owned.is_being_renewed = False

    def _renew(self, owned: OwnedLease) -> None:
        asked_s = time.monotonic()
        try:
            self._leases.renew(owned.lease, self._duration, doing=owned.doing())
        except LeaseLost:
            owned.is_lost = True
            with self._lock:
                if self._owned.get(owned.lease.lane) is not owned:
                    return  # given back meanwhile
            _log.warning(
                "lane taken by another process",
                extra={"action": "lease_lost", "lane": owned.lease.lane},
            )
        except MigratorError as exc:
            _log.warning(
                "lease renewal failed; retrying",
                extra={"action": "renew_failed", "lane": owned.lease.lane, "error": str(exc)},
            )
        else:
            owned.valid_until_s = asked_s + self._duration.total_seconds()


# ── owners ──────────────────────────────────────────────────────────────────────────────────────


def current_owner() -> str:
    """Return ``host/namespace/pid/start/random``; no spaces."""
    return f"{_place()}/{os.getpid()}/{_started(os.getpid())}/{secrets.token_hex(3)}"


def is_surely_dead(owner: str) -> bool:
    place, pid, started = _parts(owner)
    if place != _place() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)  # asks, sends nothing; says more than /proc, which may be hidden
    except ProcessLookupError:
        return True
    except OSError:
        return False
    now = _started(int(pid))
    return bool(started and now) and now != started


def _parts(owner: str) -> tuple[str, str, str]:
    fields = owner.rsplit("/", 3)
    if len(fields) != 4:
        return "", "", ""
    place, pid, started, _ = fields
    return place, pid, started


def _place() -> str:
    """Return what processes share that can see each other: host, boot, namespace."""
    boot = _read("/proc/sys/kernel/random/boot_id")[:8]
    try:
        namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        namespace = "0"
    return f"{socket.gethostname()}-{boot}/{namespace}"


def _started(pid: int) -> str:
    """In clock ticks since boot; empty when it does not exist."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields or fields[0] in "ZX":
        return ""
    return fields[19]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


# ── one command alone ───────────────────────────────────────────────────────────────────────────


def evict_dead(leases: SqlLeases, is_dead: Callable[[str], bool] = is_surely_dead) -> None:
    for lane, owner in leases.holders():
        if is_dead(owner):
            leases.evict(lane, owner)


@contextmanager
def exclusive(
    leases: SqlLeases,
    lanes: Mapping[Lane, str],
    *,
    doing: str,
    duration: timedelta,
    owner: str | None = None,
) -> Iterator[Sequence[OwnedLease]]:
    """Own all of *lanes*, each given with the text of its refusal; end leases of dead owners first.

    Raises:
        PreflightRefused: One of them has another owner; all are released.
    """
    evict_dead(leases)
    keeper = LeaseKeeper(leases, owner=owner or current_owner(), duration=duration)
    owned: list[OwnedLease] = []
    keeper.start()
    try:
        for lane, refusal in lanes.items():
            found = keeper.acquire(lane, doing=partial(str, doing))
            if found is None:
                raise PreflightRefused(refusal)
            owned.append(found)
        yield owned
    finally:
        keeper.stop()
        for each in owned:
            keeper.release(each)


@contextmanager
def recalling_alone(leases: SqlLeases, duration: timedelta) -> Iterator[OwnedLease]:
    """Own the lane of recall, so that no lane of hand-over can be taken; refuse if one is."""
    lanes = {RECALL_LANE: "another recall is running; wait until it has ended"}
    with exclusive(leases, lanes, doing="recalling", duration=duration) as owned:
        if (owner := leases.owner_of(SCAN_LANE)) is not None:
            raise PreflightRefused(
                f"{owner} reads the levels (`migrator verify --deep`); wait until it has ended"
            )
        busy = [f"lane {lane} ({who})" for lane, who in leases.holders() if lane < RECALL_LANE]
        if busy:
            raise PreflightRefused(
                f"processes work on {', '.join(busy)}; stop every `migrator run` first"
            )
        yield owned[0]


@contextmanager
def scanning_alone(leases: SqlLeases, duration: timedelta) -> Iterator[None]:
    """Own the scan lane. Losing it is harmless: a level reports another consumer itself."""
    evict_dead(leases)
    recaller = leases.owner_of(RECALL_LANE)
    refusal = (
        "another `migrator verify --deep` reads the levels; wait until it has ended"
        if recaller is None
        else f"{recaller} runs a recall; start --deep again when it has ended"
    )
    lanes = {SCAN_LANE: refusal}
    with exclusive(leases, lanes, doing="reading the levels", duration=duration):
        yield
