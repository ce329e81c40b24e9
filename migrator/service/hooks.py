"""Programs of the operator's that are run when something happens; nothing ever waits for one.

Rules of this file:

* ``fire`` puts a value into a queue and returns; when the queue is full, the value is dropped, and
  that is told and counted;
* one program at a time, in the order of what happened, on a thread of its own;
* whatever goes wrong with a program is told, and changes nothing that migrator does;
* its environment is made here: nothing of ours is in it, least of all a secret;
* at the end of the process the last events still get their time, and all of it is bounded.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from migrator import __version__
from migrator.config import mask
from migrator.ledger.owner import current_owner
from migrator.service.hook_events import Happening, HookEvent, document
from migrator.service.program import Ended, run_program

_log = logging.getLogger(__name__)

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
            programs: By event; what has none is not told to anybody.
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
        self._waiting: deque[Happening] = deque()
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
        """Let programs be run; says which of them could not be."""
        for event, path in self._programs.items():
            if not (path.is_file() and os.access(path, os.X_OK)):
                self._tell_failed(event, path, "is not there, or may not be executed by this user")
        if self._programs:
            self._thread.start()

    def fire(self, event: HookEvent, text: str, facts: Mapping[str, object]) -> None:
        """Have the program of *event* run, if there is one; from any thread, returns at once.

        Args:
            event: What happened.
            text: The same in one line, for people.
            facts: The same for programs; JSON can hold them.
        """
        if event not in self._programs:
            return
        happening = Happening(
            event=event, text=presentable(text), at=datetime.now(UTC), facts=dict(facts)
        )
        with self._change:
            is_room = len(self._waiting) < _MOST and self._ends_at_s is None
            if is_room:
                self._waiting.append(happening)
                self._change.notify()
        if not is_room:
            self._tell_dropped(happening, "too many wait" if self._ends_at_s is None else "the end")

    def end(self) -> None:
        """Let the last programs run, within their time; what is left then is dropped."""
        with self._change:
            self._ends_at_s = time.monotonic()
            self._change.notify()
        if self._thread.is_alive():
            self._thread.join(_LAST_WAIT_S + self._timeout_s + _KILLING_S)
        with self._change:
            left, self._waiting = self._waiting, deque()
        for happening in left:
            self._tell_dropped(happening, "the end")

    def _run(self) -> None:
        while (happening := self._next()) is not None:
            try:
                self._tell(happening)
            except Exception:  # a bug in what is done by the way must not end it for good
                _log.exception("a bug: a hook could not be run", extra=_facts(happening))

    def _next(self) -> Happening | None:
        """Return the oldest event as soon as there is one; None: there will be no more."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._ends_at_s is not None)
            return self._waiting.popleft() if self._waiting else None

    def _tell(self, happening: Happening) -> None:
        path, began_s = self._programs[happening.event], time.monotonic()
        if began_s >= self._deadline_s(happening.event, began_s):
            self._tell_dropped(happening, "the end")
            return
        try:
            ended = run_program(
                path,
                document(
                    replace(happening, facts=_presentable(happening.facts)),
                    owner=self._owner,
                    version=__version__,
                ),
                environ=self._environ_of(happening),
                deadline_s=lambda: self._deadline_s(happening.event, began_s),
            )
        except OSError as exc:
            self._tell_failed(happening.event, path, f"could not be started: {exc.strerror}")
        else:
            self._tell_ended(happening, path, ended)

    def _deadline_s(self, event: HookEvent, began_s: float) -> float:
        """Return when the time of a program is over, as far as is known now."""
        own_s, ends_at_s = began_s + self._timeout_s, self._ends_at_s
        if ends_at_s is None:
            return own_s
        more_s = 0.0 if event in _OF_THE_MOMENT else self._timeout_s
        return min(own_s, ends_at_s + _LAST_WAIT_S + more_s)

    def _environ_of(self, happening: Happening) -> Mapping[str, str]:
        text = " ".join(happening.text.replace("\0", " ").split())
        text = text.encode(errors="replace").decode()  # a variable holds no half of a character
        return {
            **self._environ,
            "MIGRATOR_EVENT": str(happening.event),
            "MIGRATOR_EVENT_TEXT": text,
        }

    # ── what is said about it ───────────────────────────────────────────────────────────────────

    def _tell_ended(self, happening: Happening, path: Path, ended: Ended) -> None:
        facts = {
            "hook": str(happening.event),
            "program": str(path),
            "status": ended.status,
            "seconds": round(ended.seconds, 3),
        }
        if ended.output_bytes:
            _log.debug(
                "the end of what a hook wrote",
                extra={
                    **facts,
                    "action": "hook_said",
                    "output": ended.output,
                    "output_bytes": ended.output_bytes,
                },
            )
        if ended.is_late or ended.status is None:
            _log.warning(
                "a hook did not end in time, and was killed with all it started",
                extra={**facts, "action": "hook_timed_out", "is_gone": ended.status is not None},
            )
        elif ended.status:
            _log.warning(
                "a hook failed; the work goes on", extra={**facts, "action": "hook_failed"}
            )
        else:
            _log.info("a hook was run", extra={**facts, "action": "hook_ran"})

    def _tell_failed(self, event: HookEvent, path: Path, why: str) -> None:
        _log.warning(
            "a hook cannot be run; the work goes on",
            extra={"action": "hook_failed", "hook": str(event), "program": str(path), "error": why},
        )

    def _tell_dropped(self, happening: Happening, why: str) -> None:
        with self._change:
            self._dropped += 1
            count = self._dropped
        _log.warning(
            "an event was told to no hook",
            extra={
                "action": "hook_dropped",
                "hook": str(happening.event),
                "text": happening.text,
                "why": why,
                "count": count,
            },
        )


def _facts(happening: Happening) -> dict[str, object]:
    return {"action": "hook_failed", "hook": str(happening.event)}


def presentable(text: str) -> str:
    """Return *text* without passwords, and cut between two words when it is long."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT].rpartition(' ')[0]} …".lstrip()
    return mask(text)


def _presentable(value: Any) -> Any:
    """Return *value*, a part of the facts, with every text in it ``presentable``."""
    if isinstance(value, Mapping):
        return {str(key): _presentable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_presentable(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return presentable(str(value))
