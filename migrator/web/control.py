"""What an operator may tell a running daemon: commands as values, as JSON, and on their way to it.

The same commands come over the control socket, over HTTP and from the status page; each is written
into the ledger with who gave it, when, and what came of it. ``parse(build(command)) == command``;
what is not understood is refused, never guessed. Source: docs/control.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar, cast

from migrator.ledger.report import QuarantineFilter
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.web.status import Liveness, QuarantinePage, Readiness, Snapshot


class RuntimeSetting(StrEnum):
    """What can be set while the daemon runs; settings are what counts after a restart."""

    BATCH_SIZE = "batch_size"
    RATE_LIMIT = "rate_limit"
    LANES = "lanes"
    CUTOFF = "cutoff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Claim nothing more, of one endpoint or of all; what is claimed is finished."""

    endpoint: EndpointName | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Lift a pause; without effect where there is none."""

    endpoint: EndpointName | None
    """None: every pause, of single endpoints as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjust:
    """Change a knob for as long as the daemon runs."""

    knob: RuntimeSetting
    value: str
    """As in the settings file: ``500``, ``1m`` …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Try rows in quarantine again, once what was wrong is right; what is not given is any."""

    endpoint: EndpointName | None
    reason: str | None
    """A ``conversion.Reason`` code."""
    timeout_id: TimeoutId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Finish what is claimed, then end: the same as the first SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNow:
    """End between two steps: the same as the second SIGTERM; recovery does the rest."""


Command = Pause | Resume | Adjust | Retry | Drain | StopNow


def command_document(command: Command) -> dict[str, str | None]:
    """Return *command* as it is sent, and as it is written into the ledger."""
    match command:
        case Pause(endpoint=endpoint, reason=reason):
            return {"command": "pause", "endpoint": endpoint, "reason": reason}
        case Resume(endpoint=endpoint):
            return {"command": "resume", "endpoint": endpoint}
        case Adjust(knob=knob, value=value):
            return {"command": "set", "knob": str(knob), "value": value}
        case Retry(endpoint=endpoint, reason=reason, timeout_id=timeout_id):
            return {"command": "retry", "endpoint": endpoint, "reason": reason, "id": timeout_id}
        case Drain():
            return {"command": "drain"}
        case StopNow():
            return {"command": "stop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a command."""

    is_done: bool
    """False: it was refused and nothing changed; *text* says why."""
    text: str
    """What is true now, in one line."""


def answer_document(answer: Answer) -> dict[str, object]:
    """Return what came of a command."""
    return {"is_done": answer.is_done, "text": answer.text}


class StatusService(Protocol):
    """The daemon as others may look at it and talk to it.

    Every method may be called from any thread and raises nothing; all but ``quarantine`` and
    ``execute`` answer at once.
    """

    def snapshot(self) -> Snapshot:
        """Return the latest look at everything; at most a few seconds old, and it says how old."""
        ...

    def live(self) -> Liveness:
        """Return whether the loops go on."""
        ...

    def ready(self) -> Readiness:
        """Return whether the daemon works, with the reasons why not."""
        ...

    def quarantine(self, which: QuarantineFilter, *, after: int, limit: int) -> QuarantinePage:
        """Return rows in quarantine whose key is above *after*; the ledger is asked."""
        ...

    def execute(self, command: Command, *, who: str) -> Answer:
        """Do what *command* says, and write into the ledger that *who* wanted it."""
        ...


NO_REASON: Final = "no reason was given"
_LONGEST_CHARS: Final = 500
KEYS: Final[Mapping[str, frozenset[str]]] = {
    "pause": frozenset({"endpoint", "reason"}),
    "resume": frozenset({"endpoint"}),
    "set": frozenset({"knob", "value"}),
    "retry": frozenset({"endpoint", "reason", "id"}),
    "drain": frozenset(),
    "stop": frozenset(),
}
"""What may be given with each command, beside ``who``."""
_ANYWHERE: Final = frozenset({"command", "who"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A command, and who says to have given it."""

    command: Command
    who: str | None = None
    """As they call themselves; the daemon adds what it knows itself."""


def parse_order(document: object) -> Order:
    """Return the order that *document* is.

    Raises:
        ValueError: It is none; says what is wrong.
    """
    if not isinstance(document, dict):
        raise ValueError("must be a JSON object with a command")  # noqa: TRY004 - one kind of error for all that can be wrong
    given = cast("dict[str, object]", document)
    verb = given.get("command")
    if not isinstance(verb, str) or verb not in KEYS:
        raise ValueError(f"command must be one of {', '.join(KEYS)}")
    unknown = sorted(set(given) - KEYS[verb] - _ANYWHERE)
    if unknown:
        raise ValueError(f"{verb} has no {', '.join(unknown)}")
    return Order(command=_command(verb, given), who=_text(given, "who"))


def build_order(order: Order) -> dict[str, str]:
    """Return *order* as ``parse_order`` takes it."""
    found = command_document(order.command)
    if order.who is not None:
        found["who"] = order.who
    return {key: value for key, value in found.items() if value is not None}


def _command(verb: str, given: Mapping[str, object]) -> Command:
    if verb == "pause":
        return Pause(endpoint=_endpoint(given), reason=_text(given, "reason") or NO_REASON)
    if verb == "resume":
        return Resume(endpoint=_endpoint(given))
    if verb == "set":
        return Adjust(knob=_knob(given), value=_needed(given, "value"))
    if verb == "retry":
        return Retry(endpoint=_endpoint(given), reason=_reason(given), timeout_id=_id(given))
    return Drain() if verb == "drain" else StopNow()


def _endpoint(given: Mapping[str, object]) -> EndpointName | None:
    name = _text(given, "endpoint")
    return None if name is None else EndpointName(name)


def _reason(given: Mapping[str, object]) -> str | None:
    code = _text(given, "reason")
    if code is not None and code not in set(Reason):
        raise ValueError(f"reason must be one of {', '.join(Reason)}")
    return code


def _id(given: Mapping[str, object]) -> TimeoutId | None:
    found = _text(given, "id")
    return None if found is None else TimeoutId(found)


def _knob(given: Mapping[str, object]) -> RuntimeSetting:
    try:
        return RuntimeSetting(_needed(given, "knob"))
    except ValueError as exc:
        raise ValueError(f"knob must be one of {', '.join(RuntimeSetting)}") from exc


def _needed(given: Mapping[str, object], key: str) -> str:
    found = _text(given, key)
    if found is None:
        raise ValueError(f"{key} must be given")
    return found


def _text(given: Mapping[str, object], key: str) -> str | None:
    """Return a text as one line that may be logged and shown as it is."""
    found = given.get(key)
    if found is None:
        return None
    if not isinstance(found, str) or not found.strip():
        raise ValueError(f"{key} must be a text that is not empty")
    if len(found) > _LONGEST_CHARS or not found.isprintable():
        raise ValueError(f"{key} must be one line of at most {_LONGEST_CHARS} characters")
    return found.strip()


_T = TypeVar("_T")

PATIENCE_S: Final = 10.0
"""How long a command may wait for its turn, and then for its answer."""


class NotBegunError(Exception):
    """Another command is still under way; this one was not given to the daemon."""


class NoAnswerError(Exception):
    """The daemon has the command and did not answer in time; it may still do it."""


class CommandQueue:
    """Hands commands to the daemon, and asks it what may take a while."""

    def __init__(self, status: StatusService, *, patience_s: float = PATIENCE_S) -> None:
        """Nothing is asked yet."""
        self._status = status
        self._commands = _Turns(name="web-command", patience_s=patience_s)
        self._looks = _Turns(name="web-look", patience_s=patience_s)

    async def execute(self, command: Command, *, who: str) -> Answer:
        """Return what came of *command*.

        Raises:
            NotBegunError: It was not given to the daemon.
            NoAnswerError: It was, and nobody knows yet.
        """
        return await self._commands.call(lambda: self._status.execute(command, who=who))

    async def quarantine(
        self, which: QuarantineFilter, *, after: int, limit: int
    ) -> QuarantinePage:
        """Return a page of rows in quarantine; no command waits for it."""
        try:
            return await self._looks.call(
                lambda: self._status.quarantine(which, after=after, limit=limit)
            )
        except (NotBegunError, NoAnswerError):
            return QuarantinePage(trouble="the ledger did not answer in time; try again")


class _Turns:
    """Calls that may take a while, one at a time, each in a thread of its own."""

    def __init__(self, *, name: str, patience_s: float) -> None:
        self._name = name
        self._patience_s = patience_s
        self._turn = asyncio.Lock()

    async def call(self, do: Callable[[], _T]) -> _T:
        try:
            await asyncio.wait_for(self._turn.acquire(), self._patience_s)
        except TimeoutError as exc:
            raise NotBegunError from exc
        work = asyncio.ensure_future(_in_thread(do, name=self._name))
        work.add_done_callback(self._over)  # not before: the next waits even when we do not
        done, _ = await asyncio.wait({work}, timeout=self._patience_s)
        if not done:
            raise NoAnswerError
        return work.result()

    def _over(self, work: asyncio.Future[_T]) -> None:
        self._turn.release()
        if not work.cancelled():
            work.exception()  # whoever still waits sees it; asyncio need not complain


async def _in_thread(do: Callable[[], _T], *, name: str) -> _T:
    """Return what *do* returns, in a thread that keeps no process from ending."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[_T] = loop.create_future()

    def settle(value: _T | None, error: Exception | None) -> None:
        if result.done():  # nobody waits any more
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast("_T", value))

    def work() -> None:
        value, error = None, None
        try:
            value = do()
        except Exception as exc:
            error = exc
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await result
