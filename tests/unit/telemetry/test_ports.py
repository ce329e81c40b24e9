"""Tests of ``migrator.telemetry.ports``."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.telemetry.ports import trace_context, traced
from tests.unit.rabbitmq.material import message

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
"""What looks as the standard has it; some of it is."""


def _ids(digits: int) -> st.SearchStrategy[str]:
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


@given(_ids(32), _ids(16), st.integers(0, 255))
def test_what_the_standard_allows_is_read(trace: str, span: str, flags: int) -> None:
    """Parsing undoes building; the lowest flag says whether the sender recorded it."""
    found = trace_context(f"00-{trace}-{span}-{flags:02x}", "vendor=1")
    assert found is not None
    assert (found.trace_id, found.span_id, found.state) == (trace, span, "vendor=1")
    assert found.is_sampled == bool(flags % 2)


@pytest.mark.parametrize(
    "parent",
    [
        *(None, 7, "", "nonsense", f"|{TRACE}.{SPAN}.", f"00-{TRACE}-{SPAN}"),
        *(f"00-{TRACE}-{SPAN}-01-more", f"00-{TRACE}-{SPAN}-1", f"ff-{TRACE}-{SPAN}-01"),
        *(f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[:-1]}-{SPAN}-01"),
        *(f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE[:-1]}٣-{SPAN}-01"),
        f"01-{TRACE}-{SPAN}-01-" + "x" * 1000,
    ],
)
def test_what_the_standard_does_not_allow_is_ignored(parent: object) -> None:
    """No error: a trace is never worth a message."""
    assert trace_context(parent) is None


@pytest.mark.parametrize("state", [None, 7, "x" * 513])
def test_a_later_version_may_say_more_and_a_state_may_be_none(state: object) -> None:
    """The standard has it read as far as it is known."""
    found = trace_context(f"01-{TRACE}-{SPAN}-01-what-comes-next", state)
    assert found is not None
    assert (found.trace_id, found.state) == (TRACE, "")


def test_only_messages_whose_sender_recorded_them_are_traced() -> None:
    """Neither those without a trace nor those that were not sampled."""
    plain = message()
    headers = [{"traceparent": f"00-{TRACE}-{SPAN}-{flags}"} for flags in ("01", "00")]
    messages = [plain, *(replace(plain, headers={**plain.headers, **each}) for each in headers)]
    (found,) = traced(messages)
    assert found.context.span_id == SPAN
    assert found.message_id == plain.message_id
    assert found.body_bytes == len(plain.body)
