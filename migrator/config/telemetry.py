"""What can be set about traces."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator

from migrator.config.quantities import Duration, at_most
from migrator.config.section import Section, none_when_empty

_MOST_SPANS: Final = 10_000
_LONGEST_FLUSH: Final = timedelta(seconds=30)


class Telemetry(Section):
    """Whether spans of what is done go to an OpenTelemetry collector; wants migrator[otel]."""

    traces: bool = Field(
        default=False,
        description="true: spans of what is handed over and sent go to a collector",
    )
    endpoint: Annotated[str | None, BeforeValidator(none_when_empty)] = Field(
        default=None,
        description="address of the collector's OTLP over HTTP, such as http://127.0.0.1:4318; "
        "empty: OTEL_EXPORTER_OTLP_* of the environment",
    )
    spans_per_batch: int = Field(
        default=100,
        ge=0,
        le=_MOST_SPANS,
        description="most messages of a batch that have a span of their own, of those whose "
        "sender recorded its trace; 0: none",
    )
    flush_timeout: Annotated[Duration, at_most(_LONGEST_FLUSH)] = Field(
        default=timedelta(seconds=2),
        description="at the end, the last spans are sent for so long and no longer",
    )

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
            has_more = bool(parts.query or parts.fragment or "@" in parts.netloc or parts.port == 0)
        except ValueError:
            is_address, has_more = False, False
        if not is_address or has_more:
            raise ValueError(
                "must be http(s)://HOST:PORT without a user; secrets go into "
                "OTEL_EXPORTER_OTLP_HEADERS"
            )
        return value
