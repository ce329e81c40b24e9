"""Tests of ``migrator.nservicebus.tags``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.nservicebus.tags import (
    Attempt,
    MessageTag,
    UnknownTag,
    build_tag,
    find_tag,
    parse_tag,
)
from migrator.nservicebus.timeouts import BatchId

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


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "someone-else", "migrator/a1/12.3", "migrator/a1/12.3.", "migrator/A1/12.3.4"),
        *("migrator/a1/12.3.4\n", "migrator/a1/12.3.receipts", "migrator/a1/-1.3.4"),
        *("migrator/a1/12.3.4/5", "migrator//12.3.4", " migrator/a1/12.3.4"),
        "migrator/a1/" + "9" * 400 + ".1.1",
    ],
)
def test_other_texts_are_foreign(text: str | None) -> None:
    """What is not ours is never guessed at."""
    with pytest.raises(UnknownTag):
        parse_tag(text)


@pytest.mark.parametrize(
    ("app_id", "is_ours"),
    [
        ("migrator/a1/12.3.4", True),
        ("migrator/b2/12.3.4", False),
        (None, False),
        ("someone-else", False),
    ],
)
def test_a_tag_is_of_one_ledger(app_id: str | None, is_ours: bool) -> None:
    """Another ledger's tag is none."""
    tag = MessageTag(ledger_id="a1", attempt=Attempt(batch=BatchId(12), number=3), row_index=4)
    assert find_tag(app_id, "a1") == (tag if is_ours else None)
