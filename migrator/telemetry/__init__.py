"""OpenTelemetry spans of what was handed over, dispatched and forwarded.

Start with ``ports``: what is read of a message's headers, and the ``Tracer`` that lanes and
dispatchers call. ``spans`` implements it; it is the only module that imports OpenTelemetry, and
``app`` imports it only when traces are on. An exporter that fails is logged and delays nobody.
"""
