"""A tracer where one is wanted; OpenTelemetry is imported here and only then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from migrator.config import Telemetry
from migrator.errors import ConfigError
from migrator.telemetry.ports import NoTracer, Tracer


@contextmanager
def tracing(given: Telemetry) -> Iterator[Tracer]:
    """Yield what is told of messages; at the end the last spans are sent, within their time.

    Raises:
        ConfigError: Traces are wanted, and OpenTelemetry is not installed or is set up wrongly.
    """
    if not given.traces:
        yield NoTracer()
        return
    try:
        from migrator.telemetry.spans import OtelTracer
    except ImportError as exc:
        raise ConfigError(
            "telemetry.traces is true, but OpenTelemetry is not installed: install migrator[otel]"
        ) from exc
    try:
        tracer = OtelTracer(
            given.endpoint,
            spans_per_batch=given.spans_per_batch,
            flush_s=given.flush_timeout.total_seconds(),
        )
    except (OSError, ValueError) as exc:
        # what they hold may be a secret, so only the kind of trouble is told
        raise ConfigError(f"an OTEL_* variable is wrong: {type(exc).__name__}") from exc
    try:
        yield tracer
    finally:
        tracer.close()
