"""OpenTelemetry spans of what was handed over, dispatched and forwarded.

Start with ``ports``: the ``Tracer`` that lanes and dispatchers call. ``spans`` implements it. It is
the only module that imports OpenTelemetry, and ``app`` imports it only when traces are on; an
exporter that fails is logged and delays nobody.
"""
