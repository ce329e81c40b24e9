"""The quarantine of a running daemon: looked into, and tried again, when an operator says so.

Rules of this file: rows are tried again by a thread of its own, one wish at a time, so that nobody
waits for many rows; how many they were is in the audit trail, as on the command line.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from migrator.app import App
from migrator.errors import MigratorError
from migrator.ledger.report import QuarantinedRow, QuarantineFilter
from migrator.ledger.states import Mode
from migrator.web.control import Answer, Retry
from migrator.web.status import QuarantinePage

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 3.0
"""So long whoever asked is kept waiting for the number of rows."""
EVENT: Final = "quarantine_retried"


class Rows(Protocol):
    """Where the rows are; each call may take its time, and raise ``MigratorError``."""

    def page(self, which: QuarantineFilter, *, after: int, limit: int) -> Sequence[QuarantinedRow]:
        """Return rows whose key is above *after*."""
        ...

    def retry(self, which: QuarantineFilter) -> int:
        """Try them again; return how many."""
        ...


class AppRows:
    """Implements ``Rows``."""

    def __init__(self, app: App) -> None:
        """Ask the ledger that *app* reaches."""
        self._app = app

    def page(self, which: QuarantineFilter, *, after: int, limit: int) -> Sequence[QuarantinedRow]:
        """Return rows whose key is above *after*."""
        return self._app.quarantine.page(which, after=after, limit=limit)

    def retry(self, which: QuarantineFilter) -> int:
        """Put rows of a dispatcher back into their tables, all others into new batches."""
        app = self._app
        returned = app.claims.release_quarantined(None, replace(which, mode=Mode.DISPATCH))
        return returned + app.quarantine.retry(which, mode=app.plan.mode)


class _Work:
    """One wish."""

    def __init__(self, rows: Rows, command: Retry) -> None:
        self._from = rows
        self._which = QuarantineFilter(
            endpoint=command.endpoint, reason=command.reason, timeout_id=command.timeout_id
        )
        self.rows: int | None = None
        """None: not over, or in vain."""
        self.answer = Answer(is_done=False, text="a bug; the log has more")
        self.is_over = threading.Event()

    @property
    def detail(self) -> Mapping[str, object]:
        """What the audit trail has of it."""
        which = self._which
        return {
            "endpoint": which.endpoint,
            "reason": which.reason,
            "id": which.timeout_id,
            "rows": self.rows,
        }

    def do(self) -> None:
        """Try the rows again."""
        try:
            self.rows = self._from.retry(self._which)
        except MigratorError as exc:
            text = f"not all were tried again, perhaps none: {exc}"
            self.answer = Answer(is_done=False, text=text)
        except Exception:  # the next wish is to be heard
            _log.exception(
                "quarantined rows could not be tried again",
                extra={"action": "job_failed", "job": "retry"},
            )
        else:
            text = f"{self.rows} row{'' if self.rows == 1 else 's'} of the quarantine"
            self.answer = Answer(is_done=True, text=f"{text} tried again")


class Aside:
    """What is kept aside, for a panel; from any thread."""

    def __init__(
        self,
        rows: Rows,
        *,
        note: Callable[[str, Mapping[str, object]], object],
        wake: Callable[[], None],
    ) -> None:
        """Ask *rows*; *note* writes an event, *wake* has lanes look for what is tried again."""
        self._rows = rows
        self._note = note
        self._wake = wake
        self._turn = threading.Lock()

    def page(self, which: QuarantineFilter, *, after: int, limit: int) -> QuarantinePage:
        """Return at most *limit* rows whose key is above *after*."""
        try:
            rows = self._rows.page(which, after=after, limit=limit + 1)
        except MigratorError as exc:
            return QuarantinePage(trouble=str(exc))
        return QuarantinePage(rows=rows[:limit], has_more=len(rows) > limit)

    def retry(self, command: Retry) -> Answer:
        """Try rows again; say how many when that is known soon."""
        if not self._turn.acquire(blocking=False):
            return Answer(
                is_done=False,
                text="rows are being tried again already; nothing was begun, try again later",
            )
        work = _Work(self._rows, command)
        threading.Thread(target=self._run, args=(work,), name="retry", daemon=True).start()
        if not work.is_over.wait(_PATIENCE_S):
            text = f"being tried again; the ledger's event {EVENT} will tell how many"
            return Answer(is_done=True, text=text)
        return work.answer

    def _run(self, work: _Work) -> None:
        try:
            work.do()
        finally:
            self._turn.release()
            work.is_over.set()
        if work.rows:
            self._wake()
        if work.rows is not None:
            self._note(EVENT, work.detail)
