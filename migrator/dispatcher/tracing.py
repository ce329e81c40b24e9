"""What a dispatcher tells of the messages it sent, for those who follow a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.dispatcher.outbox import Copy, Forwarded, Item, StoredRow
from migrator.nservicebus.timeouts import BatchId, EndpointName, NativeMessage
from migrator.telemetry.ports import Passage, Tracer

DISPATCH: Final = "dispatch"
FORWARD: Final = "forward"

_Group = tuple[str, BatchId | None]


def tell_of(
    items: Sequence[Item], *, tracer: Tracer, endpoint: EndpointName, seconds: float
) -> None:
    """Tell *tracer* of *items*, all of which the broker has; most are of no trace at all."""
    if not tracer.pick(message for _, message in _native(items)):
        return
    groups: dict[_Group, list[NativeMessage]] = {}
    for group, message in _native(items):
        groups.setdefault(group, []).append(message)
    for (work, batch), messages in groups.items():
        passage = Passage(
            work=work,
            endpoint=endpoint,
            batch=batch,
            mode=work,
            rows=len(messages),
            seconds=seconds,
            traced=tracer.pick(messages),
            is_whole=False,
        )
        tracer.tell(passage)


def _native(items: Sequence[Item]) -> Iterator[tuple[_Group, NativeMessage]]:
    """Yield what goes to an endpoint, and with what; not the copies of messages that failed."""
    for item in items:
        if isinstance(item, StoredRow):
            yield (DISPATCH, item.batch), item.message
        elif isinstance(item, Forwarded):
            yield (FORWARD, None), item.message
        elif not isinstance(item, Copy):
            yield (DISPATCH, None), item.message
