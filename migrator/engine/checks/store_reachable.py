"""Can the legacy database be reached, and does it have the endpoints that were named?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.domain.findings import Finding, Level
from migrator.errors import StoreError, StoreUnavailable, UnknownEndpoint
from migrator.ports import Store

NAME: Final = "store-reachable"


def check(store: Store, names: Sequence[str]) -> Iterator[Finding]:
    """Connect, and look for each endpoint; without names, for any endpoint at all."""
    try:
        endpoints = store.endpoints()
    except StoreUnavailable as exc:
        yield _refused(
            "store",
            f"it cannot be reached: {exc}",
            "check store.url, the network, and whether the database is running",
        )
        return
    except StoreError as exc:
        yield _refused(
            "store", f"it answers, but refuses: {exc}", "check user, password and rights"
        )
        return
    if not endpoints:
        yield _refused(
            "store", "it answers, but has no timeouts table", "check database and store.schema"
        )
        return
    known = ", ".join(endpoint.name for endpoint in endpoints)
    yield Finding(check=NAME, level=Level.OK, subject="store", text=f"it has timeouts of {known}")
    for name in names:
        try:
            store.find(name)
        except UnknownEndpoint as exc:
            yield _refused(name, str(exc), "set its table in [[endpoints]], or correct the name")


def _refused(subject: str, text: str, remedy: str) -> Finding:
    return Finding(check=NAME, level=Level.REFUSED, subject=subject, text=text, remedy=remedy)
