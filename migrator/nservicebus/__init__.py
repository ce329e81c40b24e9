"""What NServiceBus endpoints write and read: pure, no I/O, no clock, no logging.

Start with ``timeouts``: what a delayed message is. ``headers`` and ``wiretime`` read its headers,
``conversion`` makes a native message of a stored timeout. ``satellites``, ``incoming`` and
``recoverability`` are for the timeout manager's queues: what a message there asks for, and copies
of those that failed.
"""
