"""Can the legacy database be reached, and does it let us in? Two different findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.errors import StoreError, StoreUnavailable
from migrator.preflight.findings import Finding, Level
from migrator.stores.ports import Store

NAME: Final = "store-reachable"


def check(store: Store) -> Iterator[Finding]:
    """Connect, and list the tables."""
    try:
        store.endpoints()
    except StoreUnavailable as exc:
        yield _refused(
            f"it cannot be reached: {exc}",
            "check store.url, the network, and whether the database is running",
        )
    except StoreError as exc:
        yield _refused(f"it answers, but refuses: {exc}", "check user, password and rights")
    else:
        yield Finding(check=NAME, level=Level.OK, subject="store", text=f"{store.kind}; it answers")


def _refused(text: str, remedy: str) -> Finding:
    return Finding(check=NAME, level=Level.REFUSED, subject="store", text=text, remedy=remedy)
