"""Spans on their way to a collector: a bounded queue, one thread, and no trouble for others.

The queue, its thread and the retries are the library's; OTEL_BSP_MAX_QUEUE_SIZE bounds it (2048
spans), and when it is full the oldest are dropped. Whether the collector takes them is told once
when that changes, instead of for each request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

_log = logging.getLogger(__name__)

_PATH: Final = "/v1/traces"


def new_exporter(endpoint: str | None) -> TellingExporter:
    """Return what sends spans to *endpoint*; None: to wherever OTEL_EXPORTER_OTLP_* say.

    Nothing is asked yet; a collector that is not there is found out in the background.
    """
    # the library takes the whole address as an argument, and adds the path only to a variable's
    address = None if endpoint is None else endpoint.rstrip("/") + _PATH
    return TellingExporter(OTLPSpanExporter(endpoint=address))


class TellingExporter(SpanExporter):
    """Passes spans on, and says when they are lost and when no longer."""

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
        if result is SpanExportResult.SUCCESS:
            self._are_taken()
        else:
            self._are_lost(len(spans))
        return result

    def shutdown(self) -> None:
        """Send nothing more, and give up what is tried again; from any thread, more than once."""
        if not self._is_over.is_set():
            self._is_over.set()
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return what the library's exporter does: it keeps nothing back."""
        return self._exporter.force_flush(timeout_millis)

    def give_up(self, after_s: float) -> None:
        """End although spans are left, which had *after_s*."""
        _log.warning(
            "the last spans were not sent in time",
            extra={"action": "traces_lost", "after_s": after_s},
        )
        self.shutdown()

    def _are_lost(self, spans: int) -> None:
        if not self._lost:
            _log.warning(
                "spans are lost: the collector does not take them; the work itself goes on",
                extra={"action": "traces_lost", "spans": spans},
            )
        self._lost += spans

    def _are_taken(self) -> None:
        if self._lost:
            _log.info(
                "the collector takes spans again",
                extra={"action": "traces_sent_again", "lost_spans": self._lost},
            )
        self._lost = 0
