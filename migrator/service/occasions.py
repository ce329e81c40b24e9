"""What is told to hooks, and when: from what the process sees anyway, to events with their facts.

Rules of this file: nothing is asked of store or broker; whatever is called here returns at once,
because hooks do. The facts of each event are public: docs/hooks.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from migrator.config import Hooks as Given
from migrator.errors import ExitCode, MigratorError
from migrator.ledger.pause_reasons import Hold
from migrator.ledger.report import EndpointProgress, Progress
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.hook_events import HookEvent, counts, set_aside
from migrator.service.hooks import Hooks
from migrator.service.lookout import Reads

QUIET_S: Final = 10.0
"""Nothing was left to move for so long: then a daemon is drained, not just between two rows."""
_WELL: Final = frozenset({ExitCode.DONE, ExitCode.QUARANTINED})

Fire = Callable[[HookEvent, str, Mapping[str, object]], None]


@contextmanager
def hooked(given: Given) -> Iterator[Hooks]:
    """Run hooks for as long as the context lasts; an error that ends it is told to them."""
    programs = {HookEvent(name): path for name, path in given.programs.items()}
    with Hooks(programs, timeout=given.timeout) as hooks:
        try:
            yield hooks
        except MigratorError as exc:
            tell_exit(hooks.fire, exc.exit_code, error=str(exc))
            raise
        except Exception as exc:
            tell_exit(hooks.fire, ExitCode.BUG, error=f"{type(exc).__name__}: {exc}")
            raise


def tell_exit(fire: Fire, code: ExitCode, *, error: str | None = None) -> None:
    """Tell that the process ends with *code*, unless it ended well."""
    if code not in _WELL:
        facts = {"exit_code": int(code), "outcome": code.name.lower(), "error": error}
        why = f": {error}" if error else ""
        fire(HookEvent.FAILURE, f"migrator ends with exit code {int(code)}{why}", facts)


def tell_put_back(fire: Fire, verb: str, document: Mapping[str, object]) -> None:
    """Tell that rows were put back by *verb*; *document* is what it writes with ``--json``."""
    fire(HookEvent.ROLLBACK, f"migrator {verb} put rows back", {"verb": verb, **document})


class Occasions:
    """What a running daemon tells; its parts call from their own threads."""

    def __init__(
        self,
        fire: Fire,
        endpoints: Collection[EndpointName],
        *,
        is_idle: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell nothing yet.

        Args:
            fire: Tells.
            endpoints: Those that this process works on; rows of others are not spoken of.
            is_idle: Whether nothing is left to move now, and nothing holds it back.
            clock_s: Monotonic.
        """
        self._fire = fire
        self._names = frozenset(endpoints)
        self._is_idle = is_idle
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._before: Progress | None = None
        self._done = 0
        """Rows done when it was drained last, or at first."""
        self._idle_since_s: float | None = None

    def began(self) -> None:
        """Every check has passed and the work begins."""
        names = sorted(self._names)
        self._fire(HookEvent.START, f"working on {', '.join(names)}", {"endpoints": names})

    def held(self, hold: Hold, began: bool) -> None:
        """A reason to claim nothing came, or went."""
        facts = {
            "began": began,
            "signal": str(hold.signal),
            "endpoint": hold.endpoint,
            "observed": hold.observed,
            "limit": hold.limit,
            "since": hold.since.isoformat(),
        }
        text = f"waits: {hold.text}" if began else f"no longer waits: {hold.text}"
        self._fire(HookEvent.THROTTLE, text, facts)

    def looked(self, progress: Progress) -> None:
        """The ledger was read: rows may have gone into quarantine, or nothing may be left."""
        with self._lock:
            before, self._before = self._before, progress
            done = _done(self._mine(progress))
            if before is None:
                self._done = done
                return
            self._tell_quarantine(before, progress)
            self._look_for_end(done, _done(self._mine(before)), progress)

    def finished(self, progress: Progress) -> None:
        """A run that was to end when nothing is left has ended so."""
        with self._lock:
            if self._before is not None:
                self._tell_quarantine(self._before, progress)
            self._before = progress
            self._tell_drained(progress)

    def _tell_quarantine(self, before: Progress, after: Progress) -> None:
        more = {name: n for name, n in set_aside(before, after).items() if name in self._names}
        if more:
            rows = sum(more.values())
            now = [
                {"endpoint": each.endpoint, "reason": each.reason, "rows": each.rows}
                for each in after.quarantine
                if each.endpoint in self._names
            ]
            facts = {"rows": rows, "endpoints": more, "now": now}
            self._fire(HookEvent.QUARANTINE, f"{rows} rows went into quarantine", facts)

    def _look_for_end(self, done: int, done_before: int, progress: Progress) -> None:
        """Tell that nothing is left once it was so for a while, after something was done."""
        flying = any(each.in_flight for each in self._mine(progress))
        if flying or done != done_before or not self._is_idle():
            self._idle_since_s = None
            return
        if self._idle_since_s is None:
            self._idle_since_s = self._clock_s()
        if done != self._done and self._clock_s() - self._idle_since_s >= QUIET_S:
            self._done = done
            self._tell_drained(progress)

    def _tell_drained(self, progress: Progress) -> None:
        facts = {"endpoints": counts(self._mine(progress))}
        self._fire(HookEvent.DRAINED, "nothing is left that can be moved now", facts)

    def _mine(self, progress: Progress) -> Sequence[EndpointProgress]:
        return [each for each in progress.endpoints if each.endpoint in self._names]


class WatchedReads:
    """Implements ``lookout.Reads``; whoever wants to know sees what the ledger has as well."""

    def __init__(self, reads: Reads, looked: Callable[[Progress], None]) -> None:
        """Read by *reads*, and tell *looked*."""
        self._looked = looked
        self._progress = reads.progress
        self.events = reads.events
        self.ladder = reads.ladder
        self.counts = reads.counts

    def progress(self) -> Progress:
        """Return what the ledger has."""
        found = self._progress()
        self._looked(found)
        return found


def _done(endpoints: Sequence[EndpointProgress]) -> int:
    return sum(each.handed_over + each.dispatched for each in endpoints)
