"""Where timeouts were handed over to, remembered, so that each look reads only what is new.

To group a ledger by destination is to read all of it: a million rows are some 1.5 GB and a second.
Rules of this file: what is remembered may name too much, never too little; what was recalled or
purged since is forgotten when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from migrator.ledger.hand_overs import HandedOver
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.ports import HandOvers

_OVERLAP: Final = timedelta(minutes=5)
"""A hand-over is recorded with the time at which its transaction began, and read once it ended; no
statement takes longer than a minute."""


class KnownHandOvers:
    """Asks for all once, and then for what was handed over since; for one thread."""

    def __init__(self, hand_overs: HandOvers, now: Callable[[], datetime]) -> None:
        """Ask *hand_overs*; *now* is the ledger's time. Nothing is asked yet."""
        self._hand_overs = hand_overs
        self._now = now
        self._known: dict[QueueName, HandedOver] = {}
        self._since: datetime | None = None

    def handed_over(self, *, due_from: datetime) -> Sequence[HandedOver]:
        """Return destinations of what is due from then on, as ``ports.HandOvers`` does.

        How many rows there are is as of when each destination was read last.

        Raises:
            StoreUnavailable, LedgerMissing, LedgerError: It cannot be asked; what is remembered
                stays.
        """
        asked_at, known = self._now(), self._known
        for new in self._hand_overs.handed_over(due_from=due_from, handed_over_from=self._since):
            last_due = max(new.last_due, known.get(new.destination, new).last_due)
            known[new.destination] = replace(new, last_due=last_due)
        self._since = asked_at - _OVERLAP
        self._known = {name: each for name, each in known.items() if each.last_due >= due_from}
        return [self._known[name] for name in sorted(self._known)]

    def forget(self) -> None:
        """Ask for all the next time."""
        self._known, self._since = {}, None
