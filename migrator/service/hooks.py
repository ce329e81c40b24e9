"""Programs of the operator's that are run when something happens; nothing ever waits for one.

Rules of this file:

* ``fire`` puts an event into a queue and returns; when the queue is full it is dropped, logged and
  counted; one program at a time, in the order of events, on a thread of its own;
* whatever goes wrong with a program is logged, and changes nothing that migrator does;
* a program leads a process group of its own, of which nothing outlives it, reads its document from
  a file without a name, and gets an environment made here: no secret of ours is in it;
* what it writes is read slowly, and only the end is kept: no flood costs us much;
* at the end of the process the last events still get their time, and all of it is bounded.

Events and the keys of their facts are public: docs/hooks.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

from migrator import __version__
from migrator.config import Hooks as Given
from migrator.config import mask
from migrator.errors import ExitCode, MigratorError
from migrator.ledger.lease_keeper import current_owner
from migrator.ledger.pause_reasons import PauseReason
from migrator.ledger.report import EndpointProgress, Progress
from migrator.nservicebus.timeouts import EndpointName

_log = logging.getLogger(__name__)


class HookEvent(StrEnum):
    """When a program is run. Public: codes are stable."""

    START = "start"
    """The work has begun: every check has passed."""
    THROTTLE = "throttle"
    """A reason to claim nothing came, or went."""
    QUARANTINE = "quarantine"
    """Rows went into quarantine since the last time."""
    DRAINED = "drained"
    """Everything that can be moved now has been."""
    ROLLBACK = "rollback"
    """``migrator rollback`` or ``recall`` put rows back."""
    FAILURE = "failure"
    """The process ends, and not well."""


SCHEMA: Final = "migrator/hook/1"
QUIET_S: Final = 10.0
"""Nothing was left to move for so long: then a daemon is drained, not just between two rows."""
_WELL: Final = frozenset({ExitCode.DONE, ExitCode.QUARANTINED})
_MOST: Final = 100
"""Events that wait; more of them only come while a program hangs."""
_OF_THE_MOMENT: Final = frozenset({HookEvent.START, HookEvent.THROTTLE})
"""Once the process ends, nobody has to know about these any more."""
_LAST_WAIT_S: Final = 2.0
"""For those at the end; the others have as long as a program ever has, all together."""
_KILLING_S: Final = 4.0
"""Until a program that has no time left is gone, and a bit."""
_LONGEST_TEXT: Final = 1000
"""In characters; a longer one takes long to look for passwords in."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_LOOK_EVERY_S: Final = 0.05
"""Between two looks at whether a program wrote or ended."""
_READ_EVERY_S: Final = 0.01
"""Between two looks while it writes."""
_READ_BYTES: Final = 64 * 1024
"""At a look: what a pipe holds. So it writes 6 MB/s at most, whatever it does."""
_KEPT_BYTES: Final = 4096
_GRACE_S: Final = 1.0
"""Between being asked to end and being killed."""
_KILL_WAIT_S: Final = 2.0
"""A killed process is gone in moments, unless the kernel itself waits for something."""

Fire = Callable[[HookEvent, str, Mapping[str, object]], None]
"""Called with an event, the same in one line for people, and as facts that JSON can hold."""


@contextmanager
def hooked(given: Given) -> Iterator[Hooks]:
    """Run hooks for as long as the context lasts; they are told of an error that ends it."""
    programs = {HookEvent(name): path for name, path in given.programs.items()}
    with Hooks(programs, timeout=given.timeout) as hooks:
        try:
            yield hooks
        except MigratorError as exc:
            fire_exit(hooks.fire, exc.exit_code, error=str(exc))
            raise
        except Exception as exc:
            fire_exit(hooks.fire, ExitCode.BUG, error=f"{type(exc).__name__}: {exc}")
            raise


def fire_exit(fire: Fire, code: ExitCode, *, error: str | None = None) -> None:
    """Fire that the process ends with *code*, unless it ended well."""
    if code not in _WELL:
        facts = {"exit_code": int(code), "outcome": code.name.lower(), "error": error}
        why = f": {error}" if error else ""
        fire(HookEvent.FAILURE, f"migrator ends with exit code {int(code)}{why}", facts)


def fire_rollback(fire: Fire, verb: str, document: Mapping[str, object]) -> None:
    """Fire that rows were put back by *verb*; *document* is what it writes with ``--json``."""
    fire(HookEvent.ROLLBACK, f"migrator {verb} put rows back", {"verb": verb, **document})


class HookEvents:
    """What a running daemon fires; its parts call from their own threads.

    Nothing is asked of store or broker, and every call returns at once.
    """

    def __init__(
        self,
        fire: Fire,
        endpoints: Collection[EndpointName],
        *,
        is_idle: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fire nothing yet.

        Args:
            fire: Runs the hook of an event.
            endpoints: Those that this process works on; rows of others are left out.
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

    def started(self) -> None:
        """Every check has passed and the work begins."""
        names = sorted(self._names)
        self._fire(HookEvent.START, f"working on {', '.join(names)}", {"endpoints": names})

    def throttled(self, hold: PauseReason, began: bool) -> None:
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

    def polled(self, progress: Progress) -> None:
        """The ledger was read: rows may have gone into quarantine, or nothing may be left."""
        with self._lock:
            before, self._before = self._before, progress
            done = _done(self._mine(progress))
            if before is None:
                self._done = done
                return
            self._fire_quarantine(before, progress)
            is_moving = done != _done(self._mine(before))
            if is_moving or any(e.in_flight for e in self._mine(progress)) or not self._is_idle():
                self._idle_since_s = None
                return
            if self._idle_since_s is None:
                self._idle_since_s = self._clock_s()
            if done != self._done and self._clock_s() - self._idle_since_s >= QUIET_S:
                self._done = done
                self._fire_drained(progress)

    def finished(self, progress: Progress) -> None:
        """A run that was to end when nothing is left has ended so."""
        with self._lock:
            if self._before is not None:
                self._fire_quarantine(self._before, progress)
            self._before = progress
            self._fire_drained(progress)

    def _fire_quarantine(self, before: Progress, after: Progress) -> None:
        known = {each.endpoint: each.quarantined for each in before.endpoints}
        more = {
            each.endpoint: count
            for each in self._mine(after)
            if (count := each.quarantined - known.get(each.endpoint, 0)) > 0
        }
        if more:
            now = [
                {"endpoint": each.endpoint, "reason": each.reason, "rows": each.rows}
                for each in after.quarantine
                if each.endpoint in self._names
            ]
            rows = sum(more.values())
            facts = {"rows": rows, "endpoints": more, "now": now}
            self._fire(HookEvent.QUARANTINE, f"{rows} rows went into quarantine", facts)

    def _fire_drained(self, progress: Progress) -> None:
        keys = ("endpoint", "handed_over", "dispatched", "in_flight", "quarantined", "doubtful")
        counts = [{key: getattr(each, key) for key in keys} for each in self._mine(progress)]
        facts = {"endpoints": counts}
        self._fire(HookEvent.DRAINED, "nothing is left that can be moved now", facts)

    def _mine(self, progress: Progress) -> Sequence[EndpointProgress]:
        return [each for each in progress.endpoints if each.endpoint in self._names]


def _done(endpoints: Sequence[EndpointProgress]) -> int:
    return sum(each.handed_over + each.dispatched for each in endpoints)


@dataclass(frozen=True, slots=True)
class _Fired:
    """One event in the queue."""

    event: HookEvent
    text: str
    facts: Mapping[str, object]
    at: datetime


class Hooks:
    """Runs the program of an event, later."""

    def __init__(
        self,
        programs: Mapping[HookEvent, Path],
        *,
        timeout: timedelta,
        environ: Mapping[str, str] = os.environ,
        owner: str | None = None,
    ) -> None:
        """Prepare; ``start`` lets programs be run.

        Args:
            programs: By event; one without a program is ignored.
            timeout: A program that runs longer is ended.
            environ: Where ``PATH`` and ``LANG`` come from.
            owner: The name of this process; None: ask for it.
        """
        self._programs = programs
        self._timeout_s = timeout.total_seconds()
        self._environ = {
            "PATH": environ.get("PATH") or _PATH,
            "LANG": environ.get("LANG") or "C.UTF-8",
        }
        self._owner = current_owner() if owner is None else owner
        self._waiting: deque[_Fired] = deque()
        self._change = threading.Condition()
        self._ends_at_s: float | None = None
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="hooks", daemon=True)

    def __enter__(self) -> Hooks:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.end()

    def start(self) -> None:
        """Let programs be run; logs which of them could not be."""
        for event, path in self._programs.items():
            if not (path.is_file() and os.access(path, os.X_OK)):
                self._log_failed(event, path, "is not there, or may not be executed by this user")
        if self._programs:
            self._thread.start()

    def fire(self, event: HookEvent, text: str, facts: Mapping[str, object]) -> None:
        """Have the program of *event* run, if there is one; from any thread, returns at once."""
        if event not in self._programs:
            return
        fired = _Fired(event, _presentable_text(text), dict(facts), datetime.now(UTC))
        with self._change:
            is_room = len(self._waiting) < _MOST and self._ends_at_s is None
            if is_room:
                self._waiting.append(fired)
                self._change.notify()
        if not is_room:
            self._log_dropped(fired, "too many wait" if self._ends_at_s is None else "the end")

    def end(self) -> None:
        """Let the last programs run, within their time; what is left then is dropped."""
        with self._change:
            self._ends_at_s = time.monotonic()
            self._change.notify()
        if self._thread.is_alive():
            self._thread.join(_LAST_WAIT_S + self._timeout_s + _KILLING_S)
        with self._change:
            left, self._waiting = self._waiting, deque()
        for fired in left:
            self._log_dropped(fired, "the end")

    def _run(self) -> None:
        while (fired := self._next()) is not None:
            try:
                self._run_hook(fired)
            except Exception:  # a bug in a side job must not end it for good
                facts = {"action": "hook_failed", "hook": str(fired.event)}
                _log.exception("a bug: a hook could not be run", extra=facts)

    def _next(self) -> _Fired | None:
        """Return the oldest event as soon as there is one; None: there will be no more."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._ends_at_s is not None)
            return self._waiting.popleft() if self._waiting else None

    def _run_hook(self, fired: _Fired) -> None:
        path, began_s = self._programs[fired.event], time.monotonic()
        if began_s >= self._deadline_s(fired.event, began_s):
            self._log_dropped(fired, "the end")
            return
        document = {
            "schema": SCHEMA,
            "event": str(fired.event),
            "at": fired.at.isoformat(),
            "text": fired.text,
            "owner": self._owner,
            "version": __version__,
            "facts": _presentable(fired.facts),
        }
        text = " ".join(fired.text.replace("\0", " ").split())
        environ = {
            **self._environ,
            "MIGRATOR_EVENT": str(fired.event),
            # a variable holds no half of a character
            "MIGRATOR_EVENT_TEXT": text.encode(errors="replace").decode(),
        }
        try:
            ended = run_program(
                path,
                json.dumps(document, default=str) + "\n",
                environ=environ,
                deadline_s=lambda: self._deadline_s(fired.event, began_s),
            )
        except OSError as exc:
            self._log_failed(fired.event, path, f"could not be started: {exc.strerror}")
        else:
            _log_ended(fired.event, path, ended)

    def _deadline_s(self, event: HookEvent, began_s: float) -> float:
        """Return when the time of a program is over, as far as is known now."""
        own_s, ends_at_s = began_s + self._timeout_s, self._ends_at_s
        if ends_at_s is None:
            return own_s
        more_s = 0.0 if event in _OF_THE_MOMENT else self._timeout_s
        return min(own_s, ends_at_s + _LAST_WAIT_S + more_s)

    def _log_failed(self, event: HookEvent, path: Path, why: str) -> None:
        _log.warning(
            "a hook cannot be run; the work goes on",
            extra={"action": "hook_failed", "hook": str(event), "program": str(path), "error": why},
        )

    def _log_dropped(self, fired: _Fired, why: str) -> None:
        with self._change:
            self._dropped += 1
            count = self._dropped
        facts = {"hook": str(fired.event), "text": fired.text, "why": why, "count": count}
        _log.warning("an event was told to no hook", extra={"action": "hook_dropped", **facts})


def _presentable_text(text: str) -> str:
    """Return *text* without passwords, and cut between two words when it is long."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT].rpartition(' ')[0]} …".lstrip()
    return mask(text)


def _presentable(value: Any) -> Any:
    """Return *value*, a part of the facts, with every text in it presentable."""
    if isinstance(value, Mapping):
        return {str(key): _presentable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_presentable(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _presentable_text(str(value))


# ── running one program ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    status: int | None
    """Exit status; negative: the signal that ended it; None: it could not even be killed."""
    is_late: bool
    """Its time was over before it ended by itself."""
    seconds: float
    output: str
    """The end of what it wrote to stdout and stderr."""
    output_bytes: int
    """All that it wrote, as far as it was read."""


def run_program(
    path: Path, document: str, *, environ: Mapping[str, str], deadline_s: Callable[[], float]
) -> Ended:
    """Run *path*, with *document* on its stdin, and return how it ended.

    *deadline_s* is asked again and again for the monotonic second at which its time is over.

    Raises:
        OSError: It could not be started; says why.
    """
    began_s = time.monotonic()
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        with os.fdopen(write_end, "wb") as output, _nameless(document) as stdin:
            process = subprocess.Popen(  # noqa: S603  # the operator's own program, without a shell
                [path],
                stdin=stdin,
                stdout=output,
                stderr=output,
                env=dict(environ),
                cwd="/",
                start_new_session=True,
            )
        tail = _Tail(pipe)
        try:
            is_late = _attend(process, tail, deadline_s)
        finally:
            _signal(process, signal.SIGKILL)  # whatever it left in its group
        tail.read()
    try:
        status = process.wait(_KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        status = None
    return Ended(
        status=status,
        is_late=is_late,
        seconds=time.monotonic() - began_s,
        output=tail.kept.decode(errors="replace"),
        output_bytes=tail.bytes,
    )


def _nameless(text: str) -> BinaryIO:
    """Return a file without a name that holds *text*, at its beginning."""
    file = os.fdopen(os.memfd_create("hook"), "w+b")
    file.write(text.encode())
    file.seek(0)
    return file


class _Tail:
    """The end of what came through a pipe; never waits for more."""

    def __init__(self, pipe: io.FileIO) -> None:
        self._pipe = pipe
        self.kept = b""
        self.bytes = 0

    def read(self) -> bool:
        """Take what is there now, up to a limit; return whether there was anything."""
        chunk = self._pipe.read(_READ_BYTES) or b""
        self.bytes += len(chunk)
        self.kept = (self.kept + chunk)[-_KEPT_BYTES:]
        return bool(chunk)


def _attend(process: subprocess.Popen[bytes], tail: _Tail, deadline_s: Callable[[], float]) -> bool:
    """Wait until *process* has ended, or is to be killed; return whether its time was over."""
    killed_at_s: float | None = None
    while not _has_ended(process):
        now_s = time.monotonic()
        if killed_at_s is None and now_s >= deadline_s():
            killed_at_s = now_s + _GRACE_S
            _signal(process, signal.SIGTERM)
        elif killed_at_s is not None and now_s >= killed_at_s:
            return True
        time.sleep(_READ_EVERY_S if tail.read() else _LOOK_EVERY_S)
    return killed_at_s is not None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether *process* ended, and leave it unreaped: its group's number stays its own."""
    try:
        return bool(os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:  # somebody else reaped it
        return True


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the whole group; one that is gone, or not ours to signal, is let be."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)


def _log_ended(event: HookEvent, path: Path, ended: Ended) -> None:
    facts = {
        "hook": str(event),
        "program": str(path),
        "status": ended.status,
        "seconds": round(ended.seconds, 3),
    }
    if ended.output_bytes:
        said = {"output": ended.output, "output_bytes": ended.output_bytes}
        _log.debug("the end of what a hook wrote", extra={**facts, **said, "action": "hook_said"})
    if ended.is_late or ended.status is None:
        _log.warning(
            "a hook did not end in time, and was killed with all it started",
            extra={**facts, "action": "hook_timed_out", "is_gone": ended.status is not None},
        )
    elif ended.status:
        _log.warning("a hook failed; the work goes on", extra={**facts, "action": "hook_failed"})
    else:
        _log.info("a hook was run", extra={**facts, "action": "hook_ran"})
