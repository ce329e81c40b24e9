"""What is found, what is planned and what was done, as values.

A count that nobody can tell is never taken for zero: ``is_told`` says whether it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, Entity, Kind

# ── what is found ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whose things are to go, as the settings say it."""

    endpoint: StoreEndpoint
    queue: QueueName
    """Its input queue."""
    is_dispatched: bool = False
    """By the settings, migrator is its timeout manager."""
    forwarding: Sequence[EndpointName] = ()
    """Other endpoints in mode forward."""
    sharing: Sequence[EndpointName] = ()
    """Other endpoints of the same input queue or table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator asks for beyond the broker's side."""

    drops_table: bool = False
    gives_up_recall: bool = False
    wait_s: float = 10.0
    """How long things stay unbound before they are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """What is in a queue, and who consumes it."""

    name: str
    is_told: bool = True
    """False: what is unacknowledged or held back is unknown."""
    ready: int = 0
    unacked: int = 0
    held_back: int = 0
    consumers: int = 0

    @property
    def is_calm(self) -> bool:
        """Whether it is surely empty, and nobody consumes it."""
        return self.is_told and not self.messages and not self.consumers

    @property
    def messages(self) -> int:
        """All messages, whatever is done with them."""
        return self.ready + self.unacked + self.held_back


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEntities:
    """Entities of migrator itself."""

    queues: Sequence[QueueSnapshot] = ()
    """Staging and receipts queues of this ledger."""
    exchanges: Sequence[str] = ()
    """Staging exchanges of this ledger."""
    shared: Sequence[str] = ()
    """Entry and router exchanges, which all ledgers of a virtual host share."""
    others: Sequence[str] = ()
    """Staging and receipts queues of other ledgers."""
    clients: Sequence[str] = ()
    """Connections of other migrators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """What the broker has of an endpoint's timeout manager, and of migrator."""

    satellites: Sequence[QueueSnapshot] = ()
    satellite_exchanges: Sequence[str] = ()
    retries: Sequence[QueueSnapshot] = ()
    """Retry queues that lead back to a satellite."""
    own: OwnEntities = field(default_factory=OwnEntities)
    bindings: Sequence[Binding] = ()
    """All that have one of these at either end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSnapshot:
    """What the ledger knows of the endpoint, and of whoever else works."""

    open_rows: int = 0
    """In batches that are claimed and not settled."""
    doubtful: Sequence[BatchId] = ()
    quarantined: int = 0
    is_running: bool = False
    """The endpoint's last run has not ended, as far as the ledger knows."""
    dispatcher: str | None = None
    """Owner of the lease of the endpoint's dispatcher, while it runs."""
    lanes: Sequence[str] = ()
    """Every running lease, each as lane and owner."""
    open_elsewhere: int = 0
    """Batches of other endpoints that are open or doubtful."""
    recallable: int = 0
    """Handed-over timeouts that are not due yet."""
    last_due: datetime | None = None
    """When the last of them is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a plan is made from, as it was at one moment."""

    target: Target
    rows: int | None
    """The endpoint's, in the legacy table; None: there is no such table any more."""
    is_table_shared: bool = False
    """Endpoints share one table, which stays."""
    vendor_runs: Sequence[str] = ()
    others_with_rows: Sequence[EndpointName] = ()
    """Other endpoints whose tables have rows."""
    ledger: LedgerSnapshot = field(default_factory=LedgerSnapshot)
    broker: BrokerSnapshot | None = None
    """None: there is no management API, so nobody can tell."""
    unfinished: Sequence[Binding] = ()
    """What an earlier decommission that did not end may have unbound."""

    @property
    def source(self) -> str:
        """The legacy table."""
        return self.target.endpoint.source


# ── what is planned, and done ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nothing is removed, and what to do."""

    code: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """An entity that stays, and why."""

    entity: Entity
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done, in this order; with a refusal nothing of it is."""

    refusals: Sequence[Refusal] = ()
    unbind: Sequence[Binding] = ()
    """Bindings that go, whether cut singly or with their entity."""
    delete: Sequence[Entity] = ()
    keep: Sequence[Retained] = ()
    bind_again: Sequence[Binding] = ()
    """What an unfinished decommission cut; bound again when this one is refused."""
    drops_table: bool = False
    """Whether there is a table that is to go."""
    notes: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was done."""

    refusals: Sequence[Refusal] = ()
    """Empty: all of it was done."""
    unbound: Sequence[Binding] = ()
    deleted: list[Entity] = field(default_factory=list)
    keep: Sequence[Retained] = ()
    bound_again: Sequence[Binding] = ()
    not_bound: Sequence[Binding] = ()
    """Was to be bound again, but an end of it is gone; the audit log remembers it."""
    is_table_dropped: bool = False

    @property
    def record(self) -> dict[str, object]:
        """What the audit log keeps of it, beside the bindings."""
        return {
            "deleted": [f"{each.kind} {each.name}" for each in self.deleted],
            "refusals": [each.code for each in self.refusals],
            "table_dropped": self.is_table_dropped,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One SQL statement about the legacy table."""

    purpose: str
    """``archive`` or ``drop``: one of the two is wanted."""
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an operator is shown: the plan, or what happened to it."""

    target: Target
    is_dry: bool
    wants_drop: bool
    sql: Sequence[Statement]
    refusals: Sequence[Refusal] = ()
    unbind: Sequence[Binding] = ()
    delete: Sequence[Entity] = ()
    keep: Sequence[Retained] = ()
    bind_again: Sequence[Binding] = ()
    notes: Sequence[str] = ()
    is_done: bool = False
    is_table_dropped: bool = False


def bindings_record(bindings: Iterable[Binding]) -> Sequence[Mapping[str, object]]:
    """Return *bindings* as JSON has them."""
    return [
        {
            "source": each.source,
            "target": each.target.name,
            "target_kind": str(each.target.kind),
            "key": each.key,
            "arguments": dict(each.arguments),
        }
        for each in bindings
    ]


def read_bindings(record: Iterable[Mapping[str, Any]]) -> tuple[Binding, ...]:
    """Return the bindings that ``bindings_record`` wrote."""
    return tuple(
        Binding(
            source=each["source"],
            target=Entity(kind=Kind(each["target_kind"]), name=each["target"]),
            key=each["key"],
            arguments=each["arguments"],
        )
        for each in record
    )
