"""The canary of a running daemon: probes when the schedule says so, on a thread of its own.

Rules:

* it shares nothing with lanes and dispatchers, and whatever befalls it ends nobody else's work;
* while probes of an earlier flight are still out, none is sent: in a level that stands still they
  would only add to what has to come out again, and each would need a queue that still exists;
* told to end in the middle of a flight, it goes at once; its queue then waits for the probes, and
  removes itself (see ``delays.probe``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from migrator.delays.probe_results import Flight, flight_text, probe_document
from migrator.errors import Interrupted, MigratorError
from migrator.ledger.ports import Runs
from migrator.service.errand import Errand
from migrator.web.status import JobReport

_log = logging.getLogger(__name__)

EVENT: Final = "canary"


class Flights(Protocol):
    """How probes are sent, and looked after when they are late."""

    def fly(self, guard: Callable[[], None]) -> Flight:
        """Send probes, wait for them; *guard* is called meanwhile, and raises to end it."""
        ...

    def are_back(self, flight: Flight) -> bool:
        """Return whether the lost probes of *flight* came in after all; removes their queue."""
        ...


class Canary:
    """Flies when asked to, and tells what came of it."""

    def __init__(self, flights: Flights, *, runs: Runs, warn_after: timedelta) -> None:
        """Prepare; the errand's thread is to be started.

        Args:
            flights: Sends the probes.
            runs: Take the outcomes, for the audit trail.
            warn_after: A probe that is later is warned of.
        """
        self._flights = flights
        self._runs = runs
        self._warn_after_s = warn_after.total_seconds()
        self.last: JobReport | None = None
        """What came of the last flight; None: none has come back yet."""
        self._left: Flight | None = None
        """The flight whose probes are still out."""
        self.errand = Errand("canary", self._measure)

    def _measure(self) -> None:
        try:
            flight = self._flight()
        except Interrupted:
            return
        except MigratorError as exc:
            self._tell_failure(exc, is_bug=False)
        except Exception as exc:  # a bug of ours must not end the work of others
            self._tell_failure(exc, is_bug=True)
        else:
            self._tell(flight)

    def _flight(self) -> Flight:
        if self._left is not None and not self._flights.are_back(self._left):
            return self._left
        flight = self._flights.fly(self.errand.check)
        self._left = flight if flight.left_queue else None
        return flight

    # ── telling ─────────────────────────────────────────────────────────────────────────────

    def _tell(self, flight: Flight) -> None:
        late = list(flight.late_levels(after_s=self._warn_after_s))
        facts: dict[str, object] = {
            "delays": str(flight.version),
            "probes": [probe_document(probe) for probe in flight.probes],
        }
        if late:
            _log.warning(
                "probes through the delay levels are late, early or lost",
                extra={"action": "canary_late", "levels": late, **facts},
            )
        else:
            _log.info("probes came back in time", extra={"action": "canary_measured", **facts})
        detail = {"outcome": "late" if late else "measured", "late_levels": late, **facts}
        self._record(detail, text=flight_text(flight, late), is_fine=not late)

    def _tell_failure(self, exc: Exception, *, is_bug: bool) -> None:
        _log.warning(
            "the canary could not measure; it tries again at its next time",
            extra={"action": "canary_failed", "error": str(exc)},
            exc_info=is_bug,
        )
        self._record({"outcome": "failed", "error": str(exc)}, text=str(exc), is_fine=False)

    def _record(self, found: Mapping[str, object], *, text: str, is_fine: bool) -> None:
        detail = {**found, "text": text}
        self.last = JobReport(
            at=datetime.now(UTC),
            outcome=str(detail["outcome"]),
            is_fine=is_fine,
            text=text,
            detail=detail,
        )
        try:
            self._runs.record(EVENT, detail=detail, batch=None)
        except Exception as exc:  # the log has it; the ledger's own trouble is told by the lanes
            _log.warning(
                "what the canary found could not be recorded",
                extra={"action": "canary_failed", "error": str(exc)},
            )
