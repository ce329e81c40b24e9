"""Does the store have the endpoints that were named, or any at all?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.errors import UnknownEndpoint
from migrator.preflight.findings import Finding, Level
from migrator.stores.ports import Store

NAME: Final = "endpoints"


def check(store: Store, names: Sequence[str]) -> Iterator[Finding]:
    """Look for each endpoint; without names, for any."""
    known = ", ".join(endpoint.name for endpoint in store.endpoints())
    if not known:
        yield _refused("store", "it has no timeouts table", "check database and store.schema")
        return
    unknown = [name for name in names if not _has(store, name)]
    for name in unknown:
        yield _refused(
            name,
            f"the store has no such endpoint; it has: {known}",
            "correct the name, or set its table in [[endpoints]]",
        )
    if not unknown:
        text = f"it has timeouts of {known}"
        yield Finding(check=NAME, level=Level.OK, subject="store", text=text)


def _has(store: Store, name: str) -> bool:
    try:
        store.find(name)
    except UnknownEndpoint:
        return False
    return True


def _refused(subject: str, text: str, remedy: str) -> Finding:
    return Finding(check=NAME, level=Level.REFUSED, subject=subject, text=text, remedy=remedy)
