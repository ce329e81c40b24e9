"""Tests of ``migrator.domain.marks``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.domain.marks import ForeignMark, Mark, Pass, build_mark, parse_mark
from migrator.domain.timeouts import BatchId

PASSES = st.builds(
    Pass,
    batch=st.integers(0, 10**18 - 1).map(BatchId),
    attempt=st.integers(0, 10**9 - 1),
)


@given(
    ledger_id=st.from_regex(r"[0-9a-z]{1,40}", fullmatch=True),
    batch_pass=PASSES,
    row_index=st.none() | st.integers(0, 10**9 - 1),
)
def test_a_mark_is_parsed_back(ledger_id: str, batch_pass: Pass, row_index: int | None) -> None:
    """Rows and receipts survive the round trip, within AMQP's 255 bytes."""
    text = build_mark(ledger_id, batch_pass, row_index)
    assert len(text.encode()) <= 255
    assert parse_mark(text) == Mark(ledger_id=ledger_id, batch_pass=batch_pass, row_index=row_index)


def test_a_mark_reads_as_documented() -> None:
    """The text is public: operators see it in the management page."""
    batch_pass = Pass(batch=BatchId(12), attempt=3)
    assert build_mark("a1", batch_pass, 4) == "migrator/a1/12.3.4"
    assert build_mark("a1", batch_pass, None) == "migrator/a1/12.3.receipt"


def test_passes_are_ordered_by_batch_and_attempt() -> None:
    """A later attempt of the same batch is the greater one."""
    assert Pass(batch=BatchId(1), attempt=9) < Pass(batch=BatchId(2), attempt=1)
    assert Pass(batch=BatchId(2), attempt=1) < Pass(batch=BatchId(2), attempt=2)


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
    with pytest.raises(ForeignMark):
        parse_mark(text)
