"""Tests of ``migrator.stores.azure.entities``."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest

from migrator.errors import StoreError
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.entities import Kept, due_of, dumped, kept, loaded, saga_of

WIRE: dict[str, Any] = {
    "odata.etag": "W/\"datetime'x'\"",
    "PartitionKey": "id'1",
    "RowKey": "",
    "Text": "schön \U0001f4a4 \\u0027",
    "Empty": "",
    "Flag": False,
    "Small": -3,
    "Big@odata.type": "Edm.Int64",
    "Big": "9007199254740993",
    "Odd@odata.type": "Edm.Double",
    "Odd": 0.1,
    "Whole@odata.type": "Edm.Double",
    "Whole": 3.0,
    "None@odata.type": "Edm.Double",
    "None": "NaN",
    "Most@odata.type": "Edm.Double",
    "Most": "-Infinity",
    "When@odata.type": "Edm.DateTime",
    "When": "2026-11-03T08:15:30.1224179Z",
    "Who@odata.type": "Edm.Guid",
    "Who": "5f6e0c1a-0000-4000-8000-00000000c2d1",
    "Raw@odata.type": "Edm.Binary",
    "Raw": "AP8=",
}


def test_what_was_read_is_what_is_written() -> None:
    """Every type, by way of the ledger's JSON, as it goes over the wire."""
    read = kept(WIRE)
    again = Kept.of(json.loads(json.dumps(asdict(read))))
    assert again == read
    assert again is not None
    assert again.entity() == {key: value for key, value in WIRE.items() if key != "odata.etag"}


@pytest.mark.parametrize(
    ("text", "micros"),
    [("30.122417Z", 122417), ("30.1224170Z", 122417), ("30.1224171Z", 122418), ("30Z", 0)],
)
def test_a_due_time_is_never_earlier_than_stored(text: str, micros: int) -> None:
    """100 ns more than a microsecond are a microsecond more."""
    wire = {"Time@odata.type": "Edm.DateTime", "Time": f"2026-11-03T08:15:{text}"}
    due_at = datetime(2026, 11, 3, 8, 15, 30, micros, tzinfo=UTC)
    assert due_of(wire) == due_at


def test_no_saga_is_the_zero_one_or_none_or_no_guid() -> None:
    """Its entry's partition is written in lower case."""
    saga = "5F6E0C1A-0000-4000-8000-00000000C2D1"
    assert saga_of({"SagaId": saga}) == "5f6e0c1a-0000-4000-8000-00000000c2d1"
    assert saga_of({"SagaId": "00000000-0000-0000-0000-000000000000"}) is None
    assert saga_of({}) is None
    assert saga_of({"SagaId": "a/b"}) is None


def test_what_is_not_ours_is_not_restored() -> None:
    """A ledger that was tampered with, or a row of another store."""
    extra: dict[str, Any] = {"main": {}, "blob": None}
    assert loaded(TimeoutId("x"), dumped(extra)) == extra
    for text in ("", "{}", "[]", "{"):
        with pytest.raises(StoreError, match="timeout x"):
            loaded(TimeoutId("x"), text)
