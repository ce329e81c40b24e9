"""Can the legacy tables be worked with as they are? A missing index makes each claim slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.preflight.findings import Finding, Level
from migrator.stores.endpoints import EndpointPreview
from migrator.stores.ports import Store

NAME: Final = "legacy-table"


def check(store: Store, previews: Sequence[EndpointPreview] | None) -> Iterator[Finding]:
    """Warn of missing indexes, of rows that belong to no endpoint, and of those nobody can claim.

    None of these is in the way. *previews* are None when rows were not looked at.
    """
    found = store.remarks()
    for each in found:
        yield _finding(Level.WARNING, each.subject, each.text, each.remedy)
    if not found:
        yield _finding(Level.OK, "store", "every index that is needed is there")
    for preview in previews or ():
        for why, entry in sorted(preview.unclaimable.items()):
            yield _finding(
                Level.WARNING,
                preview.endpoint,
                f"{entry.count} timeouts are never claimed, {why}; such as "
                f"{', '.join(entry.examples)}",
                "mend or remove them; they stay where they are",
            )


def _finding(level: Level, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject=subject, text=text, remedy=remedy)
