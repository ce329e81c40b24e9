"""What a dispatcher tells of the messages it sent, for those who follow a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from migrator.dispatcher.link import Delivery, Route
from migrator.dispatcher.outbox import Forwarded, Item, PassedOn, StoredRow
from migrator.dispatcher.send import trace
from migrator.nservicebus.timeouts import BatchId, EndpointName, NativeMessage, QueueName
from migrator.telemetry.ports import Passage, Traced, traced
from tests.unit.nservicebus.samples import incoming, stored
from tests.unit.rabbitmq.material import message

ROUTE = Route(exchange="Billing", routing_key="")
DELIVERY = Delivery(queue=QueueName("Sales.Timeouts"), tag=1, message=incoming())
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class ListeningTracer:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Passage] = []

    def pick(self, messages: Iterable[NativeMessage]) -> Sequence[Traced]:
        return tuple(traced(messages))

    def tell(self, passage: Passage) -> None:
        self.told.append(passage)


def row(number: int, *, batch: int, is_traced: bool = True) -> StoredRow:
    """Return a claimed row."""
    native = message(number, headers={"traceparent": PARENT} if is_traced else {})
    return StoredRow(batch=BatchId(batch), message=native, route=ROUTE, row=stored())


def test_each_batch_and_each_way_is_told_of_its_own() -> None:
    """Although they left together; of what is not traced, nothing is told."""
    items: list[Item] = [
        *(row(1, batch=7), row(2, batch=8), row(3, batch=7)),
        *(row(4, batch=7, is_traced=False), row(9, batch=9, is_traced=False)),
        PassedOn(delivery=DELIVERY, message=row(5, batch=0).message, route=ROUTE),
        Forwarded(delivery=DELIVERY, message=row(6, batch=0).message),
    ]
    tracer = ListeningTracer()
    trace(items, tracer=tracer, endpoint=EndpointName("Sales"), seconds=0.1)
    told = [(p.work, p.batch, [t.row_index for t in p.traced]) for p in tracer.told]
    assert told == [
        ("dispatch", 7, [1, 3]),
        ("dispatch", 8, [2]),
        ("dispatch", None, [5]),
        ("forward", None, [6]),
    ]
