"""What needs an operator and stops nothing: parked destinations, and strays in the poison queue."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from migrator.delays.broker import BrokerFacts
from migrator.errors import MigratorError
from migrator.ledger.report import HeldDestination
from migrator.nservicebus.conversion import Reason
from migrator.service.schedule import Job
from migrator.text import counted

_log = logging.getLogger(__name__)

_LOOK_AT_POISON_EVERY: Final = timedelta(minutes=1)
_LOG_PARKED_EVERY_S: Final = 60.0
_LOGGED: Final = 10
"""Parked destinations that are named in one line of the log."""
_FOR_AN_OPERATOR: Final = frozenset(
    {Reason.NO_PERMISSION, Reason.EXCHANGE_TYPE, Reason.SUFFIX_COLLISION}
)
"""Reasons that do not end before an operator changes something."""


class PoisonTask:
    """Reports how many messages that are not migrator's were taken out of its queues."""

    def __init__(self, facts: BrokerFacts, queue: str) -> None:
        self._facts = facts
        self._queue = queue
        self.job = Job("poison-queue", _LOOK_AT_POISON_EVERY, self._look)

    def _look(self) -> None:
        try:
            queue = self._facts.queues([self._queue])[self._queue]
        except MigratorError:  # lanes report a broker that is away
            return
        messages = 0 if queue is None else queue.ready
        text = f"{self._queue} keeps {counted(messages, 'message')} that are not migrator's"
        facts = {"queue": self._queue, "messages": messages}
        self.job.report("found" if messages else "empty", text, facts, is_fine=not messages)


class ParkedLog:
    """Logs which destinations are parked and what to do, once a minute for all of them."""

    def __init__(self) -> None:
        self._again_s = float("-inf")

    def is_due(self, now_s: float) -> bool:
        """Return whether the last line is a minute old."""
        return now_s >= self._again_s

    def report(self, parked: Collection[HeldDestination], *, now_s: float) -> None:
        """Log *parked*, unless that was done less than a minute before *now_s*."""
        if not parked or not self.is_due(now_s):
            return
        self._again_s = now_s + _LOG_PARKED_EVERY_S
        first = sorted(parked, key=lambda each: (each.reason not in _FOR_AN_OPERATOR, each.since))
        remedies = {str(reason): reason.remedy for reason in Reason}
        _log.log(
            logging.ERROR if first[0].reason in _FOR_AN_OPERATOR else logging.WARNING,
            "destinations are parked; their timeouts wait in the ledger",
            extra={
                "action": "destinations_parked",
                "destinations": len(parked),
                "reasons": dict(Counter(each.reason for each in parked)),
                "parked": [
                    {
                        "endpoint": each.endpoint,
                        "destination": each.destination,
                        "reason": each.reason,
                        "detail": each.detail,
                        "remedy": remedies.get(each.reason, ""),
                    }
                    for each in first[:_LOGGED]
                ],
            },
        )
