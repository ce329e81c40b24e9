"""Tests of ``migrator.nservicebus.tags``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.nservicebus.tags import (
    Attempt,
    MessageTag,
    RowTag,
    UnknownTag,
    build_tag,
    parse_tag,
    row_tag,
)
from migrator.nservicebus.timeouts import BatchId, TimeoutId

PASSES = st.builds(
    Attempt,
    batch=st.integers(0, 10**18 - 1).map(BatchId),
    number=st.integers(0, 10**9 - 1),
)


@given(
    ledger_id=st.from_regex(r"[0-9a-z]{1,40}", fullmatch=True),
    attempt=PASSES,
    row_index=st.none() | st.integers(0, 10**9 - 1),
)
def test_a_mark_is_parsed_back(ledger_id: str, attempt: Attempt, row_index: int | None) -> None:
    """Rows and receipts survive the round trip, within AMQP's 255 bytes."""
    text = build_tag(ledger_id, attempt, row_index)
    assert len(text.encode()) <= 255
    assert parse_tag(text) == MessageTag(ledger_id=ledger_id, attempt=attempt, row_index=row_index)


def test_a_mark_reads_as_documented() -> None:
    """The text is public: operators see it in the management page."""
    attempt = Attempt(batch=BatchId(12), number=3)
    assert build_tag("a1", attempt, 4) == "migrator/a1/12.3.4"
    assert build_tag("a1", attempt, None) == "migrator/a1/12.3.receipt"


def test_passes_are_ordered_by_batch_and_attempt() -> None:
    """A later attempt of the same batch is the greater one."""
    assert Attempt(batch=BatchId(1), number=9) < Attempt(batch=BatchId(2), number=1)
    assert Attempt(batch=BatchId(2), number=1) < Attempt(batch=BatchId(2), number=2)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "someone-else",
        "migrator/a1/12.3",
        "migrator/a1/12.3.",
        "migrator/A1/12.3.4",
        "migrator/a1/12.3.4\n",
        "migrator/a1/12.3.receipts",
        "migrator/a1/-1.3.4",
        "migrator/a1/12.3.4/5",
        "migrator//12.3.4",
        "migrator/a1/" + "9" * 400 + ".1.1",
        " migrator/a1/12.3.4",
    ],
)
def test_other_texts_are_foreign(text: str | None) -> None:
    """What is not ours is never guessed at."""
    with pytest.raises(UnknownTag):
        parse_tag(text)


def test_a_message_of_ours_names_its_row() -> None:
    """By batch and index, whatever the attempt, and by the timeout it says it is."""
    tag = RowTag(batch=BatchId(12), row_index=4, timeout_id=TimeoutId("t"))
    assert row_tag("migrator/a1/12.3.4", "t", ledger_id="a1") == tag
    assert row_tag("migrator/a1/12.9.4", "t", ledger_id="a1") == tag


@pytest.mark.parametrize(
    ("app_id", "timeout_id"),
    [
        (None, "t"),  # a delayed retry: the header is still there, the tag is not
        ("migrator/b2/12.3.4", "t"),
        ("migrator/a1/12.3.receipt", "t"),
        ("migrator/a1/12.3.4", None),
        ("migrator/a1/12.3.4", ""),
        ("migrator/a1/12.3.4", b"t"),
    ],
)
def test_what_others_send_names_no_row(app_id: str | None, timeout_id: object) -> None:
    """Not even with the id of a timeout of ours."""
    assert row_tag(app_id, timeout_id, ledger_id="a1") is None
