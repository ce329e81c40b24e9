"""A collector of spans: a small HTTP server that speaks OTLP, and behaves ill when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, kw_only=True)
class SeenSpan:
    """One span as it was received."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty: it begins a trace."""
    attributes: Mapping[str, str | int]
    resource: Mapping[str, str | int]
    seconds: float


@dataclass
class Collector:
    """What was received so far."""

    url: str = ""
    status: int = 200
    gate: threading.Event = field(default_factory=threading.Event)
    """Cleared: nobody is answered until it is set."""
    requests: int = 0
    spans: list[SeenSpan] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Serve a collector on a free port for as long as the context lasts."""
    found = Collector()
    found.gate.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        found.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(found: Collector) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = found.status if self.path == "/v1/traces" else 404  # as it is when asked
            found.requests += 1
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            found.gate.wait(30)
            if status == 200:
                found.spans += _spans(body)
            try:
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()
            except OSError:
                pass  # whoever asked waits no longer

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _spans(body: bytes) -> Iterator[SeenSpan]:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield SeenSpan(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    attributes=_values(span.attributes),
                    resource=_values(resource.resource.attributes),
                    seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                )


def _values(pairs: Any) -> dict[str, str | int]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
        for pair in pairs
    }
