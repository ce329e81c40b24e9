"""Is the vendor's migration tool half-way through? Two tools at the same rows lose some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts
from migrator.stores.ports import Store

NAME: Final = "vendor-run"
STAGING_QUEUE: Final = "TimeoutMigrationTool_Staging"
_REMEDY: Final = "finish that run, or abort it with the vendor's tool"


def check(store: Store, broker: BrokerFacts) -> Iterator[Finding]:
    """Refuse while the vendor's tool has rows hidden in the store or messages in its queue."""
    unfinished = store.unfinished_vendor_runs()
    for text in unfinished:
        yield Finding(
            check=NAME, level=Level.REFUSED, subject="vendor's tool", text=text, remedy=_REMEDY
        )
    staging = broker.queues([STAGING_QUEUE])[STAGING_QUEUE]
    if staging is not None:
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject=STAGING_QUEUE,
            text=f"the vendor's staging queue exists, with {staging.messages} messages",
            remedy=_REMEDY,
        )
    if not unfinished and staging is None:
        yield Finding(
            check=NAME, level=Level.OK, subject="vendor's tool", text="it left nothing behind"
        )
