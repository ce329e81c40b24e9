"""Tests of ``migrator.service.status``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from migrator.errors import LedgerError
from migrator.ledger.report import QuarantineFilter
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.status import DaemonStatus

SALES = EndpointName("Sales")


@pytest.mark.parametrize(
    ("after", "rows", "has_more"), [(0, ["1", "2", "3"], True), (3, ["4", "5"], False)]
)
def test_pages_of_the_quarantine_say_whether_more_follow(
    after: int, rows: list[str], has_more: bool
) -> None:
    """Each goes on after the last key of the one before; no answer is no empty page."""
    error: list[LedgerError] = []

    def page(_which: QuarantineFilter, *, after: int, limit: int) -> Any:
        if error:
            raise error[0]
        return [key for key in range(1, 6) if key > after][:limit]

    unused: Any = None
    control: Any = SimpleNamespace(quarantine=SimpleNamespace(page=page))
    status = DaemonStatus(
        owner="",
        ledger_place="",
        queries=unused,
        reader=unused,
        control=control,
        supervision=unused,
        poller=unused,
        polling=(),
        finish=unused,
        jobs=[],
    )
    found = status.quarantine(QuarantineFilter(endpoints=[SALES]), after=after, limit=3)
    assert ([*map(str, found.rows)], found.has_more) == (rows, has_more)
    error.append(LedgerError("reading the quarantine: gone"))
    assert status.quarantine(QuarantineFilter(), after=0, limit=3).error == str(error[0])
