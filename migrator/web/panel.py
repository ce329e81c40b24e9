"""What the web side needs of the daemon; the daemon implements it."""

from __future__ import annotations

from typing import Protocol

from migrator.ledger.report import QuarantineFilter
from migrator.web.control_values import Answer, Command, Liveness, Readiness
from migrator.web.snapshot import QuarantinePage, Snapshot


class Panel(Protocol):
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
