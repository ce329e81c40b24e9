"""Programs of the operator's that are run when something happens; nothing ever waits for one.

Rules of this file:

* ``fire`` puts an event into a queue and returns; when the queue is full it is dropped, logged and
  counted; one program at a time, in the order of events, on a thread of its own;
* a program is looked at before each run, with every folder and link on the way to it, and what is
  run is the handle that was looked at: no other user can put another one there;
* whatever goes wrong with a program is logged, and changes nothing that migrator does;
* a program leads a process group of its own, of which nothing outlives it, reads its document from
  a file without a name, and gets an environment made here: no secret of ours is in it;
* what it writes is read slowly, and only the end is kept: no flood costs us much;
* at the end of the process the last events still get their time, and all of it is bounded.

Events and the keys of their facts are public: docs/hooks.md.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from migrator import __version__
from migrator.config import Hooks as Given
from migrator.config import mask
from migrator.config.secrets import UntrustedError, open_trusted
from migrator.errors import ConfigError, ExitCode, MigratorError
from migrator.ledger.lease_keeper import current_owner
from migrator.ledger.report import EndpointProgress, Progress
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.logs import masked
from migrator.status.finished import EndpointEnd, end_document
from migrator.text import counted, visible
from migrator.throttle.reasons import PauseReason

_log = logging.getLogger(__name__)


class HookEvent(StrEnum):
    """When a program is run. Public: codes are stable."""

    START = "start"
    """The work has begun: every check has passed."""
    THROTTLE = "throttle"
    """A reason to claim nothing came, or went."""
    QUARANTINE = "quarantine"
    """Rows went into quarantine since the last time."""
    FINISHED = "finished"
    """Nothing is left to move."""
    ROLLBACK = "rollback"
    """``migrator rollback`` put rows back."""
    FAILURE = "failure"
    """The process ends, and not well."""


SCHEMA: Final = "migrator/hook/1"
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
    """Run hooks for as long as the context lasts; they are told of an error that ends it.

    Raises:
        ConfigError: A program is another user's, or others may write it. None is run.
    """
    for event, program in given.programs.items():
        try:
            with contextlib.suppress(OSError), _opened(program):  # reported when it should be run
                pass
        except UntrustedError as exc:
            raise ConfigError(f"hooks.{event}: {program} cannot be used: {exc}") from exc
    hooks = Hooks(given)
    hooks.start()
    try:
        yield hooks
    except Exception as exc:
        if isinstance(exc, MigratorError):
            fire_exit(hooks.fire, exc.exit_code, error=str(exc))
        else:
            fire_exit(hooks.fire, ExitCode.BUG, error=f"{type(exc).__name__}: {exc}")
        raise
    finally:
        hooks.end()


def fire_exit(fire: Fire, code: ExitCode, *, error: str | None = None) -> None:
    """Fire that the process ends with *code*, unless it ended well."""
    if code not in (ExitCode.DONE, ExitCode.QUARANTINED):
        facts = {"exit_code": int(code), "outcome": code.name.lower(), "error": error}
        why = f": {error}" if error else ""
        fire(HookEvent.FAILURE, f"migrator ends with exit code {int(code)}{why}", facts)


def fire_rollback(fire: Fire, document: Mapping[str, object]) -> None:
    """Fire that rows were put back; *document* is what the verb writes with ``--json``."""
    fire(HookEvent.ROLLBACK, "migrator rollback put rows back", document)


class HookEvents:
    """What a running daemon fires; its parts call from their own threads.

    Nothing is asked of store or broker, and every call returns at once.

    Args:
        fire: Runs the hook of an event.
        endpoints: Those that this process works on; rows of others are left out.
    """

    def __init__(self, fire: Fire, endpoints: Collection[EndpointName]) -> None:
        self._fire = fire
        self._names = frozenset(endpoints)
        self._lock = threading.Lock()
        self._before: Progress | None = None

    def started(self) -> None:
        """Every check has passed and the work begins."""
        names = sorted(self._names)
        self._fire(HookEvent.START, f"working on {', '.join(names)}", {"endpoints": names})

    def throttled(self, reason: PauseReason, began: bool) -> None:
        """A reason to claim nothing came, or went."""
        facts = {"began": began, **reason.facts, "since": reason.since.isoformat()}
        text = f"{'waits' if began else 'no longer waits'}: {reason.text}"
        self._fire(HookEvent.THROTTLE, text, facts)

    def polled(self, progress: Progress) -> None:
        """The ledger was read: rows may have gone into quarantine."""
        with self._lock:
            before, self._before = self._before, progress
            if before is not None:
                self._fire_quarantine(before, progress)

    def finished(self, ends: Sequence[EndpointEnd]) -> None:
        """Nothing is left to move, or a run that was to end then has ended."""
        text = " ".join(f"{end.endpoint}: {end.text}" for end in ends)
        facts = {"endpoints": [end_document(end) for end in ends]}
        self._fire(HookEvent.FINISHED, text or "nothing is left to do", facts)

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
            self._fire(HookEvent.QUARANTINE, f"{counted(rows, 'row')} went into quarantine", facts)

    def _mine(self, progress: Progress) -> Sequence[EndpointProgress]:
        return [each for each in progress.endpoints if each.endpoint in self._names]


class _Fired(NamedTuple):
    """One event in the queue."""

    event: HookEvent
    text: str
    facts: Mapping[str, object]
    at: datetime


class Hooks:
    """Runs the program of an event, later."""

    def __init__(self, given: Given) -> None:
        self._programs = {HookEvent(name): path for name, path in given.programs.items()}
        self._timeout_s = given.timeout.total_seconds()
        self._owner = current_owner()
        self._waiting: SimpleQueue[_Fired | None] = SimpleQueue()
        self._ends_at_s: float | None = None
        self._dropped = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="hooks", daemon=True)

    def start(self) -> None:
        """Let programs be run; logs which of them could not be."""
        for event, path in self._programs.items():
            if not (path.is_file() and os.access(path, os.X_OK)):
                self._log_failed(event, "does not exist, or this user may not execute it")
        if self._programs:
            self._thread.start()

    def fire(self, event: HookEvent, text: str, facts: Mapping[str, object]) -> None:
        """Have the program of *event* run, if there is one; from any thread, returns at once."""
        if event not in self._programs:
            return
        fired = _Fired(event, _shown(text), facts, datetime.now(UTC))
        with self._lock:
            if self._ends_at_s is None and self._waiting.qsize() < _MOST:
                self._waiting.put(fired)
                return
        self._log_dropped(fired, "too many events wait" if self._ends_at_s is None else "the end")

    def end(self) -> None:
        """Let the last programs run, within their time; what is left then is dropped."""
        with self._lock:
            self._ends_at_s = time.monotonic()
            self._waiting.put(None)
        if self._thread.is_alive():
            self._thread.join(_LAST_WAIT_S + self._timeout_s + _KILLING_S)
        with contextlib.suppress(Empty):
            while (fired := self._waiting.get_nowait()) is not None:
                self._log_dropped(fired, "the end")

    def _run(self) -> None:
        while (fired := self._waiting.get()) is not None:
            try:
                self._run_hook(fired)
            except Exception:  # a bug in a side job must not end it for good
                facts = {"action": "hook_failed", "hook": str(fired.event)}
                _log.exception("a bug: a hook could not be run", extra=facts)

    def _run_hook(self, fired: _Fired) -> None:
        event, began_s = fired.event, time.monotonic()
        if self._is_over(event, began_s):
            self._log_dropped(fired, "the end")
            return
        try:
            process = self._started(fired)
        except OSError as exc:
            self._log_failed(event, f"could not be started: {exc.strerror}")
            return
        except UntrustedError as exc:
            self._log_failed(event, str(exc))
            return
        is_late, output = _attended(process, lambda: self._is_over(event, began_s))
        seconds = round(time.monotonic() - began_s, 3)
        facts = {"hook": str(event), "program": str(self._programs[event]), "seconds": seconds}
        facts["status"] = status = process.returncode
        if output:
            said = {"action": "hook_said", "output": output.decode(errors="replace")}
            _log.debug("the end of what a hook wrote", extra={**facts, **said})
        if is_late or status is None:
            text = "a hook did not end in time, and was killed with all it started"
            _log.warning(text, extra={**facts, "action": "hook_timed_out"})
        elif status:
            _log.warning(
                "a hook failed; the work continues", extra={**facts, "action": "hook_failed"}
            )
        else:
            _log.info("a hook was run", extra={**facts, "action": "hook_ran"})

    def _started(self, fired: _Fired) -> subprocess.Popen[bytes]:
        """Start the program of *fired*, which reads the event from a file without a name."""
        document = {
            "schema": SCHEMA,
            "event": str(fired.event),
            "at": fired.at.isoformat(),
            "text": fired.text,
            "owner": self._owner,
            "version": __version__,
            "facts": masked(fired.facts, _shown),
        }
        # a variable holds neither a null nor half of a character, and a program may print it
        text = visible(" ".join(fired.text.split()))
        program = self._programs[fired.event]
        with _opened(program) as handle, os.fdopen(os.memfd_create("hook"), "w+b") as stdin:
            told = json.dumps(document, default=lambda value: _shown(str(value)))
            stdin.write(told.encode() + b"\n")
            stdin.seek(0)
            return subprocess.Popen(  # noqa: S603  # the operator's own program, without a shell
                [program],
                executable=f"/proc/self/fd/{handle}",
                pass_fds=[handle],  # the interpreter of a script opens it by that name again
                bufsize=0,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={
                    "PATH": os.environ.get("PATH") or _PATH,
                    "LANG": os.environ.get("LANG") or "C.UTF-8",
                    "MIGRATOR_EVENT": str(fired.event),
                    "MIGRATOR_EVENT_TEXT": text,
                },
                cwd="/",
                start_new_session=True,
            )

    def _is_over(self, event: HookEvent, began_s: float) -> bool:
        """Return whether the time of a program that began then is over."""
        now_s, ends_at_s = time.monotonic(), self._ends_at_s
        if ends_at_s is not None:
            more_s = 0.0 if event in _OF_THE_MOMENT else self._timeout_s
            if now_s >= ends_at_s + _LAST_WAIT_S + more_s:
                return True
        return now_s > began_s + self._timeout_s

    def _log_failed(self, event: HookEvent, why: str) -> None:
        facts = {"hook": str(event), "program": str(self._programs[event]), "error": why}
        text = "a hook cannot be run; the work continues"
        _log.warning(text, extra={"action": "hook_failed", **facts})

    def _log_dropped(self, fired: _Fired, why: str) -> None:
        with self._lock:
            self._dropped += 1
            count = self._dropped
        facts = {"hook": str(fired.event), "text": fired.text, "why": why, "count": count}
        _log.warning(
            "an event was dropped without running its hook",
            extra={"action": "hook_dropped", **facts},
        )


@contextmanager
def _opened(program: Path) -> Iterator[int]:
    """Give a handle of *program* that is good for running it, and for nothing else.

    Raises:
        UntrustedError: Another user can have put it there, or can change it.
        OSError: It is not there.
    """
    handle = open_trusted(program, os.O_PATH)
    try:
        yield handle
    finally:
        os.close(handle)


def _shown(text: str) -> str:
    """Return *text* without passwords, and cut between two words when it is long."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT].rpartition(' ')[0]} …".lstrip()
    return mask(text)


def _attended(process: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> tuple[bool, bytes]:
    """Wait until *process* has ended, or is killed; return whether it was late, and its last words.

    Whatever it left in its group is killed, and it is reaped, unless even that takes too long.
    """
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    output, kill_at_s = b"", None
    try:
        os.set_blocking(process.stdout.fileno(), False)
        while True:
            has_ended = _has_ended(process)
            chunk = process.stdout.read(_READ_BYTES) or b""
            output = (output + chunk)[-_KEPT_BYTES:]
            now_s = time.monotonic()
            if has_ended or (kill_at_s is not None and now_s >= kill_at_s):
                break
            if kill_at_s is None and is_over():
                kill_at_s = now_s + _GRACE_S
                _signal(process, signal.SIGTERM)
            time.sleep(_READ_EVERY_S if chunk else _LOOK_EVERY_S)
    finally:
        _signal(process, signal.SIGKILL)
        process.stdout.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_WAIT_S)
    return kill_at_s is not None, output


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
