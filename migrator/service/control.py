"""Doing what an operator says: each command at once, in the log, and in the ledger.

Rules of this file:

* a command waits for no server, except a moment for the ledger to have it noted; what cannot be
  done changes nothing, and says why; an end is noted before it begins;
* an endpoint is paused or not, whether it was paused alone or with all others; the ledger knows,
  the latest event counts, and only `resume` ends a pause, never a restart;
* quarantined rows are tried again on a thread of their own, one command at a time; how many they
  were is in the audit log, as on the command line.

Source: docs/control.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Final

from migrator.background import BackgroundTask
from migrator.errors import ConfigError, MigratorError
from migrator.ledger.clock import DatabaseClock
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import EndpointName
from migrator.quarantine.decisions import DISCARDED, RETRIED, QuarantineDecision, discard, retry
from migrator.quarantine.rows import SqlQuarantine
from migrator.service.audit_log import AuditLog
from migrator.service.runtime_settings import RuntimeSettings
from migrator.service.worker import Stop, WorkerPool
from migrator.stores.ports import Claims
from migrator.text import counted
from migrator.throttle.clock import believe_as_told
from migrator.throttle.reasons import LASTING, PAUSE, PauseReason, Signal, Throttle
from migrator.web.control import (
    Adjust,
    Answer,
    Command,
    Discard,
    Drain,
    Pause,
    Resume,
    Retry,
    RuntimeSetting,
    StopNow,
    command_document,
)

_log = logging.getLogger(__name__)

_LEDGER_PATIENCE_S: Final = 2.0
_RETRY_PATIENCE_S: Final = 3.0
"""So long the caller is kept waiting for the number of rows."""
COMMAND: Final = "command"
_MIGRATE: Final = "migrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEndpoint:
    """One endpoint of this process."""

    name: EndpointName
    mode: str
    moves: bool
    """Its stored rows are handed over here."""

    @property
    def can_wait(self) -> bool:
        """Whether nothing of it is late when it waits."""
        return self.mode == _MIGRATE


@dataclass(kw_only=True, eq=False)
class Control:
    """Obeys commands, from any thread, one at a time."""

    served: Mapping[EndpointName, ServedEndpoint]
    """What this process works on."""
    throttle: Throttle
    runtime: RuntimeSettings
    workers: WorkerPool
    stop: Stop
    audit_log: AuditLog
    clock: DatabaseClock
    queries: LedgerQueries
    claims: Claims
    quarantine: SqlQuarantine
    mode: Mode
    """In which quarantined rows are tried again."""

    def __post_init__(self) -> None:
        self._turn = threading.Lock()
        self._retrying = threading.Lock()

    def execute(self, command: Command, *, who: str) -> Answer:
        """Do what *command* says; see ``web.control.StatusService``."""
        with self._turn:
            asked_at = datetime.now(UTC)
            answer = self._do(command, who)
            detail: dict[str, object] = {
                **command_document(command),
                "who": who,
                "asked_at": asked_at.isoformat(),
                "is_done": answer.is_done,
                "answer": answer.text,
            }
            _log.info("an operator's command", extra={"action": "command_given", **detail})
            is_noted = self.audit_log.note(COMMAND, detail).written.wait(_LEDGER_PATIENCE_S)
            if isinstance(command, StopNow):
                self.stop.at_once.set()
            if isinstance(command, Drain | StopNow):
                self.stop.draining.set()
        if is_noted:
            return answer
        late = "it is not recorded in the ledger yet"
        return Answer(is_done=answer.is_done, text=f"{answer.text}; {late}")

    def _do(self, command: Command, who: str) -> Answer:
        """Return what came of it; an end is only announced, and begins once it is noted."""
        match command:
            case Pause():
                return self._pause(command, who)
            case Resume():
                return self._resume(command)
            case Adjust():
                return self._adjust(command)
            case Retry() | Discard():
                return self._decide(command)
            case Drain():
                return _done("finishing what is claimed, then ending")
            case StopNow():
                return _done("ending after the current step; the next start continues from there")

    def _pause(self, command: Pause, who: str) -> Answer:
        if (refusal := self._refusal(command.endpoint)) is not None:
            return refusal
        observed = f"{command.reason} ({who})"
        is_new = self.throttle.pause(Signal.PAUSED, command.endpoint, observed)
        self._note_pauses(command.endpoint)
        whom = command.endpoint or "hand-over of every endpoint"
        text = (
            f"{whom} is paused"
            if is_new
            else (f"{whom} was paused already; the reason is replaced")
        )
        return _done(f"{text}; what is claimed is finished{self._goes_on(command.endpoint)}")

    def _goes_on(self, endpoint: EndpointName | None) -> str:
        names = sorted(each.name for each in self.served.values() if not each.can_wait)
        return f"; the dispatchers of {', '.join(names)} continue" if names and not endpoint else ""

    def _refusal(self, endpoint: EndpointName | None) -> Answer | None:
        if endpoint is None:
            if self.workers.moves:
                return None
            return _refused(
                "nothing is handed over here, and a dispatcher cannot be paused: its timeouts "
                "would be late"
            )
        served = self.served.get(endpoint)
        if served is None:
            return self._unknown(endpoint)
        if not served.can_wait:
            return _refused(
                f"{endpoint} is in mode {served.mode}: its timeouts would be late; nothing is "
                "paused. To stop it, drain or stop the daemon"
            )
        return None

    def _unknown(self, endpoint: EndpointName) -> Answer:
        known = ", ".join(sorted(self.served))
        return _refused(f"this daemon does not work on {endpoint}; it works on: {known}")

    def _resume(self, command: Resume) -> Answer:
        if command.endpoint is not None and command.endpoint not in self.served:
            return self._unknown(command.endpoint)
        lifted: list[PauseReason] = []
        for signal in LASTING:
            if command.endpoint is None:
                lifted += self.throttle.resume_all(signal)
            elif (found := self.throttle.resume(signal, command.endpoint)) is not None:
                lifted.append(found)
        self._note_pauses(command.endpoint)
        left = self.throttle.reasons_for(command.endpoint)
        whom = command.endpoint or "hand-over"
        text = f"{whom} is resumed" if lifted else f"{whom} was not paused"
        if not lifted and command.endpoint is None and (clock := believe_as_told(self.clock)):
            text = clock
            self.throttle.resume(Signal.CLOCK)
            left = self.throttle.reasons_for(None)
        return _done(f"{text}; it still waits: {left[0].text}" if left else text)

    def _adjust(self, command: Adjust) -> Answer:
        try:
            before = self.runtime.set(command.setting, command.value)
        except ConfigError as exc:
            return _refused(str(exc))
        if command.setting is RuntimeSetting.LANES and not self.workers.set_lanes(
            self.runtime.now.lanes
        ):
            return _refused("nothing is handed over here any more; the lanes are unchanged")
        self.workers.wake()
        now = self.runtime.texts()[command.setting]
        return _done(f"{command.setting} is {now} (was {before}) until the settings are read again")

    # ── pauses, which last until somebody resumes ───────────────────────────────────────────

    @property
    def _moved(self) -> Set[EndpointName]:
        return {name for name, each in self.served.items() if each.moves}

    def _note_pauses(self, endpoint: EndpointName | None) -> None:
        """Have the ledger know how *endpoint* is now, or every endpoint; returns at once."""
        for name in sorted(self._moved if endpoint is None else self._moved & {endpoint}):
            found = [r for r in self.throttle.reasons_for(name) if r.signal in LASTING]
            detail: dict[str, object] = {"endpoint": name, "is_paused": bool(found)}
            if found:
                first = found[0]
                detail |= {"signal": first.signal, "observed": first.observed}
                detail |= {"since": first.since.isoformat()}
            self.audit_log.note(PAUSE, detail)

    def note_reason(self, reason: PauseReason, began: bool) -> None:
        """Have the ledger know a pause that no command gave; returns at once."""
        if began and reason.signal is Signal.QUARANTINE:
            self._note_pauses(reason.endpoint)

    def restore_pauses(self, *signals: Signal) -> None:
        """Pause what was paused by one of *signals* and not resumed.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be asked. Nothing is paused.
        """
        latest = self.queries.latest_event_of_each(PAUSE, self._moved)
        for name, event in sorted(latest.items()):
            by = str(event.detail.get("signal", Signal.PAUSED))
            signal = next((each for each in signals if each == by), None)
            if event.detail.get("is_paused") and signal is not None:
                said = {key: str(event.detail.get(key, "")) for key in ("observed", "since")}
                try:
                    since = datetime.fromisoformat(said["since"]).astimezone(UTC)
                except ValueError:
                    since = event.at
                self.throttle.pause(signal, name, said["observed"], since=since)
                _log.warning(
                    "it was paused before this start and still is; `migrator resume` lifts the "
                    "pause",
                    extra={"action": "pause_kept", "endpoint": name, **said},
                )

    # ── the quarantine ──────────────────────────────────────────────────────────────────────

    def _decide(self, command: Retry | Discard) -> Answer:
        """Try rows again, or give them up; say how many when that is known soon."""
        if not self._retrying.acquire(blocking=False):
            return _refused(
                "rows are already being retried or discarded; nothing was started, try again later"
            )
        which = QuarantineFilter(
            endpoints=None if command.endpoint is None else [command.endpoint],
            reason=command.reason,
            timeout_id=command.id,
        )
        is_retry = isinstance(command, Retry)
        event = RETRIED if is_retry else DISCARDED
        done = "tried again" if is_retry else "discarded"
        answers: SimpleQueue[Answer] = SimpleQueue()

        def decide() -> None:
            answer = _refused("a bug; the log has details")
            try:
                found = self._retry(which) if is_retry else discard(self.quarantine, which)
                answer = _done(f"{counted(found.rows, 'row')} of the quarantine {done}")
                self.audit_log.note(event, found.detail)
            except MigratorError as exc:
                answer = _refused(f"not all were {done}, possibly none: {exc}")
            finally:
                self._retrying.release()
                answers.put(answer)

        BackgroundTask("quarantine", decide).run_soon()
        try:
            return answers.get(timeout=_RETRY_PATIENCE_S)
        except Empty:
            return _done(f"being {done}; the ledger's event {event} will say how many")

    def _retry(self, which: QuarantineFilter) -> QuarantineDecision:
        found = retry(self.quarantine, self.claims, which, mode=self.mode)
        self.workers.wake()
        return found


def _done(text: str) -> Answer:
    return Answer(is_done=True, text=text)


def _refused(text: str) -> Answer:
    return Answer(is_done=False, text=text)
