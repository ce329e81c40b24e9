"""Rows whose destination accepts no messages are parked until it does.

Rules of this file: a destination is parked before its rows are, and freed before its rows are
claimed, so a process that ends in between leaves rows that the next one finds. ``HeldChecks``
decides when a destination is checked again, for the dispatcher as well. Where only a message can
prove that a destination accepts, one row is sent. Source: docs/adr/0013-parked-rows.md.
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
class UndeliverableRow:
    message: EncodedTimeout
    reason: Unreachable
    column: str | None = None
    """The row's Destination column, as stored."""


class LateDestination(NamedTuple):
    source: str
    queue: QueueName


@dataclass(kw_only=True, eq=False)
class Holding:
    """The parked destinations of endpoints that are handed over; shared by all lanes."""

    ledger: SqlHeldDestinations
    parking: SqlParking
    look_for: Callable[[Collection[QueueName]], Mapping[QueueName, Unreachable]]
    """Binds destinations; returns those that cannot be reached. It has no memory."""
    forget: Callable[[Collection[QueueName]], None]
    """Makes lanes check these destinations again."""
    clock: Clock
    renamed: Mapping[str, str]
    """Old queue name to new one."""
    fault: FaultPoint = no_fault
    late: LateAnswers[LateDestination] = field(default_factory=LateAnswers)
    """Messages to destinations that have not answered."""

    def __post_init__(self) -> None:
        self._held: dict[str, HeldDestinations] = {}
        self._checks = HeldChecks(self.clock)

    def begin(
        self,
        endpoints: Collection[StoreEndpoint],
        renamings: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        """Read the parked destinations of *endpoints* and check each once.

        Rows parked under another renaming, by run in *renamings*, are freed.
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
        held = self._held.get(batch.source)
        if held is None:
            return {}
        return {QueueName(n): reason for n, reason in held.unreachable(names, of=batch.id).items()}

    def park(self, batch: Batch, lost: Sequence[UndeliverableRow], lease: Lease) -> Batch:
        """Park the destinations and rows of *lost*; return the batch without them."""
        rows = {each.message.row_index: (each.message.destination, each.reason) for each in lost}
        held = self._of(StoreEndpoint(name=batch.endpoint, source=batch.source))
        return held.park(batch, rows, lease, now=self.clock.now())

    def reached(self, batch: Batch, destinations: Collection[QueueName]) -> None:
        if held := self._held.get(batch.source):
            held.reached(destinations, by=batch.id)

    def next_batch(self, endpoint: StoreEndpoint, wanted: Wanted) -> Batch | None:
        held = self._held.get(endpoint.source)
        if held is None or not held.has_ready:
            return None
        return held.next_batch(wanted, now=self.clock.now())

    def let_try(self, batch: Batch) -> None:
        """Have *batch*, which the operator put in, sent to parked destinations, too."""
        self._of(StoreEndpoint(name=batch.endpoint, source=batch.source)).let_try(batch.id)

    def free_answered(self) -> bool:
        answered = self.late.take_heard()
        for each in answered:
            if held := self._held.get(each.source):
                held.free([each.queue])
        return bool(answered)

    def check_some(self) -> bool:
        """Check some destinations that are due; return whether parked rows can be claimed.

        An error (a clock in doubt, a database without an answer) is logged.
        """
        try:
            self._check(self._checks.take_due(self._of_all))
        except MigratorError as exc:
            _not_checked(exc)
        return self.has_ready

    @property
    def has_ready(self) -> bool:
        """Whether parked rows can be claimed."""
        return any(held.has_ready for held in self._of_all)

    def parked(self) -> Sequence[HeldDestination]:
        return [each for held in self._of_all for each in held.to_try(_FOREVER)]

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _of(self, endpoint: StoreEndpoint) -> HeldDestinations:
        found = HeldDestinations(self.ledger, self.parking, endpoint, fault=self.fault)
        return self._held.setdefault(endpoint.source, found)

    @property
    def _of_all(self) -> Sequence[HeldDestinations]:
        return [*self._held.values()]

    def _check(self, due: Sequence[HeldCheck]) -> None:
        if not due:
            return
        names = {QueueName(each.held.destination) for each in due}
        try:
            lost = self.look_for(names)
        except TargetError as exc:
            _not_checked(exc)
            return
        self.forget(names - lost.keys())  # before their rows are claimed
        self._checks.judge(due, lost)


def _not_checked(exc: MigratorError) -> None:
    _log.info(
        "parked destinations cannot be checked now; retrying later",
        extra={"action": "held_not_looked_at", "error": str(exc)},
    )
