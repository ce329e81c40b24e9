"""Azure Storage at its oddest: entities as no persistence writes them, and late requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.data.tables import UpdateMode

from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.changes import Clearing
from migrator.stores.documents.ports import Mark
from tests.contract.azure_site import AzureSite
from tests.support.azure import due

pytestmark = pytest.mark.documents("azurite")


def test_what_leads_elsewhere_stops_no_claim(site: AzureSite) -> None:
    """Names that no blob has, or that are a way to another container; sagas that are no key."""
    odd: list[dict[str, str]] = [
        {"StateAddress": "../other/body"},
        {"StateAddress": "a/./b"},
        {"StateAddress": "a" * 20_000},
        {"SagaId": "a/b"},
        {"SagaId": "a" * 20_000},
    ]
    rows, table = due(1, count=len(odd)), site.legacy.table
    site.legacy.add(rows)
    for row, more in zip(rows, odd, strict=True):
        for partition, name in ((row.id, ""), (row.partition, row.id)):
            table.upsert_entity({**table.get_entity(partition, name), **more})
    before = site.legacy.contents()
    lease, until = site.lease(), datetime.now(UTC) + timedelta(days=1)
    claim = site.claim(site.endpoint, lease, due_until=until)
    assert site.ids(claim) == [rows[3].id, rows[4].id]
    assert {row.reason for row in site.ledger_rows()[:3]} == {"body-missing"}
    assert set(site.legacy.contents()) == {row.id for row in rows[:3]}
    assert site.claims.release(claim.batch, lease) == len(rows)
    assert site.legacy.contents() == before


def test_a_restoration_that_arrives_at_the_last_moment_is_known(
    site: AzureSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id is taken, so it is given up; then the id is free, and the first request is done."""
    (row,), theirs, mark = due(1), due(2), Mark("lg1.7.b")
    site.legacy.add([row])
    documents = [*site.documents.read(site.endpoint, [TimeoutId(row.id)])]
    main = site.legacy.table.get_entity(row.id, "")
    assert site.legacy.try_remove(row.id)
    site.legacy.add(theirs)
    remove = Clearing.remove

    def overtaken(*args: Any) -> None:
        monkeypatch.undo()
        assert site.legacy.try_remove(row.id)
        closed = {"PartitionKey": row.id, "RowKey": f"migrator.{mark}", "Step": "closed"}
        site.legacy.table.submit_transaction(
            [("create", main), ("update", closed, {"mode": UpdateMode.REPLACE})]
        )
        remove(*args)

    monkeypatch.setattr(Clearing, "remove", overtaken)
    back = site.documents.put_back(site.endpoint, mark, documents, is_meant=lambda: True)
    assert (back, site.legacy.ids()) == ({row.id}, {row.id})
