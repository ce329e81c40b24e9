"""An OpenTelemetry span for each batch that was handed over or dispatched.

``launch`` imports this file only where traces are on; no other one imports OpenTelemetry. Nobody
who works waits for a collector: the queue of spans, its thread and the retries are the library's,
and when OTEL_BSP_MAX_QUEUE_SIZE spans wait, the oldest are dropped. That spans are lost is logged
once, and once more when the collector takes them again.

Messages have no span: each carries its sender's ``traceparent`` on to its receiver, untouched.
Names of attributes: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from migrator import __version__
from migrator.nservicebus.timeouts import BatchId

_log = logging.getLogger(__name__)

_SERVICE: Final = "migrator"
_NS_PER_S: Final = 1_000_000_000
_PATH: Final = "/v1/traces"


class BatchSpans:
    """Makes spans and sends them, from any thread; ``close`` ends it."""

    def __init__(self, endpoint: str | None, *, flush_s: float) -> None:
        """Send spans to *endpoint*; None: to wherever OTEL_EXPORTER_OTLP_* say.

        Nothing is asked yet: a collector that is not there is found out in the background.

        Raises:
            OSError, ValueError: A variable of OpenTelemetry's is wrong.
        """
        named = Resource.create({SERVICE_NAME: _SERVICE, "service.version": __version__})
        self._provider = TracerProvider(
            # the environment wins: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
            resource=named.merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,  # ``close`` does it, and not for 30 s
        )
        # the library takes the whole address, and adds the path only to a variable's
        address = None if endpoint is None else endpoint.rstrip("/") + _PATH
        self._exporter = LoggingExporter(OTLPSpanExporter(endpoint=address))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(_SERVICE, __version__)
        self._flush_s = flush_s

    def settled(self, endpoint: str, mode: str, batch: BatchId, rows: int, seconds: float) -> None:
        """Make the span of a *batch* whose *rows* the broker took, *seconds* after its claim."""
        ended_ns = time.time_ns()
        self._tracer.start_span(
            f"{mode} {endpoint}",
            context=Context(),  # a trace of its own, whatever this thread is in
            attributes={
                "messaging.system": "rabbitmq",
                "messaging.operation.name": mode,
                "messaging.operation.type": "send",
                "messaging.batch.message_count": rows,
                "migrator.endpoint": endpoint,
                "migrator.mode": mode,
                "migrator.batch": batch,
            },
            start_time=ended_ns - max(int(seconds * _NS_PER_S), 0),
        ).end(ended_ns)

    def close(self) -> None:
        """Send what is left, for *flush_s* and no longer.

        A request that nobody answers is left to its own time limit, in a thread that keeps no
        process alive.
        """
        # the library would wait for 30 s
        ending = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        ending.start()
        ending.join(self._flush_s)
        if ending.is_alive():
            _log.warning(
                "the last spans were not sent in time",
                extra={"action": "traces_lost", "after_s": self._flush_s},
            )
            self._exporter.shutdown()


class LoggingExporter(SpanExporter):
    """Passes spans on, and logs when they are lost and when no longer."""

    def __init__(self, exporter: SpanExporter) -> None:
        """Nothing is lost yet."""
        self._exporter = exporter
        self._lost = 0
        self._is_over = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send *spans*, trying again for as long as OTEL_EXPORTER_OTLP_TIMEOUT; never raises."""
        try:
            result = self._exporter.export(spans)
        except Exception:
            # neither the address nor what the collector said: both may hold a secret
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            if not self._lost:
                _log.warning(
                    "spans are lost: the collector does not take them; the work itself goes on",
                    extra={"action": "traces_lost", "spans": len(spans)},
                )
            self._lost += len(spans)
        elif self._lost:
            _log.info(
                "the collector takes spans again",
                extra={"action": "traces_sent_again", "lost_spans": self._lost},
            )
            self._lost = 0
        return result

    def shutdown(self) -> None:
        """Send nothing more, and give up what is tried again; from any thread, more than once."""
        if not self._is_over.is_set():
            self._is_over.set()
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return what the library's exporter does: it keeps nothing back."""
        return self._exporter.force_flush(timeout_millis)
