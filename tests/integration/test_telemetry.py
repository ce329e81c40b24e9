"""Spans on their way to a real collector, well and ill behaved."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from dev.servers import wait_until
from migrator.config import Telemetry
from migrator.errors import ConfigError
from migrator.nservicebus.timeouts import BatchId
from migrator.service.launch import _new_spans
from migrator.service.spans import BatchSpans
from tests.support.collector import Collector, collecting


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector of this test's own."""
    with collecting() as found:
        yield found


def telemetry(collector: Collector, **more: object) -> Telemetry:
    """Return the settings for it, which wait for a collector on a busy machine as well."""
    given = {"traces": True, "endpoint": collector.url, "flush_timeout": "30s", **more}
    return Telemetry.model_validate(given)


@contextmanager
def batch_spans(given: Telemetry) -> Iterator[BatchSpans]:
    """Yield what a daemon makes spans with, and end it as a daemon does."""
    with ExitStack() as ends:
        spans = _new_spans(given, ends)
        assert spans is not None
        yield spans


def settle(spans: BatchSpans, batch: int = 7) -> None:
    """Tell of a batch of two rows."""
    spans.settled("Sales", "staged", BatchId(batch), 2, 1.5)


def threads() -> set[str]:
    """Return the names of all threads but the collector's."""
    return {each.name for each in threading.enumerate() if "Otel" in each.name}


def test_a_batch_has_a_span_in_a_trace_of_its_own(collector: Collector) -> None:
    """From its claim to its receipt, with what finds it in the ledger; no thread stays."""
    with batch_spans(telemetry(collector)) as spans:
        settle(spans)
        settle(spans, batch=8)
    batch, other = collector.spans
    assert (batch.name, batch.parent_id) == ("staged Sales", "")
    assert batch.trace_id != other.trace_id
    assert batch.attributes["messaging.system"] == "rabbitmq"
    assert batch.attributes["messaging.batch.message_count"] == 2
    assert [each.attributes["migrator.batch"] for each in (batch, other)] == [7, 8]
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
    with batch_spans(telemetry(collector, endpoint="")) as spans:
        settle(spans)
    assert collector.headers[0]["api-key"] == "secret"
    assert [each.resource["service.name"] for each in collector.spans] == ["sales-migrator"]


def test_a_wrong_environment_is_told_before_anything_begins(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its values are not."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1000000")
    with (
        pytest.raises(ConfigError, match=r"OTEL_\* variable is wrong") as raised,
        batch_spans(telemetry(collector)),
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
    with batch_spans(telemetry(collector, flush_timeout="0.5s", endpoint=endpoint)) as spans:
        for number in range(3_000):  # more than the queue holds
            settle(spans, batch=number)
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
    with batch_spans(telemetry(collector)) as spans:
        settle(spans)
        wait_until(lambda: collector.requests > 0, seconds=30, what="a refusal")
        collector.status = 200
        settle(spans, batch=8)
    assert [each.attributes["migrator.batch"] for each in collector.spans] == [8]
    lost = [each.__dict__.get("lost_spans") for each in caplog.records]
    assert [count for count in lost if count is not None] == [1]


def test_without_the_library_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything begins."""
    monkeypatch.delitem(sys.modules, "migrator.service.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"migrator\[otel\]"), batch_spans(Telemetry(traces=True)):
        pass
