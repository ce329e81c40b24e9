"""How those who look through the delay levels reach them, and know that nothing is underway."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import LevelDepths
from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import Levels, Now, utc_now
from migrator.delays.topology import delivery_limit, held_levels, read_level_depths
from migrator.errors import PreflightRefused, TargetError
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.server import find_queues

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

_SETTLE_S: Final = 2.0
"""How long dead-lettering is given when nobody tells whether it is done."""


@dataclass(frozen=True, kw_only=True)
class LevelAccess:
    """The delay levels of one broker; nothing is opened yet."""

    connection: ConnectionSettings
    """Where the levels are."""
    management: ManagementApi | None
    """Its management API; None: there is none."""
    purpose: str
    """What connections are called by, as the broker lists them."""
    staging_queues: Callable[[], Sequence[str]]
    """Names of our queues from which messages come into the levels."""
    now: Now = utc_now
    """What ``seen_at`` of messages is read from."""
    patience_s: float = 60.0
    """After so many seconds what does not come to rest is refused."""

    @contextmanager
    def open(self, version: DelaysVersion) -> Iterator[Levels]:
        """Connect anew to the levels of *version*.

        Raises:
            TargetUnavailable, AccessRefused: As connections do.
        """
        limit = delivery_limit(self.connection, self.management, version)
        loop = EventLoop()
        try:
            connection = Connection(loop, self.connection, self.purpose, reads_properties=True)
            yield Levels(connection, version, limit=limit, now=self.now)
        finally:
            loop.close()

    def depths(self) -> Sequence[LevelDepths]:
        """Return what waits in each level of each generation, by the broker's counts."""
        return [read_level_depths(self.connection, self.management, each) for each in DelaysVersion]

    def still_staged(self) -> int | None:
        """Return how many messages are on their way out of our staging queues; None: unknown.

        A receipt proves a commit, not that each message has reached its level already. What
        was staged and never committed stays where it is until its lane has an owner again; it is
        what the broker counts as ready at once, while the management API's count lags.
        """
        management = self.management
        if management is None:
            return None
        names = self.staging_queues()
        told = [management.queue(name) for name in names]
        counted = find_queues(self.connection, names)
        return sum(
            state.held_back + abs(state.total - (facts.ready if facts else 0))
            for state, facts in zip(told, counted.values(), strict=True)
            if state is not None
        )

    def wait_until_routed(self) -> None:
        """Return once the staging queues are empty: a receipt may be ahead of its messages.

        Raises:
            PreflightRefused: Messages stay in them.
        """
        until_s = time.monotonic() + self.patience_s
        while (staged := self.still_staged()) != 0:
            if staged is None:
                time.sleep(_SETTLE_S)
                return
            if time.monotonic() > until_s:
                raise PreflightRefused(
                    f"{staged} messages are still in migrator's staging queues; "
                    "`migrator delays verify` tells why"
                )
            time.sleep(_SETTLE_S / 4)

    def wait_until_passed_on(self, version: DelaysVersion) -> None:
        """Return once no message hangs between two levels, where nobody sees it; or nobody tells.

        Raises:
            PreflightRefused: Some do all the time; nothing was changed.
        """
        until_s = time.monotonic() + self.patience_s
        while hanging := self._hanging(version):
            if time.monotonic() > until_s:
                listed = ", ".join(f"level {n:02d}: {hanging[n]}" for n in sorted(hanging))
                raise PreflightRefused(
                    "messages hang on their way out of a level, where they cannot be seen "
                    f"({listed}); after a broker node failed they go on within 6 minutes, else "
                    "`migrator delays verify` tells why; nothing was changed: run this again"
                )
            time.sleep(min(_SETTLE_S, self.patience_s))

    def _hanging(self, version: DelaysVersion) -> Mapping[int, int]:
        """Return how many messages hang in each level, as far as anybody tells."""
        if self.management is None:
            return {}
        try:
            return held_levels(self.management, version) or {}
        except TargetError:
            return {}

    def existing(self, queues: Collection[str]) -> Sequence[str]:
        """Return those of *queues* that exist."""
        found = find_queues(self.connection, queues)
        return [name for name in queues if found[name] is not None]
