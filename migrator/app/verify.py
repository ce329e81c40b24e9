"""What ``migrator verify`` works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.levels import level_access
from migrator.app.servers import open_servers
from migrator.verify.levels import VerifyContext

if TYPE_CHECKING:
    from migrator.config import Settings


@contextmanager
def open_verify(
    settings: Settings, progress: Callable[[str, int], None]
) -> Iterator[VerifyContext]:
    """Open what compares store, ledger and broker; *progress* is told how far it is.

    Raises:
        ConfigError: A server is not named.
        PreflightRefused: There is no ledger that can be used.
    """
    with open_servers(settings) as servers:
        ledger, backend = servers.ledger, servers.backend
        yield VerifyContext(
            queries=backend.audit,
            ledger=ledger.queries,
            ledger_id=ledger.id,
            access=level_access(
                settings, ledger, servers.broker, purpose="migrator verify", now=ledger.clock.now
            ),
            clock=ledger.clock,
            wait=time.sleep,
            fault=servers.fault,
            progress=progress,
            store=backend.store,
            leases=ledger.leases,
            lease_duration=settings.handover.lease,
            runs=ledger.runs,
        )
