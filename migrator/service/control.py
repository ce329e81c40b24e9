"""Doing what an operator says: each command at once, in the log, and in the ledger.

Rules of this file: a command waits for no server, except a moment for the ledger to have it noted;
what cannot be done changes nothing, and says why. An end is noted before it begins.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from migrator.errors import ConfigError
from migrator.ledger.pause_reasons import Hold, Signal
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.crew import Crew
from migrator.service.gate import Gate
from migrator.service.knobs import Knobs
from migrator.service.pauses import Pauses
from migrator.service.trail import Trail
from migrator.service.worker import Stop
from migrator.web.control import (
    Adjust,
    Answer,
    Command,
    Drain,
    Knob,
    Pause,
    Resume,
    Retry,
    StopNow,
    command_document,
)

_log = logging.getLogger(__name__)

_LEDGER_PATIENCE_S: Final = 2.0
EVENT: Final = "command"
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
        gate: Gate,
        knobs: Knobs,
        crew: Crew,
        stop: Stop,
        trail: Trail,
        served: Sequence[Served],
        pauses: Pauses,
        retry: Callable[[Retry], Answer],
        believe_clock: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Act on these parts of one process.

        *believe_clock* believes a database clock that jumped, and says so; None: it did not.
        """
        self._believe_clock = believe_clock
        self._gate = gate
        self._knobs = knobs
        self._crew = crew
        self._stop = stop
        self._trail = trail
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
            is_noted = self._trail.note(EVENT, detail).wait(_LEDGER_PATIENCE_S)
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
        hold = Hold(
            signal=Signal.PAUSED,
            endpoint=command.endpoint,
            observed=f"{command.reason} ({who})",
            limit="",
            since=datetime.now(UTC),
        )
        is_new = self._gate.hold(hold)
        self._pauses.keep(command.endpoint)
        whom = command.endpoint or "hand-over of every endpoint"
        text = f"{whom} is paused" if is_new else f"{whom} was paused already; the reason is new"
        return _done(f"{text}; what is claimed is finished{self._goes_on(command.endpoint)}")

    def _goes_on(self, endpoint: EndpointName | None) -> str:
        names = sorted(each.name for each in self._served.values() if not each.can_wait)
        return f"; the dispatchers of {', '.join(names)} go on" if names and not endpoint else ""

    def _refusal(self, endpoint: EndpointName | None) -> Answer | None:
        if endpoint is None:
            if self._crew.moves:
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
            lifted = self._gate.lift_all(Signal.PAUSED)
        else:
            found = self._gate.lift(Signal.PAUSED, command.endpoint)
            lifted = [] if found is None else [found]
        self._pauses.keep(command.endpoint)
        left = self._gate.holds_for(command.endpoint)
        whom = command.endpoint or "hand-over"
        text = f"{whom} is resumed" if lifted else f"{whom} was not paused"
        if not lifted and command.endpoint is None and (clock := self._believe_clock()):
            text = clock
            self._gate.lift(Signal.CLOCK)
            left = self._gate.holds_for(None)
        return _done(f"{text}; it still waits: {left[0].text}" if left else text)

    def _adjust(self, command: Adjust) -> Answer:
        try:
            before = self._knobs.turn(command.knob, command.value)
        except ConfigError as exc:
            return _refused(str(exc))
        if command.knob is Knob.LANES and not self._crew.set_lanes(self._knobs.now.lanes):
            return _refused("nothing is handed over here any more; lanes are as they were")
        self._crew.wake()
        now = self._knobs.texts()[command.knob]
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
