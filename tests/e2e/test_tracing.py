"""Traces of the real program, as a real collector receives them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row
from tests.support.collector import Collector, collecting


@pytest.fixture
def collector(rig: Rig) -> Iterator[Collector]:
    """A collector that the program of *rig* sends its spans to."""
    with collecting() as found:
        rig.settings |= {"MIGRATOR_TELEMETRY__TRACES": "true", "OTEL_BSP_SCHEDULE_DELAY": "200"}
        rig.settings["MIGRATOR_TELEMETRY__ENDPOINT"] = found.url
        yield found


def traced_row(due_in: timedelta, *, flags: str = "01") -> Row:
    """Return a row whose sender had a trace."""
    parent = f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-{flags}"
    return row(due_in, headers={"traceparent": parent, "tracestate": "vendor=1"})


def parent_of(stored: Row) -> tuple[str, str]:
    """Return the trace and the span that sent a row."""
    assert stored.headers is not None
    _, trace, span, _ = json.loads(stored.headers)["traceparent"].split("-")
    return trace, span


def test_what_is_handed_over_continues_its_senders_trace(rig: Rig, collector: Collector) -> None:
    """Staged and direct; the message itself stays as it is; what is no trace is ignored."""
    rig.is_fresh = True  # the tracing library reads its variables when it is imported
    rig.prepare()
    far = [traced_row(timedelta(days=3)) for _ in range(3)]
    overdue = traced_row(timedelta(seconds=-60))
    unsampled = traced_row(timedelta(days=3), flags="00")
    malformed = row(headers={"traceparent": "00-not-a-trace-01", "tracestate": "\u00fc"})
    rig.insert([*far, overdue, unsampled, malformed, row()])
    rig.migrate("--cutoff", "0s")
    messages = [each for each in collector.spans if "migrator.timeout" in each.attributes]
    assert sorted(
        (m.attributes["migrator.timeout"], m.trace_id, m.parent_id) for m in messages
    ) == (sorted((each.id, *parent_of(each)) for each in [*far, overdue]))
    whole = [each for each in collector.spans if "messaging.batch.message_count" in each.attributes]
    assert sorted(each.attributes["messaging.batch.message_count"] for each in whole) == [1, 6]
    assert {link for each in whole for link in each.links} == {
        parent_of(each) for each in [*far, overdue]
    }
    found = {each.timeout_id: each.properties.headers or {} for each in rig.drain_levels()}
    for each in [*far, unsampled, malformed]:
        stored = json.loads(each.headers or "")
        for key in ("traceparent", "tracestate"):
            assert found[each.id][key] == stored[key]
