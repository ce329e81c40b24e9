"""The ledger's purge of a running daemon: what ``migrator ledger purge`` does, at its times.

Rules of this file: it refuses what the command refuses; it deletes in short transactions, so that
lanes wait for moments at most, and no more at a time than is good for a database; several
processes may do it at once, each row is deleted by one of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from migrator.errors import Interrupted, MigratorError
from migrator.ledger.ports import Runs
from migrator.service.errand import Errand
from migrator.web.status import JobReport

_log = logging.getLogger(__name__)

NAME: Final = "ledger-purge"
EVENT: Final = "ledger_purged"
MOST_ROWS: Final = 1_000_000
"""At a time; the rest waits for the next one."""
_REST_S: Final = 0.05
"""Between two transactions, which are of thousands of rows."""


class Upkeep(Protocol):
    """Deletes settled rows."""

    def purge(self, *, before: datetime, at_most: int | None, goes_on: Callable[[], bool]) -> int:
        """Delete rows settled and due before *before*; see ``ledger.operator_actions``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeParts:
    """What a purge asks and acts on."""

    verify: Callable[[], object]
    """Raises when the ledger is not one to be worked on."""
    now: Callable[[], datetime]
    """The database's time."""
    upkeep: Upkeep
    runs: Runs


class Purge:
    """Purges when asked to, and tells what came of it."""

    def __init__(self, parts: PurgeParts, *, after: timedelta, most_rows: int = MOST_ROWS) -> None:
        """Prepare; the errand's thread is to be started. *after*: since settled and due."""
        self._parts = parts
        self._after = after
        self._most_rows = most_rows
        self._rest = threading.Event()
        self.last: JobReport | None = None
        """What came of the last time; None: not done yet."""
        self.errand = Errand(NAME, self._purge)

    def _purge(self) -> None:
        parts = self._parts
        try:
            parts.verify()
            before = parts.now() - self._after
            rows = parts.upkeep.purge(before=before, at_most=self._most_rows, goes_on=self._goes_on)
        except MigratorError as exc:
            _log.warning(
                "settled rows could not be purged; it is tried again at its next time",
                extra={"action": "ledger_purge_failed", "error": str(exc)},
            )
            self._report("failed", f"{exc}", {"error": str(exc)})
            return
        more = rows >= self._most_rows
        detail = {"before": before.isoformat(), "run": None, "rows": rows, "is_all": not more}
        text = f"{rows} rows settled and due before {before:%Y-%m-%d %H:%M} UTC deleted"
        self._report("done", f"{text}; there are more" if more else text, detail)
        _log.info("settled rows were purged", extra={"action": EVENT, **detail})
        if rows:
            self._record(detail)

    def _goes_on(self) -> bool:
        """Rest, and return whether nobody asked to stop."""
        try:
            self.errand.check()
        except Interrupted:
            return False
        self._rest.wait(_REST_S)
        return True

    def _report(self, outcome: str, text: str, detail: Mapping[str, object]) -> None:
        self.last = JobReport(
            at=datetime.now(UTC),
            outcome=outcome,
            is_fine=outcome == "done",
            text=text,
            detail=detail,
        )

    def _record(self, detail: Mapping[str, object]) -> None:
        try:
            self._parts.runs.record(EVENT, detail=detail, batch=None)
        except MigratorError as exc:  # they are gone; the log has it
            _log.warning(
                "a purge could not be recorded",
                extra={"action": "ledger_purge_failed", "error": str(exc)},
            )
