"""Whether the broker's clock is ours: ``x-death`` tells times by the broker's."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from migrator.rabbitmq.connection import (
    PIKA_FAILURES,
    ConnectionSettings,
    closing_error,
    open_blocking,
)

_PATIENCE_S: Final = 5.0
_STEP_S: Final = 0.01
_SLACK: Final = timedelta(milliseconds=500)
_SECOND: Final = timedelta(seconds=1)


def is_our_clock(settings: ConnectionSettings, now: Callable[[], datetime]) -> bool | None:
    """Return whether the broker's time is that of *now*, to about a second; None: not known.

    A message that expires at once on its way between two queues of a moment comes with the
    broker's time. In a cluster it is that of the node we are connected to.

    Raises:
        TargetUnavailable, AccessRefused: The broker cannot be asked.
    """
    connection = open_blocking(settings, "migrator clock")
    try:
        before = now()
        death = _death(connection.channel())
        after = now()
    except PIKA_FAILURES as exc:
        raise closing_error(exc, settings.address) from exc
    finally:
        with suppress(*PIKA_FAILURES):
            connection.close()
    if death is None:
        return None
    # whole seconds, cut off: it was within the second that began then
    return before - _SECOND - _SLACK <= death <= after + _SLACK


def _death(channel: Any) -> datetime | None:
    """Return the time that the broker writes for a message that expires now."""
    caught = channel.queue_declare("", exclusive=True).method.queue
    arguments = {
        "x-message-ttl": 0,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": caught,
    }
    expiring = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    channel.basic_publish("", expiring, b"")
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        method, properties, _ = channel.basic_get(caught, auto_ack=True)
        if method is not None:
            found = (properties.headers or {}).get("x-death") or [{}]
            moment = found[0].get("time")
            return moment.replace(tzinfo=UTC) if isinstance(moment, datetime) else None
        time.sleep(_STEP_S)
    return None
