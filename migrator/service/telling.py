"""What is logged, and noted in the ledger, when hand-over begins or ceases to wait, or gives up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from migrator.errors import LimitPassed
from migrator.ledger.pause_reasons import Hold
from migrator.service.gate import Tell
from migrator.service.trail import Trail
from migrator.service.worker import Stop

_log = logging.getLogger(__name__)

BEGAN: Final = "hold_began"
ENDED: Final = "hold_ended"
PANIC: Final = "panic"


def telling(trail: Trail, on_change: Callable[[], None]) -> Tell:
    """Return what a gate calls: log, ledger, and *on_change*; all of it returns at once."""

    def tell(hold: Hold, began: bool) -> None:
        facts: dict[str, object] = {
            "signal": str(hold.signal),
            "endpoint": hold.endpoint,
            "observed": hold.observed,
            "limit": hold.limit,
        }
        if began:
            _log.warning("nothing new is claimed", extra={"action": BEGAN, **facts})
        else:
            held_s = (datetime.now(UTC) - hold.since).total_seconds()
            facts["held_s"] = round(max(held_s, 0.0), 1)
            _log.info("a reason to wait is gone", extra={"action": ENDED, **facts})
        trail.note(BEGAN if began else ENDED, facts)
        on_change()

    return tell


def both(first: Tell, then: Tell) -> Tell:
    """Return what a gate calls to tell two."""

    def tell(hold: Hold, began: bool) -> None:
        first(hold, began)
        then(hold, began)

    return tell


def panicking(stop: Stop, trail: Trail) -> Callable[[str], None]:
    """Return what ends the process when a panic limit is passed; only the first time counts."""
    lock = threading.Lock()

    def panic(text: str) -> None:
        with lock:
            if stop.reason is not None or stop.draining.is_set():
                return
            stop.reason = LimitPassed(
                f"{text}; what was claimed is finished, nothing more is; put it right and start "
                "the daemon again"
            )
            _log.error("a panic limit was passed", extra={"action": PANIC, "reason": text})
            trail.note(PANIC, {"reason": text})
            stop.draining.set()

    return panic
