"""Tests of ``migrator.stores.azure.listing``: what is listed again, and what is remembered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure import listing
from migrator.stores.azure.listing import KEPT_FOR_S, SoonestEntries
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.documents.ports import DueRange

SCOPE = parse_scope("yyyyMMddHH")
START = datetime(2026, 11, 3, 8, 0, tzinfo=UTC)
FAR = START + timedelta(days=900)


def entity(number: int, due_at: datetime, owner: str = "Sales") -> dict[str, Any]:
    """Return a time entry; the ids sort the other way round than the due times."""
    return {
        "PartitionKey": SCOPE.key_of(due_at),
        "RowKey": f"id-{999 - number}",
        "Time": f"{due_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        "Time@odata.type": "Edm.DateTime",
        "OwningTimeoutManager": owner,
        "Headers": "{}",
    }


class Table:
    """Lists what it has, as the service does: by keys, in pages."""

    def __init__(self) -> None:
        self.entities: list[dict[str, Any]] = []
        self.listed = 0
        self.now_s = 0.0
        self.soonest = SoonestEntries(self.pages, SCOPE, page=4, monotonic=self.monotonic)

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    def fill(self, count: int, *, apart: timedelta, start: datetime = START) -> None:
        """Store *count* timeouts, one *apart* from the other."""
        self.entities += [entity(n, start + n * apart) for n in range(count)]

    def pages(
        self, where: str, parameters: Mapping[str, str], _columns: Sequence[str] | None
    ) -> Iterator[Sequence[Any]]:
        """Yield pages of the partitions that are meant."""
        self.listed += 1
        first, last = parameters["first"], parameters.get("last", "")
        is_older = "lt @first" in where
        found = [
            each
            for each in sorted(self.entities, key=lambda e: (e["PartitionKey"], e["RowKey"]))
            if each["OwningTimeoutManager"] == parameters["owner"]
            and (
                each["PartitionKey"] < first if is_older else first <= each["PartitionKey"] <= last
            )
        ]
        yield from (found[start : start + 4] for start in range(0, len(found), 4))

    def ask(self, at_most: int, after: datetime | None = None) -> list[str]:
        """Return the ids of what is due next."""
        return [each.id for each in self.soonest.between("Sales", DueRange(after, FAR), at_most)]


@pytest.fixture
def table() -> Table:
    """An empty one."""
    return Table()


def ids(*numbers: int) -> list[str]:
    """Return ids as ``entity`` gives them."""
    return [f"id-{999 - n}" for n in numbers]


BEFORE = START - timedelta(hours=1)


def test_an_hour_is_listed_once_for_several_claims(table: Table) -> None:
    """What was claimed is dropped, and what follows is known."""
    table.fill(12, apart=timedelta(minutes=1))
    for start in (0, 4, 8):
        found = table.ask(4, BEFORE)
        assert found == ids(*range(start, start + 4))
        table.soonest.recent.drop([TimeoutId(each) for each in found])
    assert table.listed == 1
    assert table.ask(4, BEFORE) == ids(*range(4))  # listed again, for nothing is known any more


def test_what_was_read_of_other_hours_serves_the_next_claims(table: Table) -> None:
    """One listing for two claims at least, whatever pages begin and end with."""
    table.fill(24, apart=timedelta(minutes=20))
    for start in (0, 3, 6):
        assert table.ask(3, BEFORE) == ids(*range(start, start + 3))
        table.soonest.recent.drop([TimeoutId(each) for each in ids(*range(start, start + 3))])
        table.entities = [e for e in table.entities if e["RowKey"] not in ids(*range(start + 3))]
    assert table.listed == 2


def test_a_cursor_goes_on_in_what_is_known(table: Table) -> None:
    """And the listing is used only if it has as many as are wanted."""
    table.fill(12, apart=timedelta(minutes=1))
    table.ask(4, BEFORE)
    assert table.ask(4, START + timedelta(minutes=3)) == ids(4, 5, 6, 7)
    assert table.listed == 1
    assert table.ask(4, START + timedelta(minutes=8)) == ids(9, 10, 11)
    assert table.listed == 2


def test_an_old_listing_is_not_used(table: Table) -> None:
    """What was stored since would be overlooked."""
    table.fill(12, apart=timedelta(minutes=1))
    table.ask(2, BEFORE)
    table.entities.append(entity(500, START - timedelta(minutes=1)))
    assert table.ask(2, BEFORE) == ids(0, 1)
    table.now_s += KEPT_FOR_S
    assert table.ask(2, BEFORE) == ids(500, 0)
    assert table.soonest.recent.entry("Sales", TimeoutId("id-999")) is not None
    table.now_s += KEPT_FOR_S
    assert table.soonest.recent.entry("Sales", TimeoutId("id-999")) is None
    table.ask(2, START + timedelta(minutes=4))
    assert table.ask(2, BEFORE) == ids(500, 0)  # the latest listing knows nothing before its start


def test_nothing_is_missed_between_very_old_and_other_timeouts(table: Table) -> None:
    """They are two listings; what is known of the first may end before the second begins."""
    ancient = datetime(1990, 1, 1, tzinfo=UTC)
    table.fill(6, apart=timedelta(hours=1), start=ancient)
    table.entities += [entity(100 + n, START + timedelta(minutes=n)) for n in range(6)]
    assert table.ask(2) == ids(0, 1)
    table.soonest.recent.drop([TimeoutId(each) for each in ids(0, 1)])
    table.entities = [each for each in table.entities if each["RowKey"] not in ids(0, 1)]
    table.now_s += 400
    assert table.ask(2) == ids(2, 3)


def test_no_more_is_kept_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soonest, and the latest listings."""
    monkeypatch.setattr(listing, "KEPT_ENTRIES", 5)
    table = Table()
    table.fill(12, apart=timedelta(minutes=1))
    table.ask(2, BEFORE)
    kept = [n for n in range(12) if table.soonest.recent.entry("Sales", TimeoutId(ids(n)[0]))]
    assert kept == [0, 1, 2, 3, 4]
    table.ask(2, START + timedelta(minutes=6))
    kept = [n for n in range(12) if table.soonest.recent.entry("Sales", TimeoutId(ids(n)[0]))]
    assert kept == [7, 8, 9, 10, 11]
