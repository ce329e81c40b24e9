"""Doing what an operator says: each command at once, in the log, and in the ledger.

Rules of this file:

* a command waits for no server, except a moment for the ledger to have it noted; what cannot be
  done changes nothing, and says why; an end is noted before it begins;
* an endpoint is paused or not, whether it was paused alone or with all others; the ledger knows,
  the latest event counts, and only `resume` ends a pause, never a restart;
* quarantined rows are tried again on a thread of its own, one command at a time; how many they
  were is in the audit log, as on the command line.

Source: docs/control.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Final

from migrator.app import App
from migrator.errors import ConfigError, MigratorError
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.report import AuditEvent, QuarantineFilter
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.audit_log import AuditLog
from migrator.service.runtime_settings import RuntimeSettings
from migrator.service.throttle import Throttle
from migrator.service.worker import Stop, WorkerPool
from migrator.web.control import (
    Adjust,
    Answer,
    Command,
    Drain,
    Pause,
    Resume,
    Retry,
    RuntimeSetting,
    StopNow,
    command_document,
)
from migrator.web.status import QuarantinePage

_log = logging.getLogger(__name__)

_LEDGER_PATIENCE_S: Final = 2.0
_RETRY_PATIENCE_S: Final = 3.0
"""So long the caller is kept waiting for the number of rows."""
COMMAND: Final = "command"
PAUSE: Final = "pause"
RETRIED: Final = "quarantine_retried"
_MIGRATE: Final = "migrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One endpoint of this process."""

    name: EndpointName
    mode: str
    moves: bool
    """Its stored rows are handed over here."""

    @property
    def can_wait(self) -> bool:
        """Whether nothing of it is late when it waits."""
        return self.mode == _MIGRATE


class Control:
    """Obeys commands, from any thread, one at a time."""

    def __init__(
        self,
        *,
        throttle: Throttle,
        runtime: RuntimeSettings,
        workers: WorkerPool,
        stop: Stop,
        audit_log: AuditLog,
        served: Sequence[Served],
        pauses: Pauses,
        retry: Callable[[Retry], Answer],
        believe_clock: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Act on these parts of one process.

        *believe_clock* believes a database clock that jumped, and says so; None: it did not.
        """
        self._believe_clock = believe_clock
        self._throttle = throttle
        self._runtime = runtime
        self._workers = workers
        self._stop = stop
        self._audit_log = audit_log
        self._pauses = pauses
        self._retry = retry
        self._served = {each.name: each for each in served}
        self._turn = threading.Lock()

    def execute(self, command: Command, *, who: str) -> Answer:
        """Do what *command* says; see ``web.control.StatusService``."""
        with self._turn:
            asked_at = datetime.now(UTC)
            answer, then = self._do(command, who)
            detail: dict[str, object] = {
                **command_document(command),
                "who": who,
                "asked_at": asked_at.isoformat(),
                "is_done": answer.is_done,
                "answer": answer.text,
            }
            _log.info("an operator's command", extra={"action": "command_given", **detail})
            is_noted = self._audit_log.note(COMMAND, detail).written.wait(_LEDGER_PATIENCE_S)
            then()
        if is_noted:
            return answer
        late = "the ledger has no note of it yet"
        return Answer(is_done=answer.is_done, text=f"{answer.text}; {late}")

    def _do(self, command: Command, who: str) -> tuple[Answer, Callable[[], None]]:
        """Return the answer, and what is to be done once it is noted."""
        match command:
            case Pause():
                return self._pause(command, who), _nothing
            case Resume():
                return self._resume(command), _nothing
            case Adjust():
                return self._adjust(command), _nothing
            case Retry():
                return self._retry(command), _nothing
            case Drain():
                return _done("finishing what is claimed, then ending"), self._stop.draining.set
            case StopNow():
                return _done("ending between two steps; the next start goes on"), self._end

    def _pause(self, command: Pause, who: str) -> Answer:
        if (refusal := self._refusal(command.endpoint)) is not None:
            return refusal
        reason = PauseReason(
            signal=Signal.PAUSED,
            endpoint=command.endpoint,
            observed=f"{command.reason} ({who})",
            limit="",
            since=datetime.now(UTC),
        )
        is_new = self._throttle.pause(reason)
        self._pauses.keep(command.endpoint)
        whom = command.endpoint or "hand-over of every endpoint"
        text = f"{whom} is paused" if is_new else f"{whom} was paused already; the reason is new"
        return _done(f"{text}; what is claimed is finished{self._goes_on(command.endpoint)}")

    def _goes_on(self, endpoint: EndpointName | None) -> str:
        names = sorted(each.name for each in self._served.values() if not each.can_wait)
        return f"; the dispatchers of {', '.join(names)} go on" if names and not endpoint else ""

    def _refusal(self, endpoint: EndpointName | None) -> Answer | None:
        if endpoint is None:
            if self._workers.moves:
                return None
            return _refused("nothing is handed over here; timeouts that are due cannot wait")
        served = self._served.get(endpoint)
        if served is None:
            return self._unknown(endpoint)
        if not served.can_wait:
            return _refused(
                f"{endpoint} is in mode {served.mode}: its timeouts would be late; nothing is "
                "paused. To end it, drain or stop the daemon"
            )
        return None

    def _unknown(self, endpoint: EndpointName) -> Answer:
        known = ", ".join(sorted(self._served))
        return _refused(f"this daemon does not work on {endpoint}; it works on: {known}")

    def _resume(self, command: Resume) -> Answer:
        if command.endpoint is not None and command.endpoint not in self._served:
            return self._unknown(command.endpoint)
        if command.endpoint is None:
            lifted = self._throttle.resume_all(Signal.PAUSED)
        else:
            found = self._throttle.resume(Signal.PAUSED, command.endpoint)
            lifted = [] if found is None else [found]
        self._pauses.keep(command.endpoint)
        left = self._throttle.reasons_for(command.endpoint)
        whom = command.endpoint or "hand-over"
        text = f"{whom} is resumed" if lifted else f"{whom} was not paused"
        if not lifted and command.endpoint is None and (clock := self._believe_clock()):
            text = clock
            self._throttle.resume(Signal.CLOCK)
            left = self._throttle.reasons_for(None)
        return _done(f"{text}; it still waits: {left[0].text}" if left else text)

    def _adjust(self, command: Adjust) -> Answer:
        try:
            before = self._runtime.set(command.knob, command.value)
        except ConfigError as exc:
            return _refused(str(exc))
        if command.knob is RuntimeSetting.LANES and not self._workers.set_lanes(
            self._runtime.now.lanes
        ):
            return _refused("nothing is handed over here any more; lanes are as they were")
        self._workers.wake()
        now = self._runtime.texts()[command.knob]
        return _done(f"{command.knob} is {now} (was {before}) until the settings are read again")

    def _end(self) -> None:
        self._stop.at_once.set()
        self._stop.draining.set()


def _nothing() -> None:
    return None


def _done(text: str) -> Answer:
    return Answer(is_done=True, text=text)


def _refused(text: str) -> Answer:
    return Answer(is_done=False, text=text)


class Pauses:
    """What the ledger knows of the pauses of one process."""

    def __init__(
        self, throttle: Throttle, audit_log: AuditLog, names: Collection[EndpointName]
    ) -> None:
        """Keep pauses of the endpoints *names*, whose rows are handed over here."""
        self._throttle = throttle
        self._audit_log = audit_log
        self._names = frozenset(names)

    def keep(self, endpoint: EndpointName | None) -> None:
        """Have the ledger know how *endpoint* is now, or every endpoint; returns at once."""
        for name in sorted(self._names if endpoint is None else self._names & {endpoint}):
            found = [r for r in self._throttle.reasons_for(name) if r.signal is Signal.PAUSED]
            detail: dict[str, object] = {"endpoint": name, "is_paused": bool(found)}
            if found:
                detail |= {"observed": found[0].observed, "since": found[0].since.isoformat()}
            self._audit_log.note(PAUSE, detail)

    def restore(
        self, latest: Callable[[str, Collection[EndpointName]], Mapping[EndpointName, AuditEvent]]
    ) -> None:
        """Pause what was paused and not resumed, by the *latest* event of each endpoint.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be asked. Nothing is paused.
        """
        for name, event in sorted(latest(PAUSE, self._names).items()):
            if event.detail.get("is_paused"):
                reason = _pause_reason(name, event)
                self._throttle.pause(reason)
                _log.warning(
                    "it was paused before this start, and is still; `migrator resume` ends it",
                    extra={
                        "action": "pause_kept",
                        "endpoint": name,
                        "observed": reason.observed,
                        "since": reason.since.isoformat(),
                    },
                )


def _pause_reason(name: EndpointName, event: AuditEvent) -> PauseReason:
    try:
        since = datetime.fromisoformat(str(event.detail.get("since"))).astimezone(UTC)
    except ValueError:
        since = event.at
    return PauseReason(
        signal=Signal.PAUSED,
        endpoint=name,
        observed=str(event.detail.get("observed", "")),
        limit="",
        since=since,
    )


class QuarantineService:
    """The quarantine of a running daemon: looked into, and tried again; from any thread."""

    def __init__(self, app: App, audit_log: AuditLog, *, wake: Callable[[], None]) -> None:
        """Ask the ledger of *app*; *wake* has lanes look for what is tried again."""
        self._app = app
        self._audit_log = audit_log
        self._wake = wake
        self._turn = threading.Lock()

    def page(self, which: QuarantineFilter, *, after: int, limit: int) -> QuarantinePage:
        """Return at most *limit* rows whose key is above *after*."""
        try:
            rows = self._app.quarantine.page(which, after=after, limit=limit + 1)
        except MigratorError as exc:
            return QuarantinePage(trouble=str(exc))
        return QuarantinePage(rows=rows[:limit], has_more=len(rows) > limit)

    def retry(self, command: Retry) -> Answer:
        """Try rows again; say how many when that is known soon."""
        if not self._turn.acquire(blocking=False):
            return _refused(
                "rows are being tried again already; nothing was begun, try again later"
            )
        which = QuarantineFilter(
            endpoint=command.endpoint, reason=command.reason, timeout_id=command.timeout_id
        )
        answers: SimpleQueue[Answer] = SimpleQueue()
        args = (which, answers)
        threading.Thread(target=self._retry, args=args, name="retry", daemon=True).start()
        try:
            return answers.get(timeout=_RETRY_PATIENCE_S)
        except Empty:
            return _done(f"being tried again; the ledger's event {RETRIED} will tell how many")

    def _retry(self, which: QuarantineFilter, answers: SimpleQueue[Answer]) -> None:
        rows = None
        answer = _refused("a bug; the log has more")
        try:
            rows = self._put_back(which)
            answer = _done(f"{rows} row{'' if rows == 1 else 's'} of the quarantine tried again")
        except MigratorError as exc:
            answer = _refused(f"not all were tried again, perhaps none: {exc}")
        except Exception:  # the next command is to be heard
            _log.exception(
                "quarantined rows could not be tried again",
                extra={"action": "job_failed", "job": "retry"},
            )
        finally:
            self._turn.release()
            answers.put(answer)
        if rows:
            self._wake()
        if rows is not None:
            detail = {"endpoint": which.endpoint, "reason": which.reason, "id": which.timeout_id}
            self._audit_log.note(RETRIED, {**detail, "rows": rows})

    def _put_back(self, which: QuarantineFilter) -> int:
        """Put rows of a dispatcher back into their tables, all others into new batches."""
        app = self._app
        returned = app.claims.release_quarantined(None, replace(which, mode=Mode.DISPATCH))
        return returned + app.quarantine.retry(which, mode=app.plan.mode)
