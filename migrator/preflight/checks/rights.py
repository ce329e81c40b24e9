"""May we do with the rows what claiming needs? Proved by doing it, and rolling back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.errors import StoreError, StoreUnavailable
from migrator.ledger.work import StoreEndpoint
from migrator.preflight.findings import Finding, Level
from migrator.stores.ports import Store

NAME: Final = "rights"


def check(store: Store, endpoints: Sequence[StoreEndpoint]) -> Iterator[Finding]:
    """Claim one row of each endpoint and roll back."""
    for endpoint in endpoints:
        try:
            store.trial_claim(endpoint)
        except StoreUnavailable:
            raise
        except StoreError as exc:
            yield Finding(
                check=NAME,
                level=Level.REFUSED,
                subject=endpoint.source,
                text=str(exc),
                remedy="let `migrator db grants` print what the user needs",
            )
        else:
            yield Finding(
                check=NAME,
                level=Level.OK,
                subject=endpoint.source,
                text="a claim went through and was rolled back",
            )
