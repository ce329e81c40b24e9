"""What storing new timeouts promises, over every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from migrator.errors import LeaseLost, RowRefused, StoreError
from migrator.ledger.states import Event, Mode
from migrator.nservicebus.satellites import ClearTimeouts, DelayedMessage
from migrator.nservicebus.timeouts import NO_SAGA, TimeoutId
from migrator.stores.sql.intake import Applied
from tests.contract.site import NOW, LegacyRow, Site, hours, timeout_id

pytestmark = [pytest.mark.every_store(slow=True), pytest.mark.tables]

SAGA = "5f6e0000-0000-4000-8000-00000000c2d1"
LONGEST = "ä" * 200
OTHER_SAGA = "5f6e0000-0000-4000-8000-00000000c2d2"


def new(number: int, **changes: object) -> DelayedMessage:
    """Return a timeout that is due *number* hours after ``NOW``."""
    values = {
        "id": TimeoutId(timeout_id(number)),
        "native_id": "m",
        "headers": {},
        "destination": "Billing",
        "saga_id": NO_SAGA,
        "due_at": NOW + timedelta(hours=number),
        "headers_text": "{}",
        "body": b"body",
    } | changes
    return DelayedMessage(**values)  # type: ignore[arg-type]


def applied(stored: int = 0, known: int = 0, cleared: int = 0) -> Applied:
    """Return what a call is expected to say."""
    return Applied(stored=stored, known=known, cleared=cleared)


@pytest.mark.every_store
def test_a_row_is_written_as_the_persister_writes_it(site: Site) -> None:
    """Every column, byte for byte; the time is UTC without saying so; 200 characters, not bytes."""
    endpoint, lease = site.create(), site.lease()
    due = datetime(2026, 3, 15, 9, 0, 0, 123456, tzinfo=timezone(timedelta(hours=1)))
    text = '{\r\n  "NServiceBus.MessageId": "ä€😀\\u0000"\r\n}'
    rows = [
        new(1, destination=LONGEST, saga_id=SAGA, due_at=due, headers_text=text, body=b"\x00\xff"),
        new(2, destination="a", body=b"", due_at=datetime(2026, 3, 15, 8, tzinfo=UTC)),
        new(3, destination="", headers_text=""),
    ]
    assert site.intake.apply(endpoint, rows, lease) == applied(stored=3)
    assert site.legacy_rows() == [
        LegacyRow(
            id=timeout_id(1),
            destination=LONGEST,
            saga_id=SAGA,
            body=b"\x00\xff",
            due="2026-03-15 08:00:00.123456",
            headers=text,
        ),
        LegacyRow(
            id=timeout_id(2),
            destination="a",
            body=b"",
            due="2026-03-15 08:00:00.000000",
            headers="{}",
        ),
        LegacyRow(
            id=timeout_id(3),
            destination="",
            body=b"body",
            due="2026-03-01 15:00:00.000000",
            headers="",
        ),
    ]


# ── redelivered messages ────────────────────────────────────────────────────────────────────


@pytest.mark.every_store
def test_a_redelivered_message_is_known_before_it_is_dispatched(site: Site) -> None:
    """The row in the store stays as it is, in whatever letter case its id comes."""
    endpoint, lease = site.create(), site.lease()
    row = new(1, id=TimeoutId("ABCDEF01-2345-6789-ABCD-EF0123456789"))
    assert site.intake.apply(endpoint, [row, new(2)], lease) == applied(stored=2)
    before = site.legacy_rows()
    again = [replace(row, id=TimeoutId(row.id.lower())), new(2, body=b"other"), new(3)]
    assert site.intake.apply(endpoint, again, lease) == applied(stored=1, known=2)
    assert [r for r in site.legacy_rows() if r.id != timeout_id(3)] == before


def test_the_same_message_twice_in_one_call_is_one_row(site: Site) -> None:
    """Whoever reads quickly sees both deliveries at once."""
    endpoint, lease = site.create(), site.lease()
    assert site.intake.apply(endpoint, [new(1), new(1)], lease) == applied(stored=1, known=1)


@pytest.mark.every_store
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_redelivered_message_is_known_after_it_was_claimed_and_dispatched(
    site: Site, steps: int
) -> None:
    """As long as the ledger remembers the row: claimed, being sent, or dispatched.

    Once it has forgotten that one, the message is new, and is sent once more.
    """
    endpoint, lease = site.create(), site.lease()
    site.intake.apply(endpoint, [new(1)], lease)
    batch = site.claim(endpoint, lease, mode=Mode.DISPATCH).batch
    for event in (Event.BEGIN_PUBLISHING, Event.ALL_DISPATCHED)[:steps]:
        batch = site.batches.advance(batch, event, lease)
    assert site.intake.apply(endpoint, [new(1), new(2)], lease) == applied(stored=1, known=1)
    assert [row.id for row in site.legacy_rows()] == [timeout_id(2)]
    if site.dispatched.prune(lease, older_than=timedelta(seconds=-1)):
        assert site.intake.apply(endpoint, [new(1)], lease) == applied(stored=1)


@pytest.mark.own_table
def test_the_same_id_for_another_endpoint_is_another_timeout(site: Site) -> None:
    """Tables know nothing of each other, and the ledger tells them apart."""
    first, second = site.create(), site.create(source=site.source_of("Billing_TimeoutData"))
    lease = site.lease()
    site.intake.apply(first, [new(1)], lease)
    site.claim(first, lease)
    assert site.intake.apply(second, [new(1)], lease) == applied(stored=1)


# ── clearing ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.every_store
def test_a_saga_is_cleared_of_all_its_rows(site: Site) -> None:
    """Whoever stored them, and no other saga's; repeating it is harmless."""
    old = [replace(row, saga_id=SAGA) for row in hours(2)]
    endpoint, lease = site.create([*old, *hours(1, start=2)]), site.lease()
    site.intake.apply(endpoint, [new(10, saga_id=SAGA), new(11, saga_id=OTHER_SAGA)], lease)
    clear = ClearTimeouts(saga_id=SAGA.upper())
    assert site.intake.apply(endpoint, [clear], lease) == applied(cleared=3)
    assert [row.id for row in site.legacy_rows()] == [timeout_id(n) for n in (2, 11)]
    assert site.intake.apply(endpoint, [clear], lease) == applied()


def test_changes_of_one_call_keep_their_order(site: Site) -> None:
    """What is stored after a clear stays, what came before it goes, within the same call."""
    endpoint, lease = site.create(), site.lease()
    changes: list[DelayedMessage | ClearTimeouts] = [
        new(1, saga_id=SAGA),
        new(2, saga_id=OTHER_SAGA),
        ClearTimeouts(saga_id=SAGA),
        new(3, saga_id=SAGA),
        ClearTimeouts(saga_id=OTHER_SAGA),
        ClearTimeouts(saga_id=timeout_id(77)),
        new(1, saga_id=SAGA),
    ]
    assert site.intake.apply(endpoint, changes, lease) == applied(stored=4, cleared=2)
    assert [row.id for row in site.legacy_rows()] == [timeout_id(1), timeout_id(3)]


def test_what_is_already_in_the_ledger_is_not_cleared(site: Site) -> None:
    """A claimed row is on its way, as a timeout that the timeout manager has just sent."""
    endpoint, lease = site.create(), site.lease()
    site.intake.apply(endpoint, [new(1, saga_id=SAGA)], lease)
    site.claim(endpoint, lease, mode=Mode.DISPATCH)
    assert site.intake.apply(endpoint, [ClearTimeouts(saga_id=SAGA)], lease) == applied()
    assert site.states() == {"claimed": 1}


# ── refusals ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(new(2, destination="x" * 201), id="long destination"),
        pytest.param(new(2, destination="a\0b"), id="NUL in destination"),
        pytest.param(new(2, headers_text='{"a": "\0"}'), id="NUL in headers"),
        pytest.param(new(2, headers_text="\ud800"), id="half a character"),
        pytest.param(new(2, id="m-1"), id="id no GUID"),
        pytest.param(new(2, saga_id="saga"), id="saga no GUID"),
        pytest.param(ClearTimeouts(saga_id=NO_SAGA), id="clearing no saga"),
        pytest.param(ClearTimeouts(saga_id="x"), id="clearing no GUID"),
    ],
)
def test_what_no_column_takes_is_refused_whole(
    site: Site, bad: DelayedMessage | ClearTimeouts
) -> None:
    """One bad row, and nothing of the call is done; the message quotes no content."""
    endpoint, lease = site.create(hours(1)), site.lease()
    with pytest.raises(RowRefused):
        site.intake.apply(endpoint, [new(1), bad, new(3)], lease)
    assert site.legacy_rows() == hours(1)


@pytest.mark.own_table
def test_a_row_the_database_refuses_is_refused_whole(site: Site) -> None:
    """Somebody's own constraint is no reason to think that a row is known."""
    endpoint, lease = site.create(), site.lease()
    site.execute(f'CREATE UNIQUE INDEX "OneEach" ON {site.quoted()} ("Destination")')
    site.intake.apply(endpoint, [new(1)], lease)
    with pytest.raises(RowRefused):
        site.intake.apply(endpoint, [new(2, destination="Other"), new(3)], lease)
    assert [row.id for row in site.legacy_rows()] == [timeout_id(1)]


@pytest.mark.own_table
def test_a_table_that_has_changed_is_not_the_rows_fault(site: Site) -> None:
    """Such an error must not cost a message its life."""
    endpoint, lease = site.create(), site.lease()
    site.intake.apply(endpoint, [new(1)], lease)
    site.execute(f'ALTER TABLE {site.quoted()} RENAME COLUMN "Headers" TO "Other"')
    with pytest.raises(StoreError) as caught:
        site.intake.apply(endpoint, [new(2)], lease)
    assert not isinstance(caught.value, RowRefused)


def test_without_the_lane_nothing_is_changed(site: Site) -> None:
    """A former owner neither stores nor clears."""
    endpoint, lease = site.create([LegacyRow(id=timeout_id(9), saga_id=SAGA)]), site.lease()
    before = site.legacy_rows()
    site.lease()
    with pytest.raises(LeaseLost):
        site.intake.apply(endpoint, [new(1), ClearTimeouts(saga_id=SAGA)], lease)
    assert site.legacy_rows() == before
