"""Tables that fail or are locked: asked by a job until they answer, shown and logged meanwhile.

Lanes leave such a table out (``handover.sources``), so what it costs to find out that it answers
again is paid here, by nobody who hands over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from migrator.errors import StoreError, StoreLocked
from migrator.handover.sources import (
    LONGEST_WAIT_S,
    FailingSource,
    FailingSources,
)
from migrator.ledger.report import Signal
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.schedule import Job
from migrator.service.throttle import Throttle
from migrator.stores.ports import Store

_log = logging.getLogger(__name__)

_EVERY: Final = timedelta(seconds=1)
_LOG_EVERY_S: Final = 60.0
_ASKED_FOR: Final = timedelta(seconds=0.2)
"""So long a table that is locked is waited for."""
_TRIED_AGAIN: Final = f"tried again at least every {LONGEST_WAIT_S:g} s"


class FailingSourcesTask:
    """Asks failing tables again, and tells of each as long as it fails."""

    def __init__(self, store: Store, failing: FailingSources, throttle: Throttle) -> None:
        """Prepare to ask *store*; each failing source is a reason of *throttle*."""
        self._store = store
        self._failing = failing
        self._throttle = throttle
        self._logged_s: dict[EndpointName, float] = {}
        """When each was in the log last; monotonic."""
        self.job = Job("failing-tables", _EVERY, self.look, may_lag=True)

    def look(self) -> None:
        """Ask those whose time has come, and bring up to date what is told of all."""
        now_s = self._failing.now_s()
        for each in self._failing.all():
            if each.is_left_out and each.next_s <= now_s:
                self._ask(each)
        failing = {each.endpoint.name: each for each in self._failing.all()}
        for each in failing.values():
            self._tell(each)
        self._forget(failing)

    def _ask(self, failing: FailingSource) -> None:
        endpoint = failing.endpoint
        try:
            self._store.answer_s(endpoint.source, patience=_ASKED_FOR)
            self._store.read_anew(endpoint)
        except StoreError as exc:
            if exc.is_of_source:  # else the database is away, and the lanes say so
                self._failing.note_failed(endpoint, exc)
        else:
            self._failing.note_answered(endpoint.source)

    def _tell(self, failing: FailingSource) -> None:
        endpoint = failing.endpoint.name
        observed, remedy = str(failing.error), remedy_of(failing.error)
        self._throttle.pause(Signal.TABLE, endpoint, observed, f"{remedy}; {_TRIED_AGAIN}")
        now_s = time.monotonic()
        if now_s - self._logged_s.get(endpoint, float("-inf")) < _LOG_EVERY_S:
            return
        self._logged_s[endpoint] = now_s
        _log.warning(
            "the table of an endpoint fails or is locked; the endpoint waits, the others go on",
            extra={
                "action": "table_failing",
                "endpoint": endpoint,
                "source": failing.endpoint.source,
                "error": observed,
                "failures": failing.failures,
                "remedy": remedy,
            },
        )

    def _forget(self, failing: Collection[EndpointName]) -> None:
        for reason in self._throttle.reasons():
            if reason.signal is Signal.TABLE and reason.endpoint not in failing:
                self._throttle.resume(Signal.TABLE, reason.endpoint)
        for endpoint in self._logged_s.keys() - failing:
            del self._logged_s[endpoint]


def log_left(failing: FailingSources) -> None:
    """Log what a run to the end leaves because its table fails."""
    for each in failing.all():
        _log.error(
            "an endpoint was left: its table fails or is locked; the next run continues with it",
            extra={
                "action": "table_left",
                "endpoint": each.endpoint.name,
                "source": each.endpoint.source,
                "error": str(each.error),
            },
        )


def remedy_of(error: StoreError) -> str:
    """Return what to do about a table that fails with *error*."""
    if isinstance(error, StoreLocked):
        return "find the transaction that keeps the table, and end it"
    return "restore the table or its rights, or remove the endpoint from this daemon"
