"""Messages that bear the tag of a row, as a scan of a level finds them."""

from __future__ import annotations

from migrator.delays.tagged import TaggedMessage
from migrator.nservicebus.timeouts import BatchId, TimeoutId


def tagged_message(batch: int, row_index: int, timeout_id: str, body_bytes: int) -> TaggedMessage:
    """Return a message of the first attempt at a row."""
    return TaggedMessage(
        batch=BatchId(batch),
        row_index=row_index,
        timeout_id=TimeoutId(timeout_id),
        attempt=1,
        body_bytes=body_bytes,
        body_hash="",
        version="v2",
        level=27,
        delay_s=2**27,
        seen_at_s=0.0,
    )
