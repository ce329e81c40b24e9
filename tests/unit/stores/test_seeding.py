"""Invented timeouts look like the persistence's own."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

from migrator.nservicebus.conversion import BrokerLimits, convert
from migrator.nservicebus.timeouts import NativeMessage, StoredTimeout, TimeoutId
from migrator.stores.sql.seeding import Invention, SeedRow, invent

START = datetime(2026, 3, 1, tzinfo=UTC)


def _rows() -> list[SeedRow]:
    what = Invention(
        endpoint="Sales",
        count=20,
        due_from=START,
        due_until=START + timedelta(days=1),
        destinations=("Sales", "Billing"),
        body_bytes=101,
    )
    return list(invent(what))


def test_ids_are_unique_guids_with_a_counter_at_the_end() -> None:
    """As persister 1.0.1 and later make them."""
    ids = [row.id for row in _rows()]
    assert len(set(ids)) == 20
    assert all(str(UUID(row_id)) == row_id for row_id in ids)
    assert {row_id[14] for row_id in ids} == {"4"}
    assert {row_id[24:28] for row_id in ids} == {"08de"}


def test_due_times_are_in_range_and_in_the_headers() -> None:
    """The column and the Expire header agree, so nothing looks edited."""
    for row in _rows():
        assert row.due_at is not None
        assert START <= row.due_at <= START + timedelta(days=1)
        assert row.headers_text is not None
        assert row.headers_text.startswith('{\n  "')
        assert len(json.loads(row.headers_text)) == 15


def test_invented_rows_convert() -> None:
    """They are what a rehearsal needs: migratable."""
    for index, row in enumerate(_rows()):
        assert row.due_at is not None
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
