"""Endpoints that wait by themselves: their table fails, or a check of the start refuses them.

Both are asked again by a job until that has gone, and shown and logged once a minute meanwhile.
Lanes leave them out (``handover.sources``), so no lane pays for finding it out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, Protocol

from migrator.errors import MigratorError, StoreError, StoreLocked
from migrator.handover.sources import (
    LONGEST_WAIT_S,
    FailingSource,
    FailingSources,
)
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.preflight.context import Finding, refusals
from migrator.preflight.start import StartChecks
from migrator.service.schedule import Job
from migrator.stores.ports import Store
from migrator.throttle.reasons import Signal, Throttle

_log = logging.getLogger(__name__)

_EVERY: Final = timedelta(seconds=1)
_LOG_EVERY_S: Final = 60.0
_ASKED_FOR: Final = timedelta(seconds=0.2)
"""So long a table that is locked is waited for."""
_CHECK_EVERY_S: Final = 10.0
_SHARE: Final = 20
"""A check that took a second is not made again within so many."""
_TRIED_AGAIN: Final = f"tried again at least every {LONGEST_WAIT_S:g} s"

Refusals = Mapping[str, Sequence[Finding]]
"""Why endpoints may not be served, by name."""


class StartCheck(Protocol):
    """Makes the checks of a start again."""

    def check(self, names: Sequence[str]) -> StartChecks:
        """Check whether the endpoints called *names* may be served.

        Raises:
            MigratorError: It cannot be found out.
        """
        ...


class FailingSourcesTask:
    """Asks failing tables again, and tells of each as long as it fails."""

    def __init__(self, store: Store, failing: FailingSources, throttle: Throttle) -> None:
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
            self._store.access_latency_s(endpoint.source, timeout=_ASKED_FOR)
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


class RefusedEndpoints:
    """The endpoints that the checks of the start refuse: checked again until they may be served."""

    def __init__(
        self,
        start: StartCheck,
        endpoints: Sequence[StoreEndpoint],
        refused: Refusals,
        *,
        failing: FailingSources,
        throttle: Throttle,
    ) -> None:
        self._start = start
        self._endpoints = {each.name: each for each in endpoints}
        self._failing = failing
        self._throttle = throttle
        self._refused = refused
        self._log_at_s = self._check_at_s = float("-inf")
        failing.refuse([self._endpoints[EndpointName(name)].source for name in refused])
        self.job = Job("refused-endpoints", 2 * _EVERY, self.look, may_lag=True)

    def names(self) -> Collection[str]:
        """Return those that are refused now."""
        return self._refused.keys()

    def begin(self) -> None:
        """Tell of them for the first time."""
        self._check_at_s = time.monotonic() + _CHECK_EVERY_S
        self._tell()

    def look(self) -> None:
        """Check them again now and then, and no longer than a share of the time."""
        began_s = time.monotonic()
        if not self._refused or began_s < self._check_at_s:
            return
        try:
            checked = self._start.check([*self._refused])
        except MigratorError as exc:
            _log.info(
                "refused endpoints could not be checked now",
                extra={"action": "refused_not_checked", "error": str(exc)},
            )
        else:
            self._use(checked)
        took_s = time.monotonic() - began_s
        self._check_at_s = time.monotonic() + max(_CHECK_EVERY_S, took_s * _SHARE)
        self._tell()

    def _use(self, checked: StartChecks) -> None:
        if None in refusals(checked.findings):
            return  # it is no matter of these endpoints; the recheck of the broker says so
        admitted = self._refused.keys() - checked.refused.keys()
        self._refused = checked.refused
        self._failing.refuse([self._endpoints[EndpointName(n)].source for n in self._refused])
        for name in sorted(admitted):
            _log.info(
                "no check refuses the endpoint any more; it is served",
                extra={"action": "endpoint_admitted", "endpoint": name},
            )
            self._throttle.resume(Signal.REFUSED, EndpointName(name))

    def _tell(self) -> None:
        is_time = time.monotonic() >= self._log_at_s
        for name, findings in self._refused.items():
            text = "; ".join(f"{each.subject}: {each.text}" for each in findings)
            remedy = "; ".join({each.remedy: None for each in findings if each.remedy})
            self._throttle.pause(Signal.REFUSED, EndpointName(name), text, remedy)
            if is_time:
                _log.warning(
                    "a check refuses an endpoint; it waits, the others are served",
                    extra={
                        "action": "endpoint_refused",
                        "endpoint": name,
                        "text": text,
                        "remedy": remedy,
                    },
                )
        if is_time:
            self._log_at_s = time.monotonic() + _LOG_EVERY_S


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
