"""Names of the entities migrator itself puts on the broker; all begin with ``migrator.``.

Public, because operators write policies and permissions for them. Source: design section 5.
"""

from __future__ import annotations

import hashlib
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.timeouts import Lane

PREFIX: Final = "migrator."
_NAME_BYTES: Final = 255
_DIGEST_CHARS: Final = 16


def entry_exchange(version: DelaysVersion, level: int) -> str:
    """Return the fanout exchange that leads straight into the queue of *level*."""
    return f"{PREFIX}entry.{version}.{level:02d}"


def router_exchange(version: DelaysVersion) -> str:
    """Return the headers exchange that staged messages are dead-lettered to."""
    return f"{PREFIX}router.{version}"


def staging_name(version: DelaysVersion, ledger_id: str, lane: Lane) -> str:
    """Return the name shared by a lane's staging exchange and its staging queue.

    The queue dead-letters to the router of one generation, so each generation has its own.
    """
    suffix = "" if version is DelaysVersion.V2 else f".{version}"
    return f"{PREFIX}staging.{ledger_id}.{lane}{suffix}"


def receipts_queue(ledger_id: str, lane: Lane) -> str:
    """Return the queue in which receipts of committed passes arrive."""
    return f"{PREFIX}receipts.{ledger_id}.{lane}"


def guard_queue(ledger_id: str, lane: Lane) -> str:
    """Return the exclusive queue whose existence says that the lane has an owner."""
    return f"{PREFIX}lane.{ledger_id}.{lane}"


def receipt_value(ledger_id: str, lane: Lane) -> str:
    """Return the header value by which the router tells this lane's receipts."""
    return f"receipt.{ledger_id}.{lane}"


def retry_queue(queue: str, delay_s: int) -> str:
    """Return the queue in which a failed message of *queue* waits for *delay_s* seconds.

    A name that would be too long for the broker is cut, and told from others by a hash.
    """
    name = f"{PREFIX}retry.{queue}.{delay_s}"
    if len(name.encode()) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(queue.encode()).hexdigest()[:_DIGEST_CHARS]
    room = _NAME_BYTES - len(f"{PREFIX}retry..{digest}.{delay_s}".encode())
    kept = queue.encode()[:room].decode(errors="ignore")
    return f"{PREFIX}retry.{kept}.{digest}.{delay_s}"
