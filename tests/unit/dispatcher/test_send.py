"""What a dispatcher tells of the messages it sent, for those who follow a trace."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.dispatcher.link import Delivery
from migrator.dispatcher.outbox import Forwarded, Item, PassedOn, StoredRow
from migrator.dispatcher.routes import Route
from migrator.dispatcher.send import trace
from migrator.nservicebus.timeouts import BatchId, EndpointName, NativeMessage, QueueName
from migrator.telemetry.ports import NoTracer
from tests.unit.handover.test_tracing import PARENT, ListeningTracer
from tests.unit.nservicebus.samples import incoming, stored
from tests.unit.rabbitmq.material import message

ROUTE = Route(exchange="Billing", routing_key="")
DELIVERY = Delivery(queue=QueueName("Sales.Timeouts"), tag=1, message=incoming())


def row(number: int, *, batch: int, is_traced: bool = True) -> StoredRow:
    """Return a claimed row."""
    return StoredRow(
        batch=BatchId(batch), message=native(number, is_traced), route=ROUTE, row=stored()
    )


def native(number: int, is_traced: bool = True) -> NativeMessage:
    """Return a message."""
    return message(number, headers={"traceparent": PARENT} if is_traced else {})


def told(*items: Item) -> Iterator[tuple[str, BatchId | None, list[int]]]:
    """Yield what a tracer is told of *items*: the work, the batch, and the traced rows."""
    tracer = ListeningTracer()
    trace(items, tracer=tracer, endpoint=EndpointName("Sales"), seconds=0.1)
    for each in tracer.told:
        assert not each.is_whole
        yield each.work, each.batch, [found.row_index for found in each.traced]


def test_each_batch_and_each_way_is_told_of_its_own() -> None:
    """Although they left together."""
    items: list[Item] = [
        row(1, batch=7),
        row(2, batch=8),
        row(3, batch=7),
        row(4, batch=7, is_traced=False),
        PassedOn(delivery=DELIVERY, message=native(5), route=ROUTE),
        Forwarded(delivery=DELIVERY, message=native(6)),
    ]
    assert list(told(*items)) == [
        ("dispatch", 7, [1, 3]),
        ("dispatch", 8, [2]),
        ("dispatch", None, [5]),
        ("forward", None, [6]),
    ]


def test_where_nothing_is_traced_nothing_is_told() -> None:
    """Nor of no items at all."""
    assert list(told(row(1, batch=7, is_traced=False))) == []
    assert list(told()) == []


def test_nobody_looks_at_messages_for_no_tracer() -> None:
    """What is off costs nothing."""

    def poisoned() -> Iterator[NativeMessage]:
        raise AssertionError("looked")
        yield

    tracer = NoTracer()
    assert tracer.pick(poisoned()) == ()
    tracer.tell(None)  # type: ignore[arg-type]  # it does not look
