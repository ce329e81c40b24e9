"""Spans on their way to a real collector, well and ill behaved."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from dev.servers import wait_until
from migrator.app import tracing
from migrator.config import Telemetry
from migrator.errors import ConfigError
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.telemetry.ports import Passage, Traced, trace_context
from tests.support.collector import Collector, collecting

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector of this test's own."""
    with collecting() as found:
        yield found


def telemetry(collector: Collector, **more: object) -> Telemetry:
    """Return the settings for it, which wait for a collector on a busy machine as well."""
    given = {"traces": True, "endpoint": collector.url, "flush_timeout": "30s", **more}
    return Telemetry.model_validate(given)


def passage(*states: str, batch: int = 7, rows: int = 2) -> Passage:
    """Return a batch with a traced message for each of *states*."""
    return Passage(
        work="hand over",
        endpoint=EndpointName("Sales"),
        batch=BatchId(batch),
        mode="staged",
        rows=rows,
        seconds=1.5,
        traced=[_traced(index, state) for index, state in enumerate(states)],
        is_whole=True,
    )


def _traced(index: int, state: str) -> Traced:
    context = trace_context(f"00-{TRACE}-{SPAN}-01", state)
    assert context is not None
    return Traced(
        context=context,
        row_index=index,
        timeout_id=TimeoutId("t"),
        message_id="m",
        conversation_id=None,
        destination="Billing",
        body_bytes=3,
    )


def threads() -> set[str]:
    """Return the names of all threads but the collector's."""
    return {each.name for each in threading.enumerate() if "Otel" in each.name}


def test_a_message_continues_the_trace_of_its_sender(collector: Collector) -> None:
    """Its span is a child of the sender's; the batch has a trace of its own, linked both ways."""
    with tracing(telemetry(collector)) as tracer:
        tracer.tell(passage("vendor=1", "this is = no, state ="))
    batch, *messages = sorted(collector.spans, key=lambda each: each.parent_id)
    assert [(each.trace_id, each.parent_id) for each in messages] == 2 * [(TRACE, SPAN)]
    assert {each.links for each in messages} == {frozenset({(batch.trace_id, batch.span_id)})}
    assert messages[0].name == "hand over Billing"
    assert messages[0].attributes["messaging.system"] == "rabbitmq"
    assert messages[0].attributes["migrator.batch"] == 7
    assert (batch.name, batch.parent_id, batch.trace_id == TRACE) == ("hand over Sales", "", False)
    assert batch.links == {(TRACE, SPAN)}
    assert batch.attributes["messaging.batch.message_count"] == 2
    assert batch.seconds == pytest.approx(1.5, abs=0.01)
    assert batch.resource["service.name"] == "migrator"
    wait_until(lambda: not threads(), seconds=30, what="the end of the last thread")


def test_the_environment_of_opentelemetry_is_honoured(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is, what it is told, and as whom."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sales-migrator")
    with tracing(telemetry(collector, endpoint="")) as tracer:
        tracer.tell(passage())
    assert collector.headers[0]["api-key"] == "secret"
    assert [each.resource["service.name"] for each in collector.spans] == ["sales-migrator"]


def test_a_wrong_environment_is_told_before_anything_begins(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its values are not."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1000000")
    with (
        pytest.raises(ConfigError, match=r"OTEL_\* variable is wrong") as raised,
        tracing(telemetry(collector)),
    ):
        pass
    assert "1000000" not in str(raised.value)


@pytest.mark.parametrize("trouble", ["silent", "refuses", "gone"])
def test_no_trouble_of_a_collector_reaches_those_who_work(
    trouble: str, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """Telling is quick, the end waits no longer than it may, and one line says so."""
    collector.status = 400
    if trouble == "silent":
        collector.gate.clear()
    endpoint = "http://127.0.0.1:1" if trouble == "gone" else collector.url
    with tracing(telemetry(collector, flush_timeout="0.5s", endpoint=endpoint)) as tracer:
        for number in range(3_000):  # more than the queue holds
            tracer.tell(passage(batch=number))
        end_s = time.monotonic()
    assert time.monotonic() - end_s < 20  # the collector would answer after 30
    collector.gate.set()
    actions = [getattr(each, "action", "") for each in caplog.records]
    assert 0 < actions.count("traces_lost") <= 2
    wait_until(lambda: not threads(), seconds=30, what="the end of the last thread")


def test_it_goes_on_when_the_collector_is_back(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was lost stays lost, and is counted."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    caplog.set_level(logging.INFO, "migrator")
    collector.status = 400
    with tracing(telemetry(collector)) as tracer:
        tracer.tell(passage())
        wait_until(lambda: collector.requests > 0, seconds=30, what="a refusal")
        collector.status = 200
        tracer.tell(passage(batch=8))
    assert [each.attributes["migrator.batch"] for each in collector.spans] == [8]
    lost = [each.__dict__.get("lost_spans") for each in caplog.records]
    assert [count for count in lost if count is not None] == [1]


def test_without_the_library_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything begins."""
    monkeypatch.delitem(sys.modules, "migrator.telemetry.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"migrator\[otel\]"), tracing(Telemetry(traces=True)):
        pass
