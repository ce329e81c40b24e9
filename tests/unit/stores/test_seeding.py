"""Invented timeouts look like the persistence's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from migrator.nservicebus.conversion import BrokerLimits, convert
from migrator.nservicebus.timeouts import NativeMessage, StoredTimeout, TimeoutId
from migrator.stores.sql.seeding import SeedSpec, invent

START = datetime(2026, 3, 1, tzinfo=UTC)


def test_invented_rows_look_like_the_persisters_and_convert() -> None:
    """Ids are as persister 1.0.1 makes them; column and Expire header agree."""
    what = SeedSpec(
        endpoint="Sales",
        count=20,
        due_from=START,
        due_until=START + timedelta(days=1),
        destinations=("Sales", "Billing"),
        body_bytes=101,
    )
    rows = list(invent(what))
    ids = [row.id for row in rows]
    assert len({str(UUID(each)) for each in ids}) == 20
    assert {(each[14], each[24:28]) for each in ids} == {("4", "08de")}
    for index, row in enumerate(rows):
        assert row.due_at is not None
        assert START <= row.due_at <= START + timedelta(days=1)
        stored = StoredTimeout(
            id=TimeoutId(row.id),
            row_index=index,
            destination=row.destination,
            due_at=row.due_at,
            body=row.body or b"",
            headers_text=row.headers_text,
        )
        message = convert(stored, rules=BrokerLimits(), now=START)
        assert isinstance(message, NativeMessage)
        assert (message.due_at, len(message.body)) == (row.due_at, 101)
