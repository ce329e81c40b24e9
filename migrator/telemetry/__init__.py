"""Spans for OpenTelemetry; the only package that imports it, and imported only when it is wanted.

``spans`` makes them of what the engine tells, ``export`` gives them to a collector and keeps its
troubles away from everybody else.
"""
