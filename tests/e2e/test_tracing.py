"""Spans of the real program, as a real collector receives them."""

from __future__ import annotations

from datetime import timedelta

from tests.e2e.rig import Rig
from tests.e2e.rows import row
from tests.support.collector import collecting

HEADERS: dict[str, str | None] = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=1",
}


def test_each_batch_has_a_span_and_a_message_keeps_its_senders_trace(rig: Rig) -> None:
    """Staged and direct; the headers of a trace are handed over as they were stored."""
    rig.is_fresh = True  # the tracing library reads its variables when it is imported
    rig.prepare()
    far = row(timedelta(days=3), headers=HEADERS)
    rig.insert([far, row(timedelta(days=3)), row(timedelta(seconds=-60))])
    with collecting() as collector:
        rig.settings |= {"MIGRATOR_TELEMETRY__TRACES": "true", "OTEL_BSP_SCHEDULE_DELAY": "200"}
        rig.settings["MIGRATOR_TELEMETRY__ENDPOINT"] = collector.url
        rig.migrate("--cutoff", "0s")
    told = [
        (s.name.split()[0], s.attributes["messaging.batch.message_count"]) for s in collector.spans
    ]
    assert sorted(told) == [("direct", 1), ("staged", 2)]
    (found,) = [each for each in rig.drain_levels() if each.timeout_id == far.id]
    sent = found.properties.headers or {}
    assert {name: sent[name] for name in HEADERS} == HEADERS
