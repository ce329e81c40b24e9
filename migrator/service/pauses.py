"""What the process does about reasons to claim nothing: they are logged, and some end it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

from migrator.errors import LimitPassed
from migrator.service.audit_log import AuditLog
from migrator.service.worker import Stop
from migrator.throttle.reasons import Listener, PauseReason

_log = logging.getLogger(__name__)

BEGAN: Final = "hold_began"
ENDED: Final = "hold_ended"
CRITICAL: Final = "critical_load"


def log_pauses(audit_log: AuditLog) -> Listener:
    """Return a listener that logs each change, and has the ledger note it."""

    def listener(reason: PauseReason, began: bool) -> None:
        facts = reason.facts
        if began:
            _log.warning("nothing new is claimed", extra={"action": BEGAN, **facts})
        else:
            held_s = (datetime.now(UTC) - reason.since).total_seconds()
            facts["held_s"] = round(max(held_s, 0.0), 1)
            _log.info("a reason to wait has ended", extra={"action": ENDED, **facts})
        audit_log.note(BEGAN if began else ENDED, facts)

    return listener


def end_for_critical_load(stop: Stop, audit_log: AuditLog, text: str) -> None:
    """End the process because a critical limit was passed; only the first time counts."""
    with stop.lock:
        if stop.reason is not None or stop.draining.is_set():
            return
        stop.reason = LimitPassed(
            f"{text}; claimed batches are finished, and nothing more is claimed; fix the cause "
            "and start the daemon again"
        )
        _log.error("a critical limit was passed", extra={"action": CRITICAL, "reason": text})
        audit_log.note(CRITICAL, {"reason": text})
        stop.draining.set()
