"""What is found, what is planned and what was done, as values.

A count that nobody can tell is never taken for zero: ``is_told`` says whether it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, Entity, Kind, QueueState

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

    @property
    def source(self) -> str:
        """The legacy table."""
        return self.endpoint.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator asks for beyond the broker's side."""

    drops_table: bool = False
    gives_up_recall: bool = False
    wait_s: float = 10.0
    """How long things stay unbound before they are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """What the broker has of an endpoint's timeout manager, and of migrator.

    What is ready in a queue, and who consumes it, is as it is now; the rest lags by some seconds.
    """

    satellites: Sequence[QueueState] = ()
    satellite_exchanges: Sequence[str] = ()
    retries: Sequence[QueueState] = ()
    """Retry queues that lead back to a satellite."""
    lanes: Sequence[QueueState] = ()
    """Staging and receipts queues of this ledger."""
    lane_exchanges: Sequence[str] = ()
    """Staging exchanges of this ledger."""
    shared: Sequence[str] = ()
    """Entry and router exchanges, which all ledgers of a virtual host share."""
    others: Sequence[str] = ()
    """Staging and receipts queues of other ledgers."""
    clients: Sequence[str] = ()
    """Connections of other migrators."""
    bindings: Sequence[Binding] = ()
    """All that have one of these entities at either end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSnapshot:
    """What legacy store and ledger know of the endpoint, and of whoever else works."""

    rows: int | None = 0
    """The endpoint's, in the legacy table; None: there is no such table any more."""
    is_table_shared: bool = False
    """Endpoints share one table, which stays."""
    vendor_runs: Sequence[str] = ()
    """Unfinished runs of the vendor's tool, which keep rows elsewhere."""
    others_with_rows: Sequence[EndpointName] = ()
    """Other endpoints whose tables have rows."""
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
    unfinished: Sequence[Binding] = ()
    """What an earlier decommission that did not end may have unbound."""


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


@dataclass(slots=True, kw_only=True)
class Plan:
    """What would be done, in this order; or, filled while it is done, what was.

    With a refusal nothing of it is done; one that comes late undoes what can be undone.
    """

    refusals: Sequence[Refusal] = ()
    unbind: Sequence[Binding] = ()
    """Bindings that go, whether cut singly or with their entity."""
    delete: Sequence[Entity] = ()
    keep: Sequence[Retained] = ()
    bind_again: Sequence[Binding] = ()
    """What an unfinished decommission cut; and, once done, all that was bound again."""
    drops_table: bool = False
    """Whether there is a table that is to go, or went."""
    notes: Sequence[str] = ()
    is_done: bool = False


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
