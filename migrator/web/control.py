"""Commands of an operator to a running daemon: as values, as JSON, and their queue.

The same commands come over the control socket, over HTTP and from the status page; each is written
into the ledger with its sender, time and outcome. ``parse(build(command)) == command``; unknown
input is refused, never guessed. Source: docs/control.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar, cast

from migrator.ledger.report import QuarantinedRow, QuarantinedTimeout, QuarantineFilter
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.reports import Document, fields_of

if TYPE_CHECKING:  # it needs the ledger's libraries, and who only gives a command waits for them
    from migrator.status.document import StatusDocument
    from migrator.status.snapshot import Snapshot


class RuntimeSetting(StrEnum):
    """What can be set while the daemon runs; settings are what counts after a restart."""

    BATCH_SIZE = "batch_size"
    RATE_LIMIT = "rate_limit"
    PACE = "pace"
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
    """Change a setting until the daemon is started again, or reads its settings again."""

    setting: RuntimeSetting
    value: str
    """As in the settings file: ``500``, ``1m`` …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Try rows in quarantine again, once what was wrong is right; what is not given is any."""

    endpoint: EndpointName | None
    reason: str | None
    """A ``conversion.Reason`` code."""
    id: TimeoutId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Give rows in quarantine up: they are never sent; what is not given is any."""

    endpoint: EndpointName | None
    reason: str | None
    """A ``conversion.Reason`` code."""
    id: TimeoutId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Finish what is claimed, then end: the same as the first SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNow:
    """End after the current step: the same as the second SIGTERM; recovery does the rest."""


Command = Pause | Resume | Adjust | Retry | Discard | Drain | StopNow


COMMANDS: Final[Mapping[str, type[Command]]] = {
    "pause": Pause,
    "resume": Resume,
    "set": Adjust,
    "retry": Retry,
    "discard": Discard,
    "drain": Drain,
    "stop": StopNow,
}
"""By their names; the fields of each are what may be given with it, beside ``who``."""


def command_document(command: Command) -> Document:
    """Return *command* as it is sent, and as it is written into the ledger."""
    verb = next(verb for verb, kind in COMMANDS.items() if kind is type(command))
    return {"command": verb, **fields_of(command)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`migrator pause`, `resume`, `set` and `stop` with `--json`; `POST /control`."""

    __pydantic_config__: ClassVar = {"title": "migrator/control/1"}
    is_done: bool
    """False: it was refused and nothing changed; *text* says why."""
    text: str
    """What is true now, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinePage:
    """Some of the rows in quarantine, without their content."""

    rows: Sequence[QuarantinedRow] = ()
    """By their ``key``, ascending."""
    has_more: bool = False
    error: str = ""
    """Why they could not be read; empty: they could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """`GET /live`."""

    __pydantic_config__: ClassVar = {"title": "migrator/live/1"}
    silent_s: Mapping[str, float]
    """Worker → seconds since its loop last went on."""
    is_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`GET /ready`."""

    __pydantic_config__: ClassVar = {"title": "migrator/ready/1"}
    is_ready: bool
    reasons: Sequence[str]
    """Why not; empty when it is ready. A throttle is no reason: it shows in the status."""


class StatusService(Protocol):
    """The daemon, as the web server reads and commands it.

    Every method may be called from any thread and raises nothing; all but ``ledger``,
    ``quarantine``, ``quarantined`` and ``execute`` answer at once.
    """

    @property
    def ledger_place(self) -> str:
        """Which ledger it is, as ``config.sources.ledger_place`` names it."""
        ...

    def ledger(self) -> StatusDocument | None:
        """Return what ``migrator status`` shows; the ledger is asked. None: it does not answer."""
        ...

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

    def quarantined(self, which: QuarantineFilter) -> Sequence[QuarantinedTimeout]:
        """Return rows in quarantine with their content; the ledger is asked.

        Empty: there is none such, or the ledger does not answer.
        """
        ...

    def execute(self, command: Command, *, who: str) -> Answer:
        """Do what *command* says, and write into the ledger that *who* wanted it."""
        ...


NO_REASON: Final = "no reason was given"
_LONGEST_CHARS: Final = 500
_ANYWHERE: Final = frozenset({"command", "who"})


def parse_order(document: object) -> tuple[Command, str | None]:
    """Return the command that *document* is, and who says to have given it.

    Raises:
        ValueError: It is none; says what is wrong.
    """
    if not isinstance(document, dict):
        raise ValueError("must be a JSON object with a command")  # noqa: TRY004 - one kind of error for all that can be wrong
    given = cast("dict[str, object]", document)
    verb = given.get("command")
    if not isinstance(verb, str) or verb not in COMMANDS:
        raise ValueError(f"command must be one of {', '.join(COMMANDS)}")
    keys = {each.name for each in fields(COMMANDS[verb])}
    if unknown := sorted(set(given) - keys - _ANYWHERE):
        raise ValueError(f"{verb} has no {', '.join(unknown)}")
    texts = {key: _text(given, key) for key in keys | {"who"}}
    who = texts.pop("who")
    if verb == "pause":
        texts["reason"] = texts["reason"] or NO_REASON
    if verb in ("retry", "discard"):
        _check(texts, "reason", {None, *Reason})
    if verb == "set":
        _check(texts, "setting", set(RuntimeSetting))
        if texts["value"] is None:
            raise ValueError("value must be given")
        texts["setting"] = RuntimeSetting(str(texts["setting"]))
    return cast("Any", COMMANDS[verb])(**texts), who


def build_order(command: Command, who: str | None) -> dict[str, object]:
    """Return a command as ``parse_order`` takes it."""
    found = {**command_document(command), "who": who}
    return {key: value for key, value in found.items() if value is not None}


def _check(texts: Mapping[str, str | None], key: str, known: Collection[str | None]) -> None:
    if texts[key] not in known:
        raise ValueError(f"{key} must be one of {', '.join(sorted(filter(None, known)))}")


def _text(given: Mapping[str, object], key: str) -> str | None:
    """Return a text as one line that may be logged and shown as it is."""
    found = given.get(key)
    if found is None:
        return None
    if not isinstance(found, str) or not found.strip():
        raise ValueError(f"{key} must be a non-empty text")
    if len(found) > _LONGEST_CHARS or not found.isprintable():
        raise ValueError(f"{key} must be one line of at most {_LONGEST_CHARS} characters")
    return found.strip()


_T = TypeVar("_T")

TIMEOUT_S: Final = 10.0
"""How long a command may wait for its turn, and then for its answer."""


class UnansweredError(Exception):
    """A command got no answer; the text says whether it may still be carried out."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class CommandQueue:
    """Passes commands and slow questions to the daemon."""

    def __init__(self, status: StatusService, *, timeout_s: float = TIMEOUT_S) -> None:
        self._status = status
        self._commands = _Turns(name="web-command", timeout_s=timeout_s)
        self._looks = _Turns(name="web-look", timeout_s=timeout_s)

    async def execute(self, command: Command, *, who: str) -> Answer:
        """Return what came of *command*.

        Raises:
            UnansweredError: The daemon did not get it, or did, and its outcome is unknown.
        """
        return await self._commands.call(lambda: self._status.execute(command, who=who))

    async def ledger(self) -> StatusDocument | None:
        """Return what the ledger says now; None: it did not in time. No command waits for it."""
        try:
            return await self._looks.call(self._status.ledger)
        except UnansweredError:
            return None

    async def quarantine(
        self, which: QuarantineFilter, *, after: int, limit: int
    ) -> QuarantinePage:
        """Return a page of rows in quarantine; no command waits for it."""
        try:
            return await self._looks.call(
                lambda: self._status.quarantine(which, after=after, limit=limit)
            )
        except UnansweredError:
            return QuarantinePage(error="the ledger did not answer in time; try again")

    async def quarantined(self, which: QuarantineFilter) -> Sequence[QuarantinedTimeout]:
        """Return rows in quarantine with their content; empty: none, or no answer in time."""
        try:
            return await self._looks.call(lambda: self._status.quarantined(which))
        except UnansweredError:
            return ()


class _Turns:
    """Slow calls, one at a time, each in a daemon thread."""

    def __init__(self, *, name: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._turn = threading.Lock()

    async def call(self, do: Callable[[], _T]) -> _T:
        begun, result = Future[None](), Future[_T]()
        for each in (begun, result):
            each.set_running_or_notify_cancel()  # it cannot be cancelled any more
        act = threading.Thread(
            target=self._do, args=(begun, result, do), name=self._name, daemon=True
        )
        act.start()
        work = asyncio.wrap_future(result)
        # the caller that still waits sees the exception; asyncio need not log it
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wrap_future(begun)  # it was called, or timed out
        done, _ = await asyncio.wait({work}, timeout=self._timeout_s)
        if not done:
            text = "the daemon did not answer in time and may still carry it out; check its status"
            raise UnansweredError(504, text)
        return work.result()

    def _do(self, begun: Future[None], result: Future[_T], do: Callable[[], _T]) -> None:
        is_ours = self._turn.acquire(timeout=self._timeout_s)
        begun.set_result(None)
        if not is_ours:
            text = "another command is still under way; nothing was done, try again"
            result.set_exception(UnansweredError(503, text))
            return
        try:
            result.set_result(do())
        except Exception as exc:
            result.set_exception(exc)
        finally:
            self._turn.release()
