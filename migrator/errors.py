"""Every error of migrator as one tree, with the exit code each ends the process with.

The tree::

    MigratorError                 1  a bug, or an unforeseen failure
    ├── ConfigError               2  settings or arguments are wrong; nothing was started
    │   └── DriverMissing            a package that one kind of store needs is not installed
    ├── PreflightRefused          3  a check refused; nothing was changed
    │   ├── LedgerMissing            no ledger, or not the expected version: `migrator db upgrade`
    │   ├── LedgerCloned             this ledger belongs to another database
    │   ├── LedgerAdopted            its id changed while this process worked: start it again
    │   │   └── LedgerBehind      6  the database lacks what this process committed
    │   ├── DatabaseFailedOver       another server has taken over, and may lack the last commits
    │   └── UnknownEndpoint          the store has no such endpoint
    ├── CommandRefused            3  a running daemon refused a command; nothing was changed
    ├── LimitPassed               3  a critical limit was passed; claimed batches are finished
    ├── StoreError                4  the legacy database did not do what was asked; state is known
    │   ├── StoreUnavailable         it cannot be reached now; trying again is safe
    │   │   ├── StoreLocked          another transaction kept a table or a row for too long
    │   │   └── ClockInDoubt         its clock jumped; claiming and hand-over paused
    │   ├── SourceGone               a place that timeouts came from does not exist any more
    │   └── RowRefused               it does not take this row, and never will
    ├── LedgerError               4  the ledger did not do what was asked
    │   └── LeaseLost                another owner has this lane now; stop touching its batches
    ├── TargetError               4  the broker did not do what was asked; state is known
    │   ├── TargetUnavailable        it cannot be reached now; trying again is safe
    │   │   └── LaneGuarded              another connection still has a lane's queues
    │   ├── AccessRefused            it answered with a refusal
    │   ├── MessageTooLarge           it takes no body of that size
    │   ├── DeliveryLimitNear        a message was redelivered so often that it must be left alone
    │   └── EntityMismatch           an entity exists with other arguments
    ├── DaemonUnavailable         4  no daemon answers on its control socket; asking again is safe
    ├── HandOverDoubtful          6  it is unknown whether a batch was handed over
    │   └── ReceiptMissing           the receipt of a commit did not come; other batches can
    continue
    ├── Interrupted             143  a signal ended the work before it was done
    ├── IllegalTransition         1  the state table does not know this step
    └── NotChecked                1  a question of a check has no answer; it becomes a finding

Three kinds for a caller: *refused* (nothing changed), *failed* (known state, safe to retry),
*doubtful* (ask the broker or a person). An unknown outcome is doubtful.
Messages are lower case, name the object, state what is true now and what to do next. They never
contain a password or a message body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import ClassVar, Final, Literal

DISTRIBUTION: Final = "nservicebus-timeout-migrator"
"""What to install; `migrator` is another project's name."""


class ExitCode(IntEnum):
    """Source: design section 11."""

    DONE = 0
    BUG = 1
    USAGE = 2
    PREFLIGHT_REFUSED = 3
    UNREACHABLE = 4
    QUARANTINED = 5
    DOUBTFUL = 6
    PARTIAL = 7
    INTERRUPTED = 143
    """128 + SIGTERM, as shells do: ``--once`` was stopped before it was done."""


Failure = Literal[
    "bug", "usage", "preflight_refused", "unreachable", "quarantined", "doubtful", "interrupted"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """Every answer by HTTP to what cannot be answered."""

    __pydantic_config__: ClassVar = {"title": "migrator/error/1"}
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLine:
    """With `--json`, the last line on stderr of what fails; by HTTP, `error` alone."""

    __pydantic_config__: ClassVar = {"title": "migrator/error/1"}
    error: str
    remedy: str | None
    exit_code: ExitCode
    outcome: Failure


class MigratorError(Exception):
    """Base of every error that migrator raises on purpose."""

    exit_code: ClassVar[ExitCode] = ExitCode.BUG
    remedy: str | None = None
    """What to do, where the message names several things; None: the message says it."""


class ConfigError(MigratorError):
    """Settings or arguments are wrong. Nothing was started."""

    exit_code = ExitCode.USAGE


class DriverMissing(ConfigError):
    def __init__(self, wanted_by: str, package: str, *, extra: str) -> None:
        super().__init__(
            f"{wanted_by} needs {package}, which is not installed: "
            f'pip install "{DISTRIBUTION}[{extra}]"'
        )


class PreflightRefused(MigratorError):
    """A check refused to go on. Nothing was changed."""

    exit_code = ExitCode.PREFLIGHT_REFUSED


class LedgerMissing(PreflightRefused):
    """The ledger is missing, or at a schema version this release does not support."""


class LedgerCloned(PreflightRefused):
    """The ledger was created in another database; its queues belong to that one."""


class LedgerAdopted(PreflightRefused):
    """The ledger was adopted: this process works for its former id."""


class LedgerBehind(LedgerAdopted):
    """The database lacks what this process committed, which stops all its work and ends."""

    exit_code = ExitCode.DOUBTFUL


class DatabaseFailedOver(PreflightRefused):
    """Another server has taken over, and may lack what was committed last."""


class UnknownEndpoint(PreflightRefused):
    """The store has no timeouts table for this endpoint."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name = name
        self.known = known
        listed = ", ".join(known) if known else "none"
        super().__init__(f"the store has no endpoint {name!r}; it has: {listed}")


class LimitPassed(MigratorError):
    """A critical limit was passed. Claimed batches are finished; claiming has ended."""

    exit_code = ExitCode.PREFLIGHT_REFUSED


class StoreError(MigratorError):
    """The legacy store did not do what was asked. Its state is known."""

    exit_code = ExitCode.UNREACHABLE
    is_of_source: ClassVar[bool] = True
    """It concerns the one table that was asked; False: the whole database."""


class StoreUnavailable(StoreError):
    """The legacy store cannot be reached now. Nothing was changed; trying again is safe."""

    is_of_source = False


class StoreLocked(StoreUnavailable):
    """A table or a row is locked by another transaction, or too slow. Nothing was changed."""

    is_of_source = True


class ClockInDoubt(StoreUnavailable):
    """The database's clock jumped. Work that depends on the time waits."""

    def __init__(self, text: str, *, earliest: datetime) -> None:
        self.earliest = earliest
        super().__init__(text)


class SourceGone(StoreError):
    """The place a batch came from does not exist, by the store's own answer."""


class SourceElsewhere(SourceGone):
    """The settings name another store than the one a batch came from. Nothing was changed."""


class SomeGone(SourceGone):
    """Some rows could not go back, because their places are gone; all others did."""

    def __init__(self, gone: Sequence[SourceGone], *, back: int) -> None:
        super().__init__("; ".join(str(each) for each in gone))
        self.back = back


class RowsKept(StoreError):
    """The legacy table keeps rows that a claim removes. Nothing was changed."""


class RowRefused(StoreError):
    """The legacy store does not take a row, because of what is in it. Nothing was changed."""


class LedgerError(MigratorError):
    """The ledger did not do what was asked."""

    exit_code = ExitCode.UNREACHABLE


class LeaseLost(LedgerError):
    """Another owner has the lane. The receiver of this error stops touching the lane's batches."""


class TargetError(MigratorError):
    """The broker did not do what was asked. The state is known."""

    exit_code = ExitCode.UNREACHABLE


class TargetUnavailable(TargetError):
    """The broker cannot be reached or went away. Trying again is safe."""


class LaneGuarded(TargetUnavailable):
    """Another connection owns a lane on the broker. Nothing was sent; other lanes are free."""


class AccessRefused(TargetError):
    """The broker answered with a refusal: wrong user, password, virtual host or permission."""


class MessageTooLarge(TargetError):
    """The broker takes no body of that size; it reports its limit."""

    def __init__(self, message: str, limit_bytes: int) -> None:
        super().__init__(message, limit_bytes)
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return str(self.args[0])


class DeliveryLimitNear(TargetError):
    """A message was redelivered so often that one more redelivery could dead-letter it."""


class EntityMismatch(TargetError):
    """A queue or exchange exists with other arguments than required."""


class CommandRefused(MigratorError):
    """A running daemon refused a command, with the reason. Nothing was changed."""

    exit_code = ExitCode.PREFLIGHT_REFUSED


class DaemonUnavailable(MigratorError):
    """No daemon answers on its control socket. Asking again is safe."""

    exit_code = ExitCode.UNREACHABLE


class HandOverDoubtful(MigratorError):
    """It is unknown whether a batch was handed over; it is left unchanged."""

    exit_code = ExitCode.DOUBTFUL


class ReceiptMissing(HandOverDoubtful):
    """The receipt of a commit did not come before its deadline; its batch is doubtful.

    Nothing contradicts the ledger, so other batches can continue, over a new link.
    """


class Interrupted(MigratorError):
    """A signal ended the work before it was done. The same call continues it."""

    exit_code = ExitCode.INTERRUPTED


class IllegalTransition(MigratorError):
    """The state table has no such step."""


class NotChecked(MigratorError):
    """A check's question has no answer; the text says why. Never to be read as "fine"."""
