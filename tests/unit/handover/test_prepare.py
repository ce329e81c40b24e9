"""Tests of ``migrator.handover.prepare``: how many bad rows are too many."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from migrator.config.work import HandOver
from migrator.handover.prepare import Prepared, QuarantineLimit
from migrator.ledger.states import BatchState, Mode
from migrator.ledger.work import Batch
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane, RunId
from migrator.text import grouped

SALES, BILLING = EndpointName("Sales"), EndpointName("Billing")


def prepared(endpoint: EndpointName, *, claimed: int, quarantined: int) -> Prepared:
    """Return a batch of which so many rows could not become a message."""
    batch = Batch(
        id=BatchId(1),
        run=RunId(1),
        endpoint=endpoint,
        source="Sales_TimeoutData",
        lane=Lane(0),
        mode=Mode.DIRECT,
        state=BatchState.CLAIMED,
        attempt=0,
        size=claimed,
        body_bytes=0,
    )
    now = datetime(2026, 3, 10, tzinfo=UTC)
    return Prepared(batch=batch, messages=(), prepared_at=now, quarantined=quarantined)


@pytest.mark.parametrize(
    ("claimed", "quarantined", "is_too_many"),
    [(500, 100, False), (500, 101, True), (20_000, 200, False), (20_000, 201, True)],
)
def test_more_than_100_rows_or_1_percent_are_too_many(
    claimed: int, quarantined: int, is_too_many: bool
) -> None:
    """Whichever is more, as the settings are by themselves; then it counts from 0 again."""
    limit = QuarantineLimit(HandOver().max_quarantined, [SALES])
    limit.count(prepared(SALES, claimed=claimed - 400, quarantined=0))
    limit.count(prepared(SALES, claimed=400, quarantined=quarantined))
    told = f"{quarantined} of {grouped(claimed)} claimed rows went to quarantine"
    assert limit.take_passed(SALES) == (told if is_too_many else None)
    if is_too_many:
        assert limit.take_passed(SALES) is None


def test_other_endpoints_and_no_limit_let_all_pass() -> None:
    """Those of endpoints in mode forward would be late; 0 rows is no limit."""
    for limit in (QuarantineLimit(100, [SALES]), QuarantineLimit(0, [BILLING])):
        limit.count(prepared(BILLING, claimed=1000, quarantined=1000))
        assert limit.take_passed(BILLING) is None
