"""The checks of a start: which endpoints may be served, and why the others may not, yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from migrator.app.preflight import check_context
from migrator.app.preview import count_rows
from migrator.app.servers import Servers
from migrator.preflight.context import by_check
from migrator.preflight.registry import run_checks
from migrator.preflight.start import StartChecks
from migrator.stores.endpoints import chosen_endpoints, expected_endpoints, present_endpoints

PREFLIGHT_ROWS: Final = 20_000
"""Rows looked at before starting: a restart must not wait for a scan of millions."""


class StartCheck:
    """Makes the checks of a start, also while a daemon runs."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def check(
        self, names: Sequence[str], *, progress: Callable[[str, int], None] | None = None
    ) -> StartChecks:
        """Check whether the endpoints called *names* may be served; without names, all there are.

        Raises:
            UnknownEndpoint: The store has none of them.
            StoreUnavailable, LedgerError, TargetError: It cannot be found out.
        """
        servers, store = self._servers, self._servers.backend.store
        present = present_endpoints(store, names)
        if not present:
            chosen_endpoints(store, names)
        counted = count_rows(
            servers,
            present,
            progress=progress or _no_progress,
            max_rows=PREFLIGHT_ROWS,
            is_exact=False,
        )
        context = check_context(servers, names, counted.previews, unreadable=counted.unreadable)
        return StartChecks(
            endpoints=expected_endpoints(store, names),
            findings=by_check([*run_checks(context), *counted.unreadable]),
            locked=counted.locked,
        )


def _no_progress(_name: str, _rows: int) -> None:
    pass
