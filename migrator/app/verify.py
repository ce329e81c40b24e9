"""What ``migrator verify`` works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.broker import open_broker
from migrator.app.ledger import open_ledger
from migrator.app.levels import level_access
from migrator.app.stores import open_backend
from migrator.app.values import fault_point
from migrator.verify.verify import Verify

if TYPE_CHECKING:
    from migrator.config import Settings


@contextmanager
def open_verify(settings: Settings, progress: Callable[[str, int], None]) -> Iterator[Verify]:
    """Open what compares store, ledger and broker; *progress* is told how far it is.

    Raises:
        ConfigError: A server is not named.
        PreflightRefused: There is no ledger that can be used.
    """
    with (
        open_ledger(settings) as ledger,
        open_broker(settings) as broker,
        open_backend(settings, ledger) as backend,
    ):
        yield Verify(
            queries=backend.verifications,
            ledger=ledger.queries,
            ledger_id=ledger.id,
            access=level_access(
                settings, ledger, broker, purpose="migrator verify", now=ledger.clock.now
            ),
            clock=ledger.clock,
            wait=time.sleep,
            fault=fault_point(),
            progress=progress,
            store=backend.store,
            leases=ledger.leases,
            lease_duration=settings.handover.lease,
            runs=ledger.runs,
        )
