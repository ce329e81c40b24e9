"""What the engine tells a tracer: what the broker has, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from migrator.handover.lane import LaneSession
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import NativeMessage
from migrator.nservicebus.tracing import Traced, traced
from migrator.telemetry.ports import Passage, Tracer
from tests.unit.handover.memory import LEASE, MemoryLink, timeout
from tests.unit.handover.test_lane_model import World, work

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class ListeningTracer:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Passage] = []

    def pick(self, messages: Iterable[NativeMessage]) -> Sequence[Traced]:
        return tuple(traced(messages))

    def tell(self, passage: Passage) -> None:
        self.told.append(passage)


def passages(mode: Mode, *destinations: str, unroutable: str = "") -> list[Passage]:
    """Hand over an overdue traced timeout for each destination; return what was told."""
    world, tracer = World(rows=0), ListeningTracer()
    for number, destination in enumerate(destinations):
        due_in_s = -5.0 if mode is Mode.DIRECT else 3600.0
        row = timeout(number, due_in_s, destination)
        headers = json.dumps({"NServiceBus.MessageId": f"m-{number}", "traceparent": PARENT})
        world.ledger.stored[row.id] = replace(row, headers_text=headers)
    session, link, parts = world.process(mode)
    if unroutable:
        link = MemoryLink(world.broker, frozenset({unroutable}))
    if mode is Mode.DIRECT:
        heard = replace(parts, tracer=tracer)
        session = LaneSession(
            heard, lease=LEASE, link=link, open_staged=lambda _guard: pytest.fail("staged")
        )
    else:
        session, _ = world.session(replace(parts, tracer=tracer), lambda _name: None)
    work(session)
    return tracer.told


@pytest.mark.parametrize("mode", [Mode.STAGED, Mode.DIRECT])
def test_a_batch_is_told_once_with_its_traced_messages(mode: Mode) -> None:
    """When the broker has all of it."""
    (told,) = passages(mode, "Billing", "Shipping")
    assert (told.rows, told.mode, told.is_whole) == (2, str(mode), True)
    assert [each.destination for each in told.traced] == ["Billing", "Shipping"]


def test_what_came_back_is_not_told() -> None:
    """It is in quarantine, and with no receiver."""
    (told,) = passages(Mode.DIRECT, "Billing", "Nobody", unroutable="Nobody")
    assert told.rows == 1
    assert [each.destination for each in told.traced] == ["Billing"]


_: type[Tracer] = ListeningTracer
