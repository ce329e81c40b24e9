"""Can the legacy tables be worked with as they are? A missing index makes each claim slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.domain.findings import Finding, Level
from migrator.ports import Store

NAME: Final = "legacy-table"


def check(store: Store) -> Iterator[Finding]:
    """Warn of missing indexes and of rows that belong to no endpoint; neither is in the way."""
    found = store.remarks()
    for each in found:
        yield Finding(
            check=NAME,
            level=Level.WARNING,
            subject=each.subject,
            text=each.text,
            remedy=each.remedy,
        )
    if not found:
        text = "every index that is needed is there"
        yield Finding(check=NAME, level=Level.OK, subject="store", text=text)
