"""The checks of a start: which endpoints may be served, and why the others may not, yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from migrator.app.app import App
from migrator.app.preflight import check_context
from migrator.app.preview import count_rows
from migrator.errors import StoreError
from migrator.ledger.work import StoreEndpoint
from migrator.preflight.context import Finding, by_check, refusals, refuse_all
from migrator.preflight.registry import run_checks
from migrator.stores.endpoints import chosen_endpoints, expected_endpoints, present_endpoints

PREFLIGHT_ROWS: Final = 20_000
"""Rows looked at before starting: a restart must not wait for a scan of millions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartChecks:
    """What the checks of a start found."""

    endpoints: Sequence[StoreEndpoint]
    """All that are meant, whether or not they may be served."""
    findings: Sequence[Finding]
    locked: StoreError | None = None
    """Why a table could not be looked at, where that passes by itself."""

    @property
    def refused(self) -> Mapping[str, Sequence[Finding]]:
        """Why endpoints may not be served, by name; empty: all may."""
        of_all = refusals(self.findings)
        return {name: found for name, found in of_all.items() if name is not None}

    def refuse(self) -> None:
        """Return where some endpoint may be served.

        Raises:
            PreflightRefused: None may; nothing was changed.
            StoreLocked: The same, and a table was locked: another start may find it free.
        """
        names = {each.name for each in self.endpoints}
        is_of_all = None in refusals(self.findings)
        if self.locked is not None and not is_of_all and self.refused.keys() >= names:
            raise self.locked
        refuse_all(self.findings, names)


def check_start(
    app: App, names: Sequence[str], *, progress: Callable[[str, int], None]
) -> StartChecks:
    """Check whether the endpoints called *names* may be served; without names, all there are.

    Raises:
        UnknownEndpoint: The store has none of them.
        StoreUnavailable, LedgerError, TargetError: It cannot be found out.
    """
    present = present_endpoints(app.store, names)
    if not present:
        chosen_endpoints(app.store, names)
    counted = count_rows(app, present, progress=progress, max_rows=PREFLIGHT_ROWS, is_exact=False)
    context = check_context(app, names, counted.previews, unreadable=counted.unreadable)
    return StartChecks(
        endpoints=expected_endpoints(app.store, names),
        findings=by_check([*run_checks(context), *counted.unreadable]),
        locked=counted.locked,
    )
