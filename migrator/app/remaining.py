"""What counts the rows in the stores, for ``migrator status`` and for the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.broker import Broker, open_broker
from migrator.app.stores import StoreBackend, open_backend
from migrator.config.work import NearDue
from migrator.errors import ConfigError
from migrator.status.remaining import RemainingReader

if TYPE_CHECKING:
    from migrator.app.ledger import Ledger
    from migrator.config import Settings


def new_remaining_reader(
    settings: Settings, ledger: Ledger, broker: Broker, backend: StoreBackend
) -> RemainingReader:
    """Return what counts rows in the stores, and asks the broker who sends what remains."""
    try:
        facts = broker.facts
    except ConfigError:  # the ledger alone can be read without one
        facts = None
    return RemainingReader(
        store=backend.store,
        claims=backend.claims,
        clock=ledger.clock,
        broker=facts,
        modes={each.name: str(each.mode) for each in settings.endpoints},
        input_queues={each.name: each.input_queue for each in settings.endpoints},
        sends_near_due=settings.handover.near_due is NearDue.DISPATCH,
    )


@contextmanager
def open_remaining_reader(settings: Settings, ledger: Ledger) -> Iterator[RemainingReader]:
    """Open store and broker for one."""
    with open_broker(settings) as broker, open_backend(settings, ledger) as backend:
        yield new_remaining_reader(settings, ledger, broker, backend)
