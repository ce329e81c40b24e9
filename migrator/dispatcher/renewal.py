"""Messages that have come back often: the broker drops them in the end, so a copy takes over.

RabbitMQ 4 drops a message of a quorum queue that nobody gave a limit when it has come back 21
times, and every lost connection brings back what was in hand (measured with 4.0.5; 3.10 has no
limit unless somebody sets one). A copy at the end of the same queue begins to count anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from migrator.nservicebus import headers as h
from migrator.nservicebus.envelopes import IncomingMessage, RawMessage
from migrator.nservicebus.recoverability import can_be_retried_later, retries_so_far, retry_copy

OFTEN: Final = 8
"""Comings back; as many again, and some, are left before the broker's own limit is reached."""
_COUNT: Final = "x-delivery-count"
_ANY_NUMBER: Final = 10**9


def is_worn(message: IncomingMessage, *, frame_max_bytes: int) -> bool:
    """Return whether a copy of *message* should take over: it came back often, and can be copied.

    What comes from no quorum queue is never worn.
    """
    count = message.raw_headers.get(_COUNT)
    came_back_often = isinstance(count, int) and count >= OFTEN
    return came_back_often and can_be_retried_later(message, frame_max_bytes=frame_max_bytes)


def renewed_copy(message: IncomingMessage) -> RawMessage:
    """Return *message* for its own queue; a row made of it has the same id, and it is marked."""
    copy = retry_copy(message, retries=retries_so_far(message, limit=_ANY_NUMBER))
    return replace(copy, headers={**copy.headers, h.OUR_RENEWAL: "True"})


def is_renewed(message: IncomingMessage) -> bool:
    """Return whether *message* stands for one that somebody, so perhaps we, had before."""
    return h.OUR_RENEWAL in message.raw_headers
