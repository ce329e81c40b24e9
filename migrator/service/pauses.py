"""Pauses outlast the process: the ledger has them, and the next start holds as they say.

Rules of this file: an endpoint is paused or not, whoever paused it alone or with all others; the
latest event counts; only `resume` ends a pause, never a restart. Source: docs/control.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from migrator.ledger.pause_reasons import Hold, Signal
from migrator.ledger.report import AuditEvent
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.gate import Gate
from migrator.service.trail import Trail

_log = logging.getLogger(__name__)

EVENT: Final = "pause"


class Pauses:
    """What the ledger knows of the pauses of one process."""

    def __init__(self, gate: Gate, trail: Trail, names: Collection[EndpointName]) -> None:
        """Keep pauses of the endpoints *names*, whose rows are handed over here."""
        self._gate = gate
        self._trail = trail
        self._names = frozenset(names)

    def keep(self, endpoint: EndpointName | None) -> None:
        """Have the ledger know how *endpoint* is now, or every endpoint; returns at once."""
        for name in sorted(self._names if endpoint is None else self._names & {endpoint}):
            found = [h for h in self._gate.holds_for(name) if h.signal is Signal.PAUSED]
            detail: dict[str, object] = {"endpoint": name, "is_paused": bool(found)}
            if found:
                detail |= {"observed": found[0].observed, "since": found[0].since.isoformat()}
            self._trail.note(EVENT, detail)

    def restore(
        self, latest: Callable[[str, Collection[EndpointName]], Mapping[EndpointName, AuditEvent]]
    ) -> None:
        """Hold what was paused and not resumed; *latest* finds the latest event of each endpoint.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be asked. Nothing is held.
        """
        for name, event in sorted(latest(EVENT, self._names).items()):
            if event.detail.get("is_paused"):
                hold = _hold(name, event)
                self._gate.hold(hold)
                _log.warning(
                    "it was paused before this start, and is still; `migrator resume` ends it",
                    extra={
                        "action": "pause_kept",
                        "endpoint": name,
                        "observed": hold.observed,
                        "since": hold.since.isoformat(),
                    },
                )


def _hold(name: EndpointName, event: AuditEvent) -> Hold:
    try:
        since = datetime.fromisoformat(str(event.detail.get("since"))).astimezone(UTC)
    except ValueError:
        since = event.at
    return Hold(
        signal=Signal.PAUSED,
        endpoint=name,
        observed=str(event.detail.get("observed", "")),
        limit="",
        since=since,
    )
