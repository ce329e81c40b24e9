"""``Tracer`` by OpenTelemetry: a span for each batch, and one for each traced message.

Rules of this file:

* a message's span is a child of the span that sent it, in that span's trace; the message itself
  stays as it is, so its receiver still sees the sender as its parent;
* only messages whose sender recorded its span have one: sampling was decided there;
* whatever goes wrong here is told once, and nobody who works notices;
* the queue of spans, its thread and the retries are the library's; OTEL_BSP_MAX_QUEUE_SIZE bounds
  it (2048 spans), and when it is full the oldest are dropped. Whether the collector takes them is
  told once when that changes.

Names of attributes: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState

from migrator import __version__
from migrator.nservicebus.timeouts import NativeMessage
from migrator.telemetry.ports import Passage, TraceContext, Traced, Tracer, traced

_log = logging.getLogger(__name__)

_SERVICE: Final = "migrator"
_MOST_LINKS: Final = 128
"""More are dropped by the library unless it is told otherwise."""
_NS_PER_S: Final = 1_000_000_000

_Attributes = Mapping[str, str | int]
_PATH: Final = "/v1/traces"


class OtelTracer:
    """Makes spans and sends them; ``close`` ends it."""

    def __init__(self, endpoint: str | None, *, spans_per_batch: int, flush_s: float) -> None:
        """Send spans to *endpoint*; None: to wherever OTEL_EXPORTER_OTLP_* say.

        Nothing is asked yet: a collector that is not there is found out in the background. How
        many spans wait is bounded by OTEL_BSP_MAX_QUEUE_SIZE.
        """
        named = Resource.create({SERVICE_NAME: _SERVICE, "service.version": __version__})
        self._provider = TracerProvider(
            # the environment wins: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
            resource=named.merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,  # ``close`` does it, and not for 30 s
        )
        # the library takes the whole address, and adds the path only to a variable's
        address = None if endpoint is None else endpoint.rstrip("/") + _PATH
        self._exporter = TellingExporter(OTLPSpanExporter(endpoint=address))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(_SERVICE, __version__)
        self._spans_per_batch = spans_per_batch
        self._flush_s = flush_s
        self._has_told = False

    def pick(self, messages: Iterable[NativeMessage]) -> Sequence[Traced]:
        """Return the first of *messages* that are traced; see ``Tracer``."""
        return tuple(islice(traced(messages), self._spans_per_batch))

    def tell(self, passage: Passage) -> None:
        """Make the spans of *passage*; see ``Tracer``."""
        if not passage.is_whole and not passage.traced:
            return
        try:
            self._tell(passage)
        except Exception:
            if not self._has_told:  # a bug would be told for each batch
                self._has_told = True
                _log.exception("a bug: no span could be made", extra={"action": "traces_failed"})

    def close(self) -> None:
        """Send what is left, for a while and no longer.

        A request that nobody answers is left to its own time limit, in a thread that keeps no
        process alive.
        """
        # the library would wait for 30 s
        ending = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        ending.start()
        ending.join(self._flush_s)
        if ending.is_alive():
            self._exporter.give_up(self._flush_s)

    def _tell(self, passage: Passage) -> None:
        ended_ns = time.time_ns()
        began_ns = ended_ns - max(int(passage.seconds * _NS_PER_S), 0)
        contexts = [_span_context(each.context) for each in passage.traced]
        common = _common(passage)
        whole: list[Link] = []
        if passage.is_whole:
            batch = self._tracer.start_span(
                f"{passage.work} {passage.endpoint}",
                context=Context(),  # a trace of its own, whatever this thread is in
                kind=SpanKind.INTERNAL,
                attributes={**common, "messaging.batch.message_count": passage.rows},
                links=[Link(context) for context in contexts[:_MOST_LINKS]],
                start_time=began_ns,
            )
            batch.end(ended_ns)
            if batch.get_span_context().trace_flags.sampled:
                whole.append(Link(batch.get_span_context()))
        for each, context in zip(passage.traced, contexts, strict=True):
            self._tracer.start_span(
                f"{passage.work} {each.destination}",
                context=set_span_in_context(NonRecordingSpan(context), Context()),
                kind=SpanKind.PRODUCER,
                attributes={**common, **_of_message(each)},
                links=whole,
                start_time=began_ns,
            ).end(ended_ns)


def _span_context(found: TraceContext) -> SpanContext:
    return SpanContext(
        trace_id=int(found.trace_id, 16),
        span_id=int(found.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=TraceState.from_header([found.state]) if found.state else TraceState(),
    )


def _common(passage: Passage) -> _Attributes:
    found: dict[str, str | int] = {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": passage.work,
        "messaging.operation.type": "send",
        "migrator.endpoint": passage.endpoint,
        "migrator.mode": passage.mode,
    }
    if passage.batch is not None:
        found["migrator.batch"] = passage.batch
    return found


def _of_message(message: Traced) -> _Attributes:
    found: dict[str, str | int] = {
        "messaging.destination.name": message.destination,
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": message.body_bytes,
        "migrator.row": message.row_index,
        "migrator.timeout": message.timeout_id,
    }
    if message.conversation_id is not None:
        found["messaging.message.conversation_id"] = message.conversation_id
    return found


# ── on their way to a collector ───────────────────────────────────────────────────────────────


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


_: type[Tracer] = OtelTracer
