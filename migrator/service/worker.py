"""What lanes and dispatchers have in common: a thread that runs until told to stop, or crashes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.errors import Interrupted, LedgerAdopted, LedgerBehind, MigratorError
from migrator.nservicebus.timeouts import Lane

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Stop:
    """How the whole process is asked to end."""

    draining: threading.Event = field(default_factory=threading.Event)
    """Finish what is claimed, claim nothing new."""
    at_once: threading.Event = field(default_factory=threading.Event)
    """Stop between two steps; recovery does the rest."""
    doubtful: set[Lane] = field(default_factory=set)
    """Lanes in which nobody can tell what is where, or that cannot be finished; they stay ours,
    and untouched, until the process ends."""
    stuck: dict[Lane, MigratorError] = field(default_factory=dict)
    """Lanes with a half-done batch that waits for a person, and why; the rest of them goes on, but
    those of dead owners are not looked into again."""
    reason: MigratorError | None = None
    """Why everything is to end although nobody asked; None: somebody did."""

    def check(self) -> None:
        """Return unless everything is to stop at once.

        Raises:
            Interrupted: It is.
        """
        if self.at_once.is_set():
            raise Interrupted("asked twice to stop")


class WorkerThread:
    """One thread of the service; whatever it does not foresee asks all others to stop.

    So does a ledger that was adopted, as its id names the queues of them all, or that went back.
    """

    def __init__(
        self, name: str, *, stop: Stop, crash_action: str, facts: Mapping[str, str]
    ) -> None:
        """Prepare a thread called *name*; a crash is logged as *crash_action*, with *facts*."""
        self.name = name
        self.failure: MigratorError | None = None
        """Why the thread ended early; None when it ended well."""
        self.crash: BaseException | None = None
        self.trouble: str | None = None
        """What keeps it from its work at present; it is tried again."""
        self.wake = threading.Event()
        """Set by the schedule: look for work now."""
        self._stop = stop
        self._beat_s = 0.0
        self._crash_facts = {"action": crash_action, **facts}
        self._thread = threading.Thread(target=self._guard, name=name, daemon=True)

    def start(self) -> None:
        """Let the thread run."""
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        """Note that the thread's loop goes on; waiting for work is going on, too."""
        self._beat_s = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Since when the loop did not go on, in seconds; 0 before it starts and after its end."""
        return time.monotonic() - self._beat_s if self._thread.is_alive() else 0.0

    @property
    def ended_well(self) -> bool:
        """Whether there is nothing to be said about its end."""
        return self.failure is None and self.crash is None

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes it wait (memory or disk alarm), or None; asked by other threads."""
        return None

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Work until there is nothing left, or until told to stop."""
        raise NotImplementedError

    def _guard(self) -> None:
        try:
            self._run()
        except LedgerBehind as exc:
            self.failure = exc
            _log.error(
                "the database lacks what was committed; the process ends",
                extra={"action": "ledger_behind", "error": str(exc)},
            )
            self._stop.draining.set()
            self._stop.at_once.set()
        except LedgerAdopted as exc:
            self.failure = exc
            _log.error(
                "the ledger was adopted meanwhile; the process ends",
                extra={"action": "ledger_adopted", "error": str(exc)},
            )
            self._stop.draining.set()
        except BaseException as exc:
            self.crash = exc
            _log.critical("a bug ended a thread", extra=self._crash_facts, exc_info=True)
            self._stop.draining.set()
