"""What the checks of a start found: which endpoints may be served, and why the others may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.errors import StoreError
from migrator.ledger.work import StoreEndpoint
from migrator.preflight.context import Finding, refusals, refuse_all


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
