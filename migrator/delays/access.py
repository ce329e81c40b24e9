"""How those who look through the delay levels reach them, and know that nothing is underway."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

_PATIENCE_S: Final = 60.0
"""Seconds."""
_SETTLE_S: Final = 2.0
"""How long dead-lettering is given when nobody tells whether it is done."""


class LevelAccess:
    """The delay levels of one broker."""

    def __init__(
        self,
        connection: ConnectionSettings,
        management: ManagementApi | None,
        *,
        purpose: str,
        staging_queues: Callable[[], Sequence[str]],
        now: Now = utc_now,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """Remember how to connect; nothing is opened.

        Args:
            connection: Where the levels are.
            management: Its management API; None: there is none.
            purpose: What connections are called by, as the broker lists them.
            staging_queues: Names of our queues from which messages come into the levels.
            now: What ``seen_at`` of messages is read from.
            patience_s: After so long what does not come to rest is refused.
        """
        self._connection = connection
        self._management = management
        self._purpose = purpose
        self._staging_queues = staging_queues
        self._now = now
        self._patience_s = patience_s

    @contextmanager
    def open(self, version: DelaysVersion) -> Iterator[Levels]:
        """Connect anew to the levels of *version*.

        Raises:
            TargetUnavailable, AccessRefused: As connections do.
        """
        limit = delivery_limit(self._connection, self._management, version)
        loop = EventLoop()
        try:
            connection = Connection(loop, self._connection, self._purpose, reads_properties=True)
            yield Levels(connection, version, limit=limit, now=self._now)
        finally:
            loop.close()

    def depths(self) -> Sequence[LevelDepths]:
        """Return what waits in each level of each generation, by the broker's counts."""
        return [
            read_level_depths(self._connection, self._management, each) for each in DelaysVersion
        ]

    def still_staged(self) -> int | None:
        """Return how many messages are on their way out of our staging queues; None: unknown.

        A receipt proves a commit, not that each message has reached its level already. What
        was staged and never committed stays where it is until its lane has an owner again; it is
        what the broker counts as ready at once, while the management API's count lags.
        """
        management = self._management
        if management is None:
            return None
        names = self._staging_queues()
        told = [management.queue(name) for name in names]
        counted = find_queues(self._connection, names)
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
        until_s = time.monotonic() + self._patience_s
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
        until_s = time.monotonic() + self._patience_s
        while hanging := self._hanging(version):
            if time.monotonic() > until_s:
                listed = ", ".join(f"level {n:02d}: {hanging[n]}" for n in sorted(hanging))
                raise PreflightRefused(
                    "messages hang on their way out of a level, where they cannot be seen "
                    f"({listed}); after a broker node failed they go on within 6 minutes, else "
                    "`migrator delays verify` tells why; nothing was changed: run this again"
                )
            time.sleep(min(_SETTLE_S, self._patience_s))

    def _hanging(self, version: DelaysVersion) -> Mapping[int, int]:
        """Return how many messages hang in each level, as far as anybody tells."""
        if self._management is None:
            return {}
        try:
            return held_levels(self._management, version) or {}
        except TargetError:
            return {}

    def existing(self, queues: Collection[str]) -> Sequence[str]:
        """Return those of *queues* that exist."""
        found = find_queues(self._connection, queues)
        return [name for name in queues if found[name] is not None]
