"""The native delay queues: 28 levels of queues, each with a TTL, chained by dead-lettering.

Start with ``routing``: names, routing keys, and from a due time to whole seconds. It is pure, and
so are the values in ``depths`` and, in ``releases``, the model of what levels let go of.
``topology`` declares and inspects, ``destinations`` finds and binds queues; ``scan``, ``walk`` and
``access`` read the levels, ``probe`` sends messages through them. Nothing here knows batches or
stores. Source: reference ``native-delays.md``.
"""
