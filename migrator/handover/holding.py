"""Rows whose destination takes no messages are parked, and go on once it does.

Rules of this file: a destination is held before its rows are parked, and held no longer before they
go on, so a process that ends in between leaves rows that the next one finds; when a destination is
checked again is ``HeldChecks``' to say, for the dispatcher as well; where only a message can tell,
one row is sent. Source: docs/adr/0013-parked-rows.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from migrator.delays.routing import Unreachable
from migrator.errors import MigratorError, TargetError
from migrator.ledger.held_destinations import (
    HeldCheck,
    HeldChecks,
    HeldDestinations,
    SqlHeldDestinations,
)
from migrator.ledger.parking import SqlParking, Wanted
from migrator.ledger.report import HeldDestination
from migrator.ledger.work import Batch, Clock, FaultPoint, Lease, StoreEndpoint, no_fault
from migrator.nservicebus.timeouts import EncodedTimeout, QueueName
from migrator.rabbitmq.late import LateAnswers

_log = logging.getLogger(__name__)

_FOREVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A message of a claimed row that would not reach its destination."""

    message: EncodedTimeout
    why: Unreachable
    column: str | None = None
    """The row's Destination column, as stored."""


class LateDestination(NamedTuple):
    """Where a message went that has no answer yet."""

    source: str
    queue: QueueName


@dataclass(kw_only=True, eq=False)
class Holding:
    """What is held of the endpoints that are handed over; shared by all lanes of a process.

    ``begin`` reads what an earlier process held.
    """

    ledger: SqlHeldDestinations
    """Where the ledger keeps what is held."""
    parking: SqlParking
    """Where it keeps the rows."""
    look_for: Callable[[Collection[QueueName]], Mapping[QueueName, Unreachable]]
    """Binds destinations, and returns those that cannot be reached; remembers nothing."""
    forget: Callable[[Collection[QueueName]], None]
    """Has lanes ask again for some, whatever they remember of them."""
    clock: Clock
    renamed: Mapping[str, str]
    """Old queue name to new one."""
    fault: FaultPoint = no_fault
    late: LateAnswers[LateDestination] = field(default_factory=LateAnswers)
    """What was sent to destinations that answer nothing; the links listen on."""

    def __post_init__(self) -> None:
        self._held: dict[str, HeldDestinations] = {}
        self._checks = HeldChecks(self.clock)

    def begin(
        self,
        endpoints: Collection[StoreEndpoint],
        renamings: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        """Take over what the ledger has of *endpoints*, and check all of it once.

        What was parked while destinations had other names than now goes where it belongs now.

        Args:
            endpoints: Whose rows are handed over.
            renamings: How earlier runs renamed destinations, of those that did.
        """
        for endpoint in endpoints:
            self._of(endpoint)
        self._checks.load(self._of_all)
        for source, held in self._held.items():
            of_runs = self.parking.destinations_of_runs(source) if len(held) else ()
            held.free(
                name
                for run, name in of_runs
                if name in self.renamed or (renamings or {}).get(run, self.renamed) != self.renamed
            )
        self._check([HeldCheck(of, held) for of in self._of_all for held in of.to_try(_FOREVER)])

    def unreachable(
        self, batch: Batch, names: Collection[QueueName]
    ) -> Mapping[QueueName, Unreachable]:
        """Return those of *names* that are held, unless *batch* is there to try them."""
        held = self._held.get(batch.source)
        if held is None:
            return {}
        return {QueueName(n): why for n, why in held.unreachable(names, of=batch.id).items()}

    def set_aside(self, batch: Batch, lost: Sequence[Lost], lease: Lease) -> Batch:
        """Hold the destinations of *lost* and park these rows; return the batch without them.

        Raises:
            LeaseLost: The rows are where they were.
            StoreUnavailable, LedgerError: As above; repeating is harmless.
        """
        rows = {each.message.row_index: (each.message.destination, each.why) for each in lost}
        held = self._of(StoreEndpoint(name=batch.endpoint, source=batch.source))
        return held.park(batch, rows, lease, now=self.clock.now())

    def reached(self, batch: Batch, destinations: Collection[QueueName]) -> None:
        """Messages of *batch* are with these *destinations*, so nothing holds them."""
        if held := self._held.get(batch.source):
            held.reached(destinations, by=batch.id)

    def next_batch(self, endpoint: StoreEndpoint, wanted: Wanted) -> Batch | None:
        """Claim rows of *endpoint* that were parked and may go on; None: there are none now.

        Raises:
            LeaseLost: The lane is somebody else's. Nothing was changed.
        """
        held = self._held.get(endpoint.source)
        if held is None or not held.has_ready:
            return None
        return held.next_batch(wanted, now=self.clock.now())

    def let_try(self, batch: Batch) -> None:
        """Have *batch*, which an operator put in, sent whatever is held."""
        self._of(StoreEndpoint(name=batch.endpoint, source=batch.source)).let_try(batch.id)

    def hear(self) -> bool:
        """Free destinations whose messages were answered late; return whether there are any.

        Rows that are with them are not sent again; see ``late``.
        """
        heard = self.late.take_heard()
        for each in heard:
            if held := self._held.get(each.source):
                held.free([each.queue])
        return bool(heard)

    def check_some(self) -> bool:
        """Check some of what is to be tried again now; return whether parked rows may go on.

        What keeps it from that, a clock in doubt or a database that is away, is logged.
        """
        try:
            self._check(self._checks.take_due(self._of_all))
        except MigratorError as exc:
            _not_checked(exc)
        return self.has_ready

    @property
    def has_ready(self) -> bool:
        """Whether parked rows may go on."""
        return any(held.has_ready for held in self._of_all)

    def parked(self) -> Sequence[HeldDestination]:
        """Return every destination whose rows wait."""
        return [each for held in self._of_all for each in held.to_try(_FOREVER)]

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _of(self, endpoint: StoreEndpoint) -> HeldDestinations:
        found = HeldDestinations(self.ledger, self.parking, endpoint, fault=self.fault)
        return self._held.setdefault(endpoint.source, found)

    @property
    def _of_all(self) -> Sequence[HeldDestinations]:
        return [*self._held.values()]

    def _check(self, due: Sequence[HeldCheck]) -> None:
        """Ask the broker for each of *due*."""
        if not due:
            return
        names = {QueueName(each.held.destination) for each in due}
        try:
            lost = self.look_for(names)
        except TargetError as exc:
            _not_checked(exc)
            return
        self.forget(names - lost.keys())  # before their rows go on
        self._checks.judge(due, lost)


def _not_checked(exc: MigratorError) -> None:
    _log.info(
        "held destinations could not be checked now; they are checked again later",
        extra={"action": "held_not_looked_at", "error": str(exc)},
    )
