"""Events for the ledger's audit log, written in the background: nobody waits for the ledger.

Rules of this file: in order, one at a time, tried again until the ledger has it; what the ledger
got although its answer was lost is there twice. The log has each event as well, at once.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from migrator.errors import MigratorError
from migrator.ledger.batches import SqlRuns

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
_LAST_WAIT_S: Final = 3.0
_MOST: Final = 1000
"""Events that wait for a ledger that does not answer; the oldest go first."""


class Note(NamedTuple):
    """One event on its way."""

    kind: str
    detail: Mapping[str, object]
    written: threading.Event
    """Set once the ledger has it."""


class AuditLog:
    """Writes events from a thread of its own."""

    def __init__(self, runs: SqlRuns) -> None:
        self._runs = runs
        self._waiting: deque[Note] = deque(maxlen=_MOST)
        self._change = threading.Condition()
        self._is_ending = False
        self._last_try_s = math.inf
        self._thread = threading.Thread(target=self._run, name="audit-trail", daemon=True)

    def start(self) -> None:
        """Let the thread run."""
        self._thread.start()

    def note(self, kind: str, detail: Mapping[str, object]) -> Note:
        """Have an event written; returns at once."""
        note = Note(kind, detail, threading.Event())
        with self._change:
            self._waiting.append(note)
            self._change.notify()
        return note

    def end(self) -> None:
        """Write what waits, if the ledger takes it within moments; say what is lost if not."""
        with self._change:
            self._is_ending = True
            self._last_try_s = time.monotonic() + _LAST_WAIT_S
            self._change.notify()
        self._thread.join(_LAST_WAIT_S)
        if self._waiting:
            _log.warning(
                "events are in the log, but not in the ledger, which did not accept them in time",
                extra={"action": "audit_lost", "count": len(self._waiting)},
            )

    def _run(self) -> None:
        is_late = False
        while (note := self._next()) is not None:
            try:
                self._runs.record(note.kind, detail=note.detail, batch=None)
            except MigratorError as exc:
                if not is_late:
                    is_late = True
                    _log.warning(
                        "the ledger does not accept events now; they are written later",
                        extra={"action": "audit_delayed", "kind": note.kind, "error": str(exc)},
                    )
                if not self._wait_to_try_again():
                    return
                continue
            except Exception:  # a bug in a side job must not end it for good
                _log.exception(
                    "an event could not be written and is dropped",
                    extra={"action": "audit_lost", "kind": note.kind, "count": 1},
                )
            is_late = False
            with self._change:
                if self._waiting and self._waiting[0] is note:
                    self._waiting.popleft()
            note.written.set()

    def _wait_to_try_again(self) -> bool:
        """Wait a little; False: it ends, and the last moments are over."""
        with self._change:
            if self._change.wait_for(lambda: self._is_ending, _AGAIN_S):
                self._change.wait(_AGAIN_S / 10)
            return time.monotonic() < self._last_try_s

    def _next(self) -> Note | None:
        """Return the oldest event as soon as there is one; None: all is written, and it ends."""
        with self._change:
            self._change.wait_for(lambda: bool(self._waiting) or self._is_ending)
            return self._waiting[0] if self._waiting else None
